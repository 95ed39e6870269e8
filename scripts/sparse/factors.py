"""MTTKRP and TTMc beside their other forms: the products of a sparse tensor that dominate CP-ALS and HOOI.

The synthetic tensors (`examples.data.sparse_tensors`) have 1.3 elements per fibre, or tens, as published tensors have.
`published` has tensors after four of FROSTT, with fewer elements.
"""

from __future__ import annotations

import itertools
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
# After tensors of FROSTT (frostt.io): extents, elements, and the exponents of the power laws of their coordinates. Of
# the elements a share is kept. Extents are multiplied by its root, so that as many elements meet in a pair of
# coordinates, or by the share itself where a coordinate has few elements; the shortest mode is kept. FROSTT publishes
# extents and elements; the exponents are estimates: names are skewed, times are not.
PUBLISHED = {
    "nell-2": ((2_418, 1_837, 5_764), 3_076_000, (2.0, 2.0, 2.0)),
    "vast-2015-mc1": ((55_142, 3_791, 2), 2_891_000, (1.0, 2.0, 1.0)),
    "freebase_music": ((700_000, 700_000, 166), 2_986_000, (2.5, 2.5, 3.0)),
    "darpa": ((7_108, 7_108, 2_380_000), 2_840_000, (3.0, 3.0, 1.0)),
}
# Columns of their factors in MTTKRP; most elements of a result.
PUBLISHED_RANKS, LARGEST_RESULT = (16, 32), 2**26


@dataclass(frozen=True, eq=False)
class Case:
    """A product of a sparse tensor in one mode, and the speed-ups that we aim at."""

    label: str
    tensor: sparse.SparseTensor
    product: str
    mode: int
    rank: int
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
        return [self.tensor, *(rng.standard_normal((self.tensor.shape[m], self.rank)) for m in self.order[1:])]


@cache
def tensors(quick: bool) -> dict[str, sparse.SparseTensor]:
    if quick:
        return {"short fibres": skewed((605, 460, 1441), 30_000), "long fibres": fibred((605, 460, 1441), 4_000)}
    return {"short fibres": skewed(SHAPE, 3_000_000), "long fibres": fibred(SHAPE, 160_000, longest=2_000)}


def cases(quick: bool) -> Iterator[Case]:
    for label, tensor in tensors(quick).items():
        for product, rank in (("MTTKRP", RANK), ("TTMc", RANKS)):
            for mode in range(3):
                goals = _targets(product, tensor, mode)
                yield Case(f"{product} mode {mode}, {label}", tensor, product, mode, rank, goals)


def published(quick: bool) -> Iterator[Case]:
    for label, (shape, elements, exponents) in PUBLISHED.items():
        extents, count = ([max(2, n // 20) for n in shape], elements // 400) if quick else (list(shape), elements)
        tensor = skewed(extents, count, exponents)
        products = [*(("MTTKRP", rank) for rank in PUBLISHED_RANKS), ("TTMc", RANKS)]
        for (product, rank), mode in itertools.product(products, range(3)):
            if product == "TTMc" and extents[mode] * rank**2 > LARGEST_RESULT:
                continue
            goals = {"trnqc over the best other": 1.0}
            yield Case(f"{product} {rank} mode {mode}, after {label}", tensor, product, mode, rank, goals)


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
