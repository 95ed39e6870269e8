"""Networks of the CoNST paper and of quantum chemistry, for the solver: its time, and the smallest workspaces."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import Tree, contractions
from trnqc.sparse.search.fusion import Fusions
from trnqc.sparse.search.rates import WorkRates
from trnqc.sparse.search.solve import candidates
from trnqc.sparse.tensors.storage import SparseTensor, from_coo

# Name -> subscripts, tree, extents. All other extents are 20.
NETWORKS: dict[str, tuple[str, Tree, dict[str, int]]] = {
    "running example": ("ipq,jpr,kqr,jkr->ijk", (((0, 1), 2), 3), {}),
    "DLPNO (1)": ("Kmn,mi,nu->Kiu", ((0, 1), 2), {"K": 70, "m": 30, "n": 30}),
    "DLPNO (2), map last": ("Kmn,mi,nu,Ki->Kiu", (((0, 1), 2), 3), {"K": 70, "m": 30, "n": 30}),
    "DLPNO (2), map first": ("Kmn,mi,nu,Ki->Kiu", ((0, (1, 3)), 2), {"K": 70, "m": 30, "n": 30}),
    "DLPNO (3)": ("Kiu,KL,Ljv->iujv", ((0, 1), 2), {"K": 40, "L": 40}),
    "MTTKRP": ("ijk,jr,kr->ir", ((0, 2), 1), {}),
    "TTMc": ("ijk,jr,ks->irs", ((0, 2), 1), {}),
    "MTTKRP of order 4": ("ijkl,jr,kr,lr->ir", (((0, 3), 2), 1), {}),
    "Tucker chain of order 3": ("ijk,ia,jb,kc->abc", (((0, 3), 2), 1), {}),
    "Tucker chain of order 4": ("ijkl,ia,jb,kc,ld->abcd", ((((0, 4), 3), 2), 1), {}),
    "four-index transformation": ("pqrs,pi,qj,rk,sl->ijkl", ((((0, 4), 3), 2), 1), {}),
    "a term of coupled cluster": ("acik,befl,dfjk,cdel->abij", (((1, 3), 2), 0), {}),
}


def networks() -> dict[str, Callable[[], dict[str, Any]]]:
    """Return the measurement of each network by name."""
    return {name: partial(solved, *case) for name, case in NETWORKS.items()}


def solved(subscripts: str, tree: Tree, extents: dict[str, int]) -> dict[str, Any]:
    """Return the order of the smallest workspaces, and the CPU seconds to find them and to rank all nests."""
    shapes = [tuple(extents.get(x, 20) for x in labels) for labels in subscripts.split("->")[0].split(",")]
    net = network(subscripts, shapes)
    operands = [synthetic(shape) for shape in shapes]
    began = time.process_time()
    smallest = next(iter(Fusions(contractions(net, tree), len(shapes)).smallest_first(1, 10.0)))
    ended = time.process_time()
    ranked = candidates(net, operands, WorkRates(), tree=tree, time_limit=10.0)
    return {
        "order": smallest.order,
        "order of the fastest": ranked[0].nest.order,
        "nests": len(ranked),
        "seconds": {"smallest workspaces": ended - began, "ranking": time.process_time() - ended},
    }


def synthetic(shape: tuple[int, ...]) -> SparseTensor:
    """Return a tensor with a tenth of its elements stored, at random."""
    rng = np.random.default_rng(5)
    count = int(0.1 * np.prod(shape))
    places = rng.choice(int(np.prod(shape)), count, replace=False)
    return from_coo(shape, np.array(np.unravel_index(places, shape)), np.ones(count) + rng.random(count))
