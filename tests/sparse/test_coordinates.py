"""Without a C compiler, contractions are products of SciPy's sparse matrices."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc import sparse
from trnqc.sparse.run import coordinates

CASES = [
    ("ij,j->i", (5, 7), (7,)),
    ("ij,jk->ik", (5, 7), (7, 4)),
    ("bij,bjk->bik", (2, 5, 7), (2, 7, 4)),
    ("ij,ij->ij", (5, 7), (5, 7)),
    ("ij,kl->jl", (5, 7), (3, 2)),
    ("ij,ij->", (5, 7), (5, 7)),
    ("Kmn,mi,nu,Ki->Kiu", (3, 5, 5), (5, 4), (5, 6), (3, 4)),
    ("ijk->k", (3, 4, 5)),
]


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
@pytest.mark.parametrize("out", ["dense", "sparse"])
def test_results_are_those_of_einsum(case, out, monkeypatch):
    monkeypatch.setattr("trnqc.sparse.run.plan.lacks_compiler", lambda: f"none in {case[0]} {out}")
    subscripts, *shapes = case
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(shape) * (rng.random(shape) < 0.4) for shape in shapes]
    operands = [sparse.from_dense(a, kinds=["compressed"] * a.ndim) for a in arrays]
    with pytest.warns(RuntimeWarning, match="computed by SciPy"):
        result = sparse.contract(subscripts, *operands, form="fused", out=out)
    result = result.to_dense() if isinstance(result, sparse.SparseTensor) else result
    np.testing.assert_allclose(result, np.einsum(subscripts, *arrays), rtol=0, atol=1e-13)
    coordinates.say_no_compiler.cache_clear()


def test_an_operand_without_elements(monkeypatch):
    monkeypatch.setattr("trnqc.sparse.run.plan.lacks_compiler", lambda: "none here")
    empty = sparse.from_coo((3, 4), np.zeros((2, 0), int), np.zeros(0))
    with pytest.warns(RuntimeWarning, match="none here"):
        result = sparse.contract("ij,j->i", empty, np.ones(4), form="fused", out="dense")
    np.testing.assert_array_equal(result, np.zeros(3))
