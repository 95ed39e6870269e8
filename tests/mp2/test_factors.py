"""B against integrals transformed and fitted by plain linear algebra."""

from __future__ import annotations

import tempfile

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyscf import df

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors import shell_blocks as shells_module
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.shell_blocks import shell_blocks
from trnqc.mp2.reference.orbitals import active_orbitals
from trnqc.mp2.store import ScratchStore


def build(mf, frozen=None, auxbasis=None, store=None, **how):
    o = active_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, frozen)
    auxmol = auxiliary_basis(mf.mol, auxbasis).auxmol
    return o, auxmol, build_factors(mf.mol, auxmol, (o,), Execution(choose("cpu"), **how), store)


def repulsion(mf, o, auxmol):
    """(ia|jb) fitted, as a matrix, from whole arrays."""
    iap = np.einsum("mi,mnP,na->iaP", o.c_occ, df.incore.aux_e2(mf.mol, auxmol), o.c_vir)
    iap = iap.reshape(-1, iap.shape[-1])
    return iap @ np.linalg.pinv(auxmol.intor("int2c2e"), rcond=1e-13, hermitian=True) @ iap.T


@pytest.mark.parametrize("name", ["water", "water conventional", "cartesian water", "hydrogen iodide"])
@pytest.mark.parametrize("threads", [1, 2, 3])
def test_repulsion_integrals(reference, name, threads):
    mf = reference(name)
    o, auxmol, factors = build(mf, frozen=1, threads=threads)
    assert factors.B.flags.c_contiguous
    assert factors.B.shape == (len(o.eps_occ), len(o.eps_vir), auxmol.nao_nr())
    flat = factors.B.reshape(-1, factors.B.shape[-1])
    np.testing.assert_allclose(flat @ flat.T, repulsion(mf, o, auxmol), rtol=0, atol=1e-10)


def test_a_tight_limit_gives_the_same_factors_on_disk(reference):
    mf = reference("water")
    _, _, wide = build(mf, threads=1)
    with pytest.raises(MemoryLimit) as error:
        build(mf, threads=1, memory=1e5)
    needed = float(str(error.value).split("at least ")[1].split(" MB")[0]) * 1e6
    _, _, tight = build(mf, threads=1, memory=1.05 * needed)
    assert "on disk" in tight.where
    np.testing.assert_allclose(tight.B[:], wide.B, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(tight.B[1:3], tight.B[:][1:3])


def test_the_same_blocks_give_the_same_bits_on_disk(reference, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr(tempfile, "tempdir", None)
    mf = reference("water")
    _, _, wide = build(mf)
    _, _, kept = build(mf, store=ScratchStore())
    assert (wide.where, kept.where) == ("in memory", f"on disk, {gigabytes(wide.B.nbytes)} at {tmp_path}")
    assert list(tmp_path.iterdir()) == []
    np.testing.assert_array_equal(kept.B[:], wide.B)


def test_dependent_auxiliary_functions_are_dropped(reference):
    mf = reference("water")
    doubled = {s: mf.mol.format_basis({s: "cc-pvdz-ri"})[s] * 2 for s in ("H", "O")}
    _, auxmol, factors = build(mf, auxbasis=doubled)
    assert factors.B.shape[2] * 2 == auxmol.nao_nr()
    assert factors.B.flags.c_contiguous
    assert "linearly dependent" in factors.metric
    _, _, once = build(mf)
    _, _, stored = build(mf, auxbasis=doubled, store=ScratchStore())
    assert stored.metric == factors.metric
    a, b, c = (f.B[:].reshape(-1, f.B.shape[2]) for f in (factors, once, stored))
    np.testing.assert_allclose(a @ a.T, b @ b.T, rtol=0, atol=1e-9)
    np.testing.assert_array_equal(a, c)


def test_stages_are_timed_and_reported(reference):
    seen = []
    _, _, factors = build(reference("water"), progress=lambda *step: seen.append(step))
    assert set(factors.timings) == {"integrals", "transformation", "metric", "fitting"}
    assert all(seconds >= 0 for seconds in factors.timings.values())
    for stage in ("integrals", "fitting"):
        done = [(d, total) for s, d, total in seen if s == stage]
        assert [d for d, _ in done] == list(range(1, done[-1][1] + 1))


def test_many_integrals_come_from_our_kernels(reference, monkeypatch):
    mf = reference("small hydrogen")
    _, _, theirs = build(mf, auxbasis="weigend")
    assert theirs.integrals == "PySCF"
    monkeypatch.setattr(shells_module, "MANY", 0)
    o, auxmol, ours = build(mf, auxbasis="weigend", threads=2)
    assert "generated" in ours.integrals
    flat = ours.B.reshape(-1, ours.B.shape[-1])
    np.testing.assert_allclose(flat @ flat.T, repulsion(mf, o, auxmol), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.B, theirs.B, rtol=0, atol=1e-10)


def test_shells_beyond_our_kernels_are_left_to_pyscf(reference, monkeypatch):
    mf = reference("small hydrogen")
    monkeypatch.setattr(shells_module, "MANY", 0)
    basis = {"H": [[0, [1.0, 1.0]], [1, [0.8, 1.0]], [8, [1.1, 1.0]]]}
    o, auxmol, factors = build(mf, auxbasis=basis)
    assert "PySCF" in factors.integrals and "beyond" in factors.integrals
    flat = factors.B.reshape(-1, factors.B.shape[-1])
    np.testing.assert_allclose(flat @ flat.T, repulsion(mf, o, auxmol), rtol=0, atol=1e-10)


@given(st.lists(st.integers(1, 15), min_size=1, max_size=60), st.integers(1, 64), st.integers(1, 8))
def test_blocks_cover_all_shells_once_within_the_width(sizes, width, multiple):
    loc = np.append(0, np.cumsum(sizes))
    blocks = list(shell_blocks(loc, width, multiple))
    assert [k for k0, k1 in blocks for k in range(k0, k1)] == list(range(len(sizes)))
    assert all(loc[k1] - loc[k0] <= width or k1 - k0 == 1 for k0, k1 in blocks)
    assert all(k1 - k0 < multiple or (k1 - k0) % multiple == 0 for k0, k1 in blocks[:-1])
