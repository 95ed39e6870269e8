"""The DLPNO data have the published sizes, and their equations agree with dense algebra."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from pyscf import gto

from examples.data.helium_lattice import BASIS, SETS, SPACING, generate, lattice, read, write
from trnqc.sparse.tensors.convert import as_tensor

EXAMPLE = Path(__file__).parents[2] / "examples" / "dlpno_integrals.py"


@pytest.fixture(scope="module")
def small():
    return generate(5)


def count(array, cut=1e-4):
    return int(np.count_nonzero(np.abs(array) > cut))


def test_sizes_of_the_small_set_are_the_published_ones(small):
    assert small.I.shape == (175, 75, 75)
    assert (small.I.nnz, count(small.I.values)) == (324_223, 215_731)
    assert small.C.shape == (75, 25)
    assert count(small.C) == 843
    np.testing.assert_allclose(np.sort(np.abs(small.C), None)[::-1][[0, 25, 75]], [0.4906, 0.4085, 0.0247], atol=1e-4)
    assert small.P.shape == (75, 75)
    assert small.map().shape == (175, 25)
    assert small.map().nnz == 1603


def test_orbitals_are_orthonormal_and_projected_ones_orthogonal_to_them(small):
    atoms = [("He", (SPACING * x, SPACING * y, 0.0)) for x in range(5) for y in range(5)]
    S = gto.M(atom=atoms, basis=BASIS, verbose=0).intor("int1e_ovlp")
    np.testing.assert_allclose(small.C.T @ S @ small.C, np.eye(25), atol=1e-10)
    np.testing.assert_allclose(small.C.T @ S @ small.P, 0, atol=1e-10)
    home = (np.abs(small.C).reshape(25, 3, 25) ** 2).sum(axis=1).argmax(axis=0)
    np.testing.assert_array_equal(home, np.arange(25))


def test_integrals_are_symmetric_and_stored_ones_are_the_large_ones(small):
    dense = small.I.to_dense()
    np.testing.assert_allclose(dense, dense.transpose(0, 2, 1), atol=2e-6)
    assert np.abs(small.I.values).min() > 1e-6


def test_what_is_kept_is_what_comes_back(small, tmp_path):
    write(small, tmp_path / "kept.h5")
    kept = read(5, tmp_path / "kept.h5")
    for one, other in ((kept.I.values, small.I.values), (kept.I.to_coo()[0], small.I.to_coo()[0])):
        np.testing.assert_array_equal(one, other)
    np.testing.assert_array_equal(kept.C, small.C)
    np.testing.assert_array_equal(kept.P, small.P)


def test_kept_tensors_are_those_that_are_computed(small):
    # Kernels of the process that has kept them may have other flags of the compiler, and round otherwise.
    kept = lattice(5)
    np.testing.assert_allclose(kept.I.values, small.I.values, rtol=1e-12, atol=1e-15)
    np.testing.assert_array_equal(kept.I.to_coo()[0], small.I.to_coo()[0])
    np.testing.assert_allclose(kept.P, small.P, atol=1e-9)


def test_sets_leave_out_what_is_small(small):
    a, b = (small.operands(SETS[name]) for name in "AB")
    assert a["P"] is small.P
    assert (a["I"].nnz, b["I"].nnz, a["C"].nnz, b["C"].nnz) == (324_223, 215_731, 843, 843)
    assert b["P"].nnz == count(small.P)
    assert a["L"].values is None
    assert np.abs(b["P"].to_dense() - small.P).max() <= 1e-4
    assert as_tensor(b["P"]) is b["P"]


@pytest.mark.parametrize("name", [pytest.param(x, marks=[] if x == "B" else [pytest.mark.slow]) for x in SETS])
def test_the_example_agrees_with_dense_algebra(capsys, name):
    spec = importlib.util.spec_from_file_location("examples_dlpno", EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    differences = module.main(["--set", name, "--threads", "2"])
    assert list(differences) == [1, 2, 3]
    assert max(differences.values()) < 1e-12
    assert capsys.readouterr().out.count("ran in ") == 3


@pytest.mark.slow
def test_sizes_of_the_medium_set():
    data = generate(10)
    assert data.I.shape == (700, 300, 300)
    assert (data.I.nnz, count(data.I.values)) == (6_080_480, 3_680_728)
    assert data.C.shape == (300, 100)
    assert 4300 < count(data.C) < 4800
    assert data.map().nnz == 3220
