"""trnqc's contractions behind pyscf.lib.einsum and opt_einsum."""

from __future__ import annotations

import numpy as np
import opt_einsum
import pytest
from pyscf import cc, gto, lib, scf
from pyscf.lib import numpy_helper

from trnqc.contraction import einsum_plan
from trnqc.errors import UnsupportedError
from trnqc.interfaces import pyscf_einsum
from trnqc.interfaces.opt_einsum import PathOptimizer

PRODUCTS = [
    ("ij,jk->ik", (8, 9), (9, 7)),
    ("mf,mfae->ae", (5, 20), (5, 20, 20, 20)),
    ("xij,ij->x", (3, 50, 50), (50, 50)),
    ("ijab,ijcb->ijac", (4, 4, 20, 21), (4, 4, 22, 21)),
    ("ijab,a->ijab", (5, 5, 20, 20), (20,)),
    ("iijk,kl->jl", (9, 9, 12, 13), (13, 14)),
    ("ab,cd->abcd", (9, 10), (11, 12)),
    ("ijk,k->ij", (0, 3, 40), (40,)),
]


@pytest.fixture
def installed():
    with pyscf_einsum.installed():
        yield


@pytest.mark.parametrize(("subscripts", "first", "second"), PRODUCTS)
@pytest.mark.parametrize("kinds", ["dd", "dD", "ff", "DD"])
def test_products_are_those_of_numpy(installed, subscripts, first, second, kinds):
    rng = np.random.default_rng(3)
    a, b = (rng.standard_normal(shape).astype(kind) for kind, shape in zip(kinds, (first, second)))
    if "D" in kinds:
        b = b + 1j * rng.standard_normal(second)
    expected = np.einsum(subscripts, a, b)
    close = {"rtol": 2e-5, "atol": 1e-4} if kinds == "ff" else {"rtol": 1e-12, "atol": 1e-12}
    for function in (lib.einsum, lib.contract, numpy_helper.contract):
        result = function(subscripts, a, b)
        assert result.dtype == expected.dtype and result.shape == expected.shape
        np.testing.assert_allclose(result, expected, **close)


def test_alpha_beta_and_out_are_those_of_pyscf(installed):
    rng = np.random.default_rng(4)
    a, b, c = rng.standard_normal((20, 30)), rng.standard_normal((30, 25)), rng.standard_normal((20, 25))
    expected = 2 * a @ b - 3 * c
    out = c.copy()
    assert lib.einsum("ij,jk->ik", a, b, alpha=2, beta=-3, out=out) is out
    np.testing.assert_allclose(out, expected, rtol=1e-12)
    out = c.copy()
    np.testing.assert_allclose(lib.contract("ij, jk -> ik", a, b, alpha=2, beta=-3, out=out), expected, rtol=1e-12)
    np.testing.assert_allclose(lib.einsum("ij,jk->ik", a, b, alpha=2j), 2j * a @ b, rtol=1e-12)


def test_several_operands_paths_and_other_arguments(installed):
    rng = np.random.default_rng(5)
    a, b, c = rng.standard_normal((20, 30)), rng.standard_normal((30, 25)), rng.standard_normal((25, 20))
    expected = a @ b @ c
    path = ["einsum_path", (1, 2), (0, 1)]
    for options in ({}, {"optimize": True}, {"optimize": "greedy"}, {"optimize": path}, {"_contract": lib.contract}):
        np.testing.assert_allclose(lib.einsum("ij,jk,kl->il", a, b, c, **options), expected, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(lib.einsum("...ij->...ji", a), a.T)


def test_coupled_cluster_has_the_same_energy_and_pyscfs_functions_come_back():
    theirs = lib.einsum, numpy_helper.contract
    mf = scf.UHF(gto.M(atom="O; H 1 0.97", spin=1, basis="6-31g", verbose=0)).run()
    expected = cc.UCCSD(mf).run().e_corr
    with pyscf_einsum.installed():
        assert lib.einsum is pyscf_einsum.einsum
        with pytest.raises(UnsupportedError, match="nested"), pyscf_einsum.installed():
            pass
        assert abs(cc.UCCSD(mf).run().e_corr - expected) < 1e-9
    assert (lib.einsum, numpy_helper.contract) == theirs


def test_tblis_is_left_alone(monkeypatch):
    monkeypatch.setattr(numpy_helper, "EINSUM_BACKEND", "pytblis")
    with pytest.raises(UnsupportedError, match="pytblis"), pyscf_einsum.installed():
        pass


def test_paths_of_opt_einsum_are_our_orders():
    shapes = [(2, 30), (30, 4), (4, 30), (30, 5)]
    path, report = opt_einsum.contract_path("ab,bc,cd,de->ae", *shapes, shapes=True, optimize=PathOptimizer())
    assert report.opt_cost == 2 * einsum_plan("ab,bc,cd,de->ae", *shapes).multiply_adds
    assert opt_einsum.contract_path("ab,bc,cd,de->ae", *shapes, shapes=True, optimize=PathOptimizer(None))[0] == path


@pytest.mark.parametrize("expression", ["ij,jk,kl->il", "ijk,jkl,lm->im", "ij,ij,jk->ik", "ab,cd->dcba"])
def test_opt_einsum_computes_with_our_functions(expression):
    rng = np.random.default_rng(6)
    arrays = [rng.standard_normal((6,) * len(labels)) for labels in expression.split("->")[0].split(",")]
    result = opt_einsum.contract(expression, *arrays, backend="trnqc.interfaces.opt_einsum")
    np.testing.assert_allclose(result, np.einsum(expression, *arrays), rtol=1e-12, atol=1e-12)


def test_tensordot_takes_the_axes_of_numpy():
    from trnqc.interfaces.opt_einsum import tensordot

    rng = np.random.default_rng(7)
    a, b = rng.standard_normal((3, 4, 5)), rng.standard_normal((4, 5, 6))
    for axes in (2, ([1, 2], [0, 1]), ([-1], [1]), 0):
        np.testing.assert_allclose(tensordot(a, b, axes), np.tensordot(a, b, axes), rtol=1e-12)
