"""The transformation of two-electron integrals to molecular orbitals, with and without their symmetry.

PySCF's `ao2mo.general` gets integrals that are packed eightfold and returns (ia|jb) like `einsum`, which gets all of
them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from pyscf import ao2mo

from scripts.measuring import clocked, in_turns
from trnqc import einsum

EXPRESSION = "pqrs,pi,qa,rj,sb->iajb"
REAL = {0: ["pqrs = qprs = pqsr", "pqrs = rspq"]}
# Functions, and orbitals of the two sets.
CASES = ((60, 12, 48), (60, 60, 60), (80, 16, 64), (100, 20, 80))
ROUNDS = 5


def _operands(n: int, i: int, a: int) -> tuple[np.ndarray, ...]:
    rng = np.random.default_rng(n)
    fitted = rng.standard_normal((2 * n, n, n))
    fitted += fitted.transpose(0, 2, 1)
    integrals = np.tensordot(fitted, fitted, (0, 0))
    first, second = rng.standard_normal((n, i)) / n, rng.standard_normal((n, a)) / n
    # Sums in other orders differ in their last digits, which are those of symmetric elements here.
    return ao2mo.restore(1, ao2mo.restore(8, integrals, n), n), first, second, first, second


def transformations() -> dict[str, Any]:
    """Return seconds of CPU time by case, medians of rounds in turns."""
    rows = {}
    for n, i, a in CASES:
        operands = _operands(n, i, a)
        packed, orbitals = ao2mo.restore(8, operands[0], n), operands[1:]
        works: dict[str, Callable[[], np.ndarray]] = {
            "numpy": partial(np.einsum, EXPRESSION, *operands, optimize=True),
            "trnqc": partial(einsum, EXPRESSION, *operands),
            "trnqc, symmetries": partial(einsum, EXPRESSION, *operands, symmetries=REAL),
            "trnqc, symmetries, unchecked": partial(einsum, EXPRESSION, *operands, symmetries=REAL, check_finite=False),
            "ao2mo": partial(ao2mo.general, packed, orbitals, compact=False),
        }
        expected = works["numpy"]().ravel()
        error = max(float(np.abs(run().ravel() - expected).max()) for run in works.values()) / np.abs(expected).max()
        times = in_turns(ROUNDS, {name: clocked(run) for name, run in works.items()})
        seconds = {name: median(cpu for _, cpu in values) for name, values in times.items()}
        case = f"{n} functions, {i} x {a} twice"
        print(f"{case:30} " + ", ".join(f"{name} {x:.3f} s" for name, x in seconds.items()) + f", error {error:.0e}")
        rows[case] = {"seconds": seconds, "error": float(error)}
    return rows
