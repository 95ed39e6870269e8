"""Dense contractions beside opt_einsum, and sparse ones beside SciPy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnqc.bench.case import OURS, Case, Work

# Two terms of coupled cluster with 12 occupied and 60 virtual orbitals, and a product that takes microseconds.
QUADRATIC = ("mnef,ijef,mnab->ijab", {"o": 12, "v": 60})
OCCUPIED = "ijmn"
SMALL = ("ij,jk,kl->il", (8, 8), 1000)
# Rows and columns of a chain of two sparse matrices and a dense one, and the share of stored elements.
CHAIN, DENSITY = ((20_000, 10_000), (10_000, 8_000), (8_000, 32)), 2e-3


def _arrays(shapes: Sequence[tuple[int, ...]]) -> list[np.ndarray]:
    make = np.random.default_rng(1)
    return [make.standard_normal(shape) for shape in shapes]


def _evaluate(who: str) -> Callable[..., Any]:
    if who == OURS:
        from trnqc.contraction.api import einsum

        return einsum
    import opt_einsum

    evaluate: Callable[..., Any] = opt_einsum.contract
    return evaluate


def _coupled_cluster(who: str) -> Callable[[], Work]:
    def prepare() -> Work:
        subscripts, extents = QUADRATIC
        factors = subscripts.split("->")[0].split(",")
        arrays = _arrays([tuple(extents["o" if i in OCCUPIED else "v"] for i in factor) for factor in factors])
        evaluate = _evaluate(who)
        return lambda: evaluate(subscripts, *arrays)

    return prepare


def _many_small(who: str) -> Callable[[], Work]:
    def prepare() -> Work:
        subscripts, shape, calls = SMALL
        arrays, evaluate = _arrays([shape] * 3), _evaluate(who)

        def work() -> Any:
            for _ in range(calls - 1):
                evaluate(subscripts, *arrays)
            return evaluate(subscripts, *arrays)

        return work

    return prepare


def _sparse_chain(who: str) -> Callable[[], Work]:
    def prepare() -> Work:
        import scipy.sparse

        make = np.random.default_rng(2)
        first, second = (
            scipy.sparse.random_array(shape, density=DENSITY, format="csr", rng=make) for shape in CHAIN[:2]
        )
        third = make.standard_normal(CHAIN[2])
        if who == OURS:
            from trnqc import sparse

            return lambda: sparse.contract("ij,jk,kl->il", first, second, third)
        return lambda: first @ (second @ third)

    return prepare


def _case(name: str, group: str, what: str, rival: str, job: Callable[[str], Callable[[], Work]]) -> Case:
    packages = () if rival == "SciPy" else (rival,)
    return Case(name, group, what, rival, packages, {who: job(who) for who in (rival, OURS)}, 1e-11)


CASES = (
    _case(
        "einsum",
        "Tensors",
        f"{QUADRATIC[0]}, {QUADRATIC[1]['o']} occupied and {QUADRATIC[1]['v']} virtual orbitals",
        "opt_einsum",
        _coupled_cluster,
    ),
    _case("einsum-small", "Tensors", f"{SMALL[0]}, all indices of 8, {SMALL[2]} calls", "opt_einsum", _many_small),
    _case(
        "sparse",
        "Tensors",
        "ij,jk,kl->il, two sparse matrices and a dense one, 2 in 1000 elements stored",
        "SciPy",
        _sparse_chain,
    ),
)
