"""MTTKRP and TTMc beside their other forms: the products of a sparse tensor that dominate CP-ALS and HOOI.

The synthetic tensors (`examples.data.sparse_tensors`) have 1.3 elements per fibre, or tens, as published tensors have.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from examples.data.sparse_tensors import fibred, skewed
from scripts.sparse import rivals
from scripts.sparse.contestants import Work, as_array
from trnqc import sparse
from trnqc.sparse.network.network import network
from trnqc.sparse.run.plan import Plan
from trnqc.sparse.search import named_nests

LETTERS = "ijk"
# Columns of the factors of MTTKRP, and of TTMc.
RANK, RANKS = 50, 16
# Extents of the tensors.
SHAPE = (12_092, 9_184, 28_818)


@dataclass(frozen=True, eq=False)
class Case:
    """A product of a sparse tensor in one mode, and the speed-ups that we aim at."""

    label: str
    tensor: sparse.SparseTensor
    product: str
    mode: int
    targets: Mapping[str, float]

    @property
    def order(self) -> tuple[int, ...]:
        """The mode of the result, then the others. The mode that is contracted first is the last one."""
        return (self.mode, *(m for m in range(3) if m != self.mode))

    @property
    def subscripts(self) -> str:
        mode, others = LETTERS[self.mode], [LETTERS[m] for m in self.order[1:]]
        if self.product == "MTTKRP":
            return f"{LETTERS},{others[0]}r,{others[1]}r->{mode}r"
        return f"{LETTERS},{others[0]}r,{others[1]}s->{mode}rs"

    def operands(self) -> list[Any]:
        rng = np.random.default_rng(3)
        rank = RANK if self.product == "MTTKRP" else RANKS
        return [self.tensor, *(rng.standard_normal((self.tensor.shape[m], rank)) for m in self.order[1:])]


@cache
def tensors(quick: bool) -> dict[str, sparse.SparseTensor]:
    if quick:
        return {"short fibres": skewed((605, 460, 1441), 30_000), "long fibres": fibred((605, 460, 1441), 4_000)}
    return {"short fibres": skewed(SHAPE, 3_000_000), "long fibres": fibred(SHAPE, 160_000, longest=2_000)}


def cases(quick: bool) -> Iterator[Case]:
    for label, tensor in tensors(quick).items():
        for product in ("MTTKRP", "TTMc"):
            for mode in range(3):
                yield Case(f"{product} mode {mode}, {label}", tensor, product, mode, _targets(product, tensor, mode))


def _targets(product: str, tensor: sparse.SparseTensor, mode: int) -> dict[str, float]:
    if product == "MTTKRP":
        return {"trnqc over the best other": 0.9}
    # Mean number of elements of a fibre along the last of the other modes.
    others = [m for m in range(3) if m != mode]
    per_fibre = tensor.nnz / tensor.nonzeros([mode, others[0]])
    return {"trnqc over nary": 5.0} if per_fibre >= 50 else {}


def contestants(case: Case) -> tuple[dict[str, Work], dict[str, Plan]]:
    """Return the contestants and their plans.

    In "nary" the ranks are innermost; "unfused-rows" contracts the fibres first, in rows of the rank.
    """
    operands = case.operands()
    net = network(case.subscripts, [x.shape for x in operands])
    i, j, k = (LETTERS[m] for m in case.order)
    ranks = net.output[1:]
    tree = ((0, 2), 1)
    nests = {
        "nary": named_nests.nary(net, (i, j, k, *ranks), full=(1, 2), sparse=False),
        "fused": named_nests.fused(net, tree, [(i, j, k, ranks[-1]), (i, j, *ranks)], full=(1, 2), sparse=False),
    }
    if case.product == "MTTKRP":
        nests["rank outermost, nary"] = named_nests.nary(net, (i, "r", j, k), full=(1, 2), sparse=False)
    plans = {"trnqc": sparse.plan(case.subscripts, *operands, form="fused", out="dense")}
    plans |= {name: sparse.plan(case.subscripts, *operands, form=nest) for name, nest in nests.items()}
    plans["unfused-rows"] = sparse.plan(case.subscripts, *operands, form="unfused-rows", tree=tree, out="dense")
    works: dict[str, Work] = {name: plan.run for name, plan in plans.items()}
    return works | rivals.of_factors(case.product, case.tensor, case.order, operands[1:]), plans


def errors(works: Mapping[str, Work]) -> dict[str, float]:
    """Return the largest differences from "nary", relative to its largest element; a dense tensor would not fit."""
    expected = works["nary"]()
    results = ((name, as_array(work(), expected.shape)) for name, work in works.items())
    return {name: float(np.abs(result - expected).max() / np.abs(expected).max()) for name, result in results}
