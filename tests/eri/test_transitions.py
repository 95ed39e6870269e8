"""K of densities between occupied orbitals and others, from fitted integrals."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, lib, scf, tdscf
from pyscf.df import df_jk

import trnqc
from trnqc.eri.fitting import jk, transitions

ROOM = 1e9
KINDS = ("one-sided", "the other side", "two-sided", "symmetric", "antisymmetric")


def densities(kind: str, occupied: np.ndarray, virtual: np.ndarray, count: int) -> np.ndarray:
    rng, (o, v) = np.random.default_rng(7), (occupied.shape[1], virtual.shape[1])
    one = np.array([virtual @ x @ occupied.T for x in rng.standard_normal((count, v, o))])
    other = np.array([occupied @ x @ virtual.T for x in rng.standard_normal((count, o, v))])
    return {
        "one-sided": one,
        "the other side": other,
        "two-sided": one + other,
        "symmetric": one + one.transpose(0, 2, 1),
        "antisymmetric": one - one.transpose(0, 2, 1),
    }[kind]


@pytest.fixture(scope="module")
def water() -> scf.hf.SCF:
    mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", basis="6-31g", verbose=0)
    return trnqc.accelerate(mol.RHF().density_fit()).run()


@pytest.fixture(scope="module")
def radical() -> scf.hf.SCF:
    mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587", basis="6-31g", spin=1, verbose=0)
    return trnqc.accelerate(mol.UHF().density_fit()).run()


def exact(mf: scf.hf.SCF, dms: np.ndarray) -> np.ndarray:
    full = lib.unpack_tril(mf.with_df._cderi)
    return np.einsum("qij,njk,qkl->nil", full, dms, full, optimize=True)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("room", [ROOM, 1.0])
def test_k_of_transitions(water: scf.hf.SCF, kind: str, room: float) -> None:
    occupied = water.mo_coeff[:, water.mo_occ > 0]
    dms = densities(kind, occupied, water.mo_coeff[:, water.mo_occ == 0], 5)
    space = transitions.orthonormal(occupied)
    divided = [transitions.divided(dm, space) for dm in dms]
    rows = water.with_df._cderi
    norms = lib.unpack_tril(jk.norms_of(rows))
    k = transitions.exchange(rows, space, [one for one in divided if one], norms, room)
    assert np.abs(k - exact(water, dms)).max() < 1e-12


@pytest.mark.parametrize("kind", KINDS)
def test_densities_are_recognised(water: scf.hf.SCF, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    dms = densities(kind, water.mo_coeff[:, water.mo_occ > 0], water.mo_coeff[:, water.mo_occ == 0], 2)
    expected = exact(water, dms)
    with monkeypatch.context() as patched:
        patched.setattr(jk, "exchange", None)
        vj, vk = water.get_jk(water.mol, dms, hermi=0)
    assert np.abs(vk - expected).max() < 1e-12
    full = lib.unpack_tril(water.with_df._cderi)
    assert np.abs(vj - np.einsum("qij,qkl,nkl->nij", full, full, dms, optimize=True)).max() < 1e-12


def test_other_densities_are_not(water: scf.hf.SCF) -> None:
    nao, occupied = water.mol.nao, water.mo_coeff[:, water.mo_occ > 0]
    space = transitions.orthonormal(occupied)
    dm = np.random.default_rng(3).standard_normal((nao, nao))
    assert transitions.divided(dm, space) is None
    assert transitions.divided(np.full((nao, nao), np.nan), space) is None
    mixed = np.array([dm, *densities("two-sided", occupied, water.mo_coeff[:, water.mo_occ == 0], 1)])
    assert np.abs(water.get_jk(water.mol, mixed, hermi=0)[1] - exact(water, mixed)).max() < 1e-12


def test_almost_a_transition_is_none(water: scf.hf.SCF) -> None:
    """A part between virtual orbitals that is larger than rounding is not dropped."""
    occupied, virtual = water.mo_coeff[:, water.mo_occ > 0], water.mo_coeff[:, water.mo_occ == 0]
    dm = densities("two-sided", occupied, virtual, 1)[0]
    assert transitions.divided(dm + 1e-10 * virtual @ virtual.T, transitions.orthonormal(occupied)) is None


def test_each_spin_has_its_orbitals(radical: scf.hf.SCF, monkeypatch: pytest.MonkeyPatch) -> None:
    dms = np.array(
        [
            densities("two-sided", c[:, n > 0], c[:, n == 0], 3)
            for c, n in zip(radical.mo_coeff, radical.mo_occ, strict=True)
        ]
    )
    monkeypatch.setattr(jk, "exchange", None)
    vk = radical.get_jk(radical.mol, dms, hermi=0)[1]
    assert vk.shape == dms.shape
    assert np.abs(vk.reshape(6, *dms.shape[-2:]) - exact(radical, dms.reshape(6, *dms.shape[-2:]))).max() < 1e-12


def test_the_same_bits_for_any_number_of_threads(water: scf.hf.SCF) -> None:
    dms = densities("two-sided", water.mo_coeff[:, water.mo_occ > 0], water.mo_coeff[:, water.mo_occ == 0], 3)
    results = []
    for threads in (1, 2, 3):
        with lib.with_omp_threads(threads):
            results.append(water.get_jk(water.mol, dms, hermi=0)[1])
    assert all(np.array_equal(results[0], each) for each in results)


@pytest.mark.parametrize("way", ["TDA", "TDDFT"])
@pytest.mark.parametrize("xc", ["b3lyp", "camb3lyp"])
def test_excitations_are_pyscfs(way: str, xc: str, monkeypatch: pytest.MonkeyPatch) -> None:
    mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", basis="6-31g", verbose=0)
    mf = dft.RKS(mol, xc=xc).density_fit().run()
    ours = trnqc.accelerate(mf.copy())
    monkeypatch.setattr(jk, "exchange", None)
    energies = []
    for each in (mf, ours):
        td = getattr(tdscf, way)(each)
        td.nstates, td.conv_tol = 4, 1e-9
        energies.append(td.kernel()[0])
    assert np.abs(np.subtract(*energies)).max() < 1e-8


def test_pyscfs_own_k_agrees(water: scf.hf.SCF) -> None:
    dms = densities("two-sided", water.mo_coeff[:, water.mo_occ > 0], water.mo_coeff[:, water.mo_occ == 0], 2)
    theirs = df_jk.get_jk(water.with_df, dms, hermi=0, with_j=False)[1]
    assert np.abs(water.get_jk(water.mol, dms, hermi=0, with_j=False)[1] - theirs).max() < 1e-11
