"""Contestants that compute a sparse network: plans, other forms of our own nests, other libraries and compilers.

Every contestant is a function without arguments whose operands are packed beforehand. All return the same result.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from operator import matmul
from typing import Any

import numpy as np
import scipy.sparse

from scripts.sparse import rivals, taco
from trnqc import sparse
from trnqc.sparse.network.loops import in_order
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.network import Network
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.run.machine_rates import machine_rates
from trnqc.sparse.run.plan import Plan
from trnqc.sparse.search import named_nests
from trnqc.sparse.search.cost import CostModel
from trnqc.sparse.search.estimate import estimate
from trnqc.sparse.search.solve import candidates
from trnqc.sparse.search.statistics import Statistics

ONE, TWO = "Kmn,mi,nu->Kiu", "Kmn,mi,nu,Ki->Kiu"
# Orders of contractions in which the unfused forms are fastest: the map is contracted with the orbitals first.
TREES: dict[str, Tree] = {ONE: ((0, 1), 2), TWO: ((0, (1, 3)), 2)}
# Loops of the fused nests that the authors of the CoNST paper hand to TACO.
PAPER = {ONE: ["iKmn", "iKun"], TWO: ["Kim", "Kimn", "Kinu"]}
Work = Callable[[], Any]


def integrals(subscripts: str, operands: Mapping[str, Any]) -> tuple[dict[str, Work], dict[str, Plan]]:
    """Return the contestants of equation (1) or (2) of `examples/dlpno_integrals.py`, and the plans among them."""
    names = "ICP" if subscripts == ONE else "ICPL"
    original = [operands[name] for name in names]
    thin = [compressed(x) for x in original]
    plans = {
        "trnqc": sparse.plan(subscripts, *original),
        "fused": sparse.plan(subscripts, *original, form="fused"),
        "dense matrices": sparse.plan(subscripts, *original, form="dense", out="dense"),
    }
    plans["fused, all sparse"] = sparse.plan(subscripts, *thin, form=all_sparse(plans["fused"].network, thin))
    plans["fused, paper's loops"] = sparse.plan(subscripts, *thin, form=papers(subscripts, plans["fused"], thin))
    for name in ("unfused-rows", "unfused", "nary"):
        plans[name] = sparse.plan(subscripts, *thin, form=name, tree=TREES[subscripts])
    plans["unfused-rows, P as given"] = sparse.plan(subscripts, *original, form="unfused-rows", tree=TREES[subscripts])
    arrays = [x if isinstance(x, np.ndarray) else x.to_dense() for x in original]
    path = np.einsum_path(subscripts, *arrays, optimize="optimal")[0]
    works: dict[str, Work] = {name: plan.run for name, plan in plans.items()}
    works["np.einsum"] = lambda: np.einsum(subscripts, *arrays, optimize=path)
    works["scipy"] = rivals.by_pairs(operands, subscripts == TWO, matmul)
    works |= rivals.of_integrals(operands, subscripts == TWO)
    return works, plans


def compressed(x: Any) -> sparse.SparseTensor:
    """Return an operand with all levels compressed, without its zeros."""
    if isinstance(x, np.ndarray):
        return sparse.from_dense(x, kinds=["compressed"] * x.ndim)
    return x.repack(range(x.ndim), ("compressed",) * x.ndim)


def all_sparse(network: Network, operands: Sequence[sparse.SparseTensor]) -> Nest:
    """Return the nest of least estimated time if all tensors are stored as CSR or CSF."""
    model = CostModel(Statistics(network, operands), machine_rates())
    solved = [candidate.nest for candidate in candidates(network, operands, machine_rates())]
    nests = [replace(nest, formats=named_nests.formats(nest, (), nest.formats[-1].sparse)).check() for nest in solved]
    return min(nests, key=lambda nest: estimate(nest, model).seconds)


def papers(subscripts: str, plan: Plan, operands: Sequence[sparse.SparseTensor]) -> Nest:
    """Return the nest of the CoNST paper, with a sparse result as there."""
    tree, network = TREES[subscripts] if subscripts == ONE else (((1, 3), 0), 2), plan.network
    nest = named_nests.fused(network, tree, PAPER[subscripts])
    order = nest.formats[-1].order
    depth = in_order(order, nest.assignments[-1].loops)
    return replace(nest, crowded=Statistics(network, operands).crowded(order, depth))


def as_array(result: Any, shape: tuple[int, ...]) -> np.ndarray:
    """Convert the result of a contestant to a NumPy array."""
    if isinstance(result, sparse.SparseTensor | taco.Result):
        return result.to_dense()
    if hasattr(result, "todense") and not scipy.sparse.issparse(result):
        return np.asarray(result.todense())
    return (result.toarray() if scipy.sparse.issparse(result) else np.asarray(result)).reshape(shape)
