"""Products of small arrays by `contract` and by SciPy, in calls that are repeated as in loops of a program."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from operator import matmul
from typing import Any

import numpy as np
import scipy.sparse

from scripts.sparse.contestants import Work
from trnqc import sparse
from trnqc.sparse.search.formats import Out

# Rows and stored elements of sparse matrices.
SIZES = ((20, 40), (100, 500), (200, 800), (1000, 3000), (6000, 18_000), (6000, 60_000))
COLUMNS = 8


def cases(quick: bool) -> Iterator[tuple[str, dict[str, Work], float]]:
    """Yield labels, the works `trnqc` and `scipy`, which have run before, and the largest difference of results."""
    rng = np.random.default_rng(20)
    for rows, stored in SIZES[:1] if quick else SIZES:
        for kind in ("csr", "csc"):
            a, b = (
                scipy.sparse.random_array((rows, rows), density=stored / rows**2, rng=rng).asformat(kind)
                for _ in range(2)
            )
            others: dict[str, tuple[str, Any, Out]] = {
                "vector": ("ij,j->i", rng.random(rows), "auto"),
                f"{COLUMNS} columns": ("ij,jk->ik", rng.random((rows, COLUMNS)), "auto"),
                f"{kind}, sparse": ("ij,jk->ik", b, "sparse"),
            }
            for what, (subscripts, other, out) in others.items():
                works: dict[str, Work] = {
                    "trnqc": partial(sparse.contract, subscripts, a, other, out=out),
                    "scipy": partial(matmul, a, other),
                }
                works["trnqc"]()  # Plans and compiles the nest.
                difference = abs(works["trnqc"]() - works["scipy"]()).max()
                yield f"{kind} {rows} x {rows} of {stored} elements, times {what}", works, float(difference)
