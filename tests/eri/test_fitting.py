"""The density-fitting object beside PySCF's: fitted integrals, J and K, energies, memory, copies."""

from __future__ import annotations

import os
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import h5py
import numpy as np
import pytest
from pyscf import df, dft, gto, lib, scf

import trnqc
from trnqc.eri.fitting import file_rows, fitted_integrals, jk
from trnqc.eri.fitting.integrals_to_file import division
from trnqc.eri.fitting.jk import GROUP
from trnqc.errors import StorageError
from trnqc.pyscf.density_fitting import DF

WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
TRIPLET = "O 0 0 0; O 0 0 1.2"
# How well it fits does not matter here: one shell of each kind up to d, so that few kernels are compiled.
FITTING = {
    "O": [[0, [9.0, 0.4], [1.9, 0.7]], [0, [0.5, 1.0]], [1, [1.5, 1.0]], [2, [1.2, 1.0]]],
    "H": [[0, [2.0, 0.4], [0.6, 0.7]], [1, [0.9, 1.0]]],
}
# More functions than two groups, of the same kinds.
MANY = {
    atom: [[l, *([a * factor, c] for a, c in primitives)] for factor in (1, 2.5, 6, 15) for l, *primitives in shells]
    for atom, shells in FITTING.items()
}


def molecule(atom=WATER, **more):
    return gto.M(**{"atom": atom, "basis": "6-31g", "verbose": 0} | more)


def pair(mol=None, auxbasis=FITTING):
    mol = mol or molecule()
    return DF(mol, auxbasis), df.DF(mol, auxbasis)


@pytest.mark.parametrize(
    ("more", "auxbasis"),
    [
        ({}, FITTING),
        ({"cart": True}, FITTING),
        pytest.param({}, "weigend", marks=pytest.mark.slow),
        pytest.param({"cart": True}, "weigend", marks=pytest.mark.slow),
    ],
    ids=["spherical", "Cartesian", "weigend", "Cartesian weigend"],
)
def test_fitted_integrals(more, auxbasis):
    ours, theirs = pair(molecule(**more), auxbasis)
    np.testing.assert_allclose(ours.build()._cderi, theirs.build()._cderi, rtol=0, atol=1e-10)
    assert ours.get_naoaux() == theirs.get_naoaux()
    assert "generated" in ours.ran_on
    np.testing.assert_allclose(ours.get_eri(), theirs.get_eri(), rtol=0, atol=1e-10)
    blocks = list(ours.loop(10))
    assert {len(block) for block in blocks[:-1]} == {10}
    np.testing.assert_array_equal(np.concatenate(blocks), ours._cderi)


@pytest.mark.parametrize("max_memory", [4000, 0], ids=["in memory", "in a file"])
def test_pairs_without_integrals(max_memory):
    far = WATER + "; O 0 0 40.1173; H 0 0.7572 39.5308; H 0 -0.7572 39.5308"
    ours, theirs = pair(molecule(far))
    ours.max_memory = max_memory
    rows, wanted = (np.concatenate(list(fitting.loop())) for fitting in (ours, theirs))
    assert 0.4 < np.mean(rows.any(axis=0)) < 0.6
    np.testing.assert_allclose(rows, wanted, rtol=0, atol=1e-10)


def densities(nao, shape, hermi):
    dm = np.random.default_rng(5).standard_normal((*shape, nao, nao))
    sign = {0: 0, 1: 1, 2: -1}[hermi]
    return dm + sign * dm.swapaxes(-1, -2)


@pytest.mark.parametrize("shape", [(), (1,), (3,)], ids=str)
@pytest.mark.parametrize("hermi", [0, 1, 2])
@pytest.mark.parametrize("kind", ["real", "complex"])
def test_matrices_of_any_density(shape, hermi, kind):
    ours, theirs = pair()
    dm = densities(ours.mol.nao, shape, hermi)
    if kind == "complex":
        dm = dm + 1j * densities(ours.mol.nao, shape, 0)
        hermi = 0
    for mine, pyscfs in zip(ours.get_jk(dm, hermi), theirs.get_jk(dm, hermi)):
        assert mine.shape == pyscfs.shape
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("hermi", [0, 1, 2])
@pytest.mark.parametrize("kind", ["general", "antisymmetric", "low rank"])
def test_hermi_is_no_promise_about_the_density(kind, hermi):
    ours, theirs = pair()
    nao = ours.mol.nao
    low = np.outer(np.arange(nao), np.ones(nao))
    dm = low if kind == "low rank" else densities(nao, (), 0 if kind == "general" else 2)
    for mine, pyscfs in zip(ours.get_jk(dm, hermi), theirs.get_jk(dm, hermi)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9 * max(1, np.abs(dm).max()))


@pytest.mark.parametrize("rank", [0, 1, 3])
@pytest.mark.parametrize("tagged", [True, False])
def test_matrices_of_few_orbitals(rank, tagged):
    ours, theirs = pair()
    c = np.random.default_rng(rank).standard_normal((ours.mol.nao, 6))
    n = np.where(np.arange(6) < rank, 1.5, 0.0)
    dm = lib.tag_array((c * n) @ c.T, mo_coeff=c, mo_occ=n) if tagged else (c * n) @ c.T
    wanted = theirs.get_jk(np.asarray(dm))
    for mine, pyscfs in zip(ours.get_jk(dm), wanted):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("spins", ["closed shell", "two spins", "restricted open shell"])
def test_a_tagged_density_that_was_edited(spins, on_disk):
    """PySCF computes J from the matrix and K from the orbitals."""
    ours, theirs = pair()
    ours.max_memory = 0 if on_disk else 4000
    c, n = np.random.default_rng(1).standard_normal((ours.mol.nao, 6)), np.array([2.0, 2, 1, 1, 0, 0])
    if spins == "two spins":
        c, n = np.array([c, 2 * c]), np.array([n > 0, n > 1]).astype(float)
    each = [n > 0, n > 1] if spins == "restricted open shell" else n
    dm = np.einsum("...pi,...i,...qi->...pq", c, np.asarray(each, float), c)
    dm = lib.tag_array(dm, mo_coeff=c, mo_occ=n)
    whole = ours.get_jk(dm)
    dm[..., 1:] *= 0.5
    for mine, pyscfs in zip(ours.get_jk(dm), theirs.get_jk(dm)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)
    assert np.abs(ours.get_jk(dm)[0] - whole[0]).max() > 1


@pytest.mark.parametrize("on_disk", [False, True], ids=["memory", "file"])
@pytest.mark.parametrize("factor", [10.0, 1e4, -0.01, np.nan])
@pytest.mark.parametrize("kind", ["J", "matrix", "orbitals"])
def test_integrals_that_are_edited_in_place(kind, factor, on_disk, tmp_path):
    """The bounds of sums that are kept belong to the integrals before."""
    ours, _ = pair()
    if on_disk:
        ours._cderi_to_save = str(tmp_path / "integrals.h5")
    c, n = np.random.default_rng(1).standard_normal((ours.mol.nao, 6)), np.array([2.0, 2, 1, 1, 0, 0])
    dm = lib.tag_array((c * n) @ c.T, mo_coeff=c, mo_occ=n) if kind == "orbitals" else densities(ours.mol.nao, (), 0)
    wanted = {"with_k": kind != "J"}
    before = ours.build().get_jk(dm, **wanted)
    if on_disk:
        with h5py.File(ours._cderi, "r+") as file:
            data = file[ours._dataname]
            for part in data.values() if isinstance(data, h5py.Group) else [data]:
                part[...] = factor * part[...]
    else:
        ours._cderi *= factor
    for matrix, old in zip(ours.get_jk(dm, **wanted), before):
        if old is not None:
            np.testing.assert_allclose(matrix, factor**2 * old, rtol=1e-10, atol=1e-12 * factor**2)


def test_a_density_and_its_orbitals_need_one_pass(monkeypatch):
    ours, _ = pair(molecule(charge=2))
    ours.build()
    c, n = np.random.default_rng(1).standard_normal((ours.mol.nao, 6)), np.array([2.0, 2, 1, 1, 0, 0])
    monkeypatch.setattr(jk, "coulomb", None)
    assert ours.get_jk(lib.tag_array((c * n) @ c.T, mo_coeff=c, mo_occ=n))[0].any()


def test_a_difference_of_densities():
    ours, theirs = pair()
    c = np.random.default_rng(1).standard_normal((ours.mol.nao, 4))
    dm = (c * [1.0, 0.5, -0.7, -2.0]) @ c.T
    np.testing.assert_allclose(ours.get_jk(dm)[1], theirs.get_jk(dm)[1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(("with_j", "with_k"), [(True, False), (False, True)])
def test_one_matrix_alone(with_j, with_k):
    ours, theirs = pair()
    dm = densities(ours.mol.nao, (), 1)
    for mine, pyscfs in zip(ours.get_jk(dm, 1, with_j, with_k), theirs.get_jk(dm, 1, with_j, with_k)):
        if mine is None or pyscfs is None or np.ndim(pyscfs) == 0:
            assert mine is None
        else:
            np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


METHODS = {
    "RHF": lambda: scf.RHF(molecule()),
    "UHF": lambda: scf.UHF(molecule(TRIPLET, spin=2)),
    "ROHF": lambda: scf.ROHF(molecule(TRIPLET, spin=2)),
    "range-separated RKS": lambda: dft.RKS(molecule(), xc="wb97x"),
}


@pytest.mark.parametrize("method", METHODS)
def test_energies(method):
    theirs = METHODS[method]().density_fit(auxbasis=FITTING)
    ours = METHODS[method]().density_fit(auxbasis=FITTING)
    ours.with_df = DF.of(ours.with_df)
    for mf in (ours, theirs):
        mf.conv_tol = 1e-11
    assert ours.kernel() == pytest.approx(theirs.kernel(), abs=1e-9)


@pytest.mark.parametrize(
    "stored",
    [np.asfortranarray, lambda rows: np.repeat(rows, 2, axis=1)[:, ::2], lambda rows: rows[::-1]],
    ids=["by columns", "strided", "backwards"],
)
def test_integrals_of_the_user_need_not_be_contiguous(stored):
    helium = molecule("He 0 0 0; He 0 0 1.5", basis="sto-3g")
    mf = scf.RHF(helium)
    mf.with_df = DF(helium, {"He": [[0, [1.3, 1.0]], [1, [0.8, 1.0]]]}).build()
    expected = mf.density_fit(with_df=mf.with_df).kernel()
    mf.with_df._cderi = stored(mf.with_df._cderi)
    accelerated = trnqc.accelerate(mf.density_fit(with_df=mf.with_df))
    assert accelerated.kernel() == pytest.approx(expected, abs=1e-11)
    general = np.array([[0.1, 0.7], [-0.3, 0.2]])
    for ours, theirs in zip(accelerated.with_df.get_jk(general, 0), mf.with_df.undo().get_jk(general, 0)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)


@pytest.mark.parametrize("omega", [0.3, -0.3])
def test_range_separation(omega):
    ours, theirs = pair()
    dm = densities(ours.mol.nao, (), 1)
    for mine, pyscfs in zip(ours.get_jk(dm, omega=omega), theirs.get_jk(dm, omega=omega)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)
    with ours.range_coulomb(omega) as fitted:
        assert isinstance(fitted, DF)
    assert ours.mol.omega == 0


def test_dependent_fitting_functions_are_dropped():
    doubled = {symbol: shells * 2 for symbol, shells in FITTING.items()}
    ours, theirs = pair(auxbasis=doubled)
    assert ours.get_naoaux() == theirs.get_naoaux() < gto.M(atom=WATER, basis=doubled, verbose=0).nao
    dm = densities(ours.mol.nao, (), 1)
    for mine, pyscfs in zip(ours.get_jk(dm), theirs.get_jk(dm)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-6)


def test_too_large_for_memory_goes_to_a_file():
    ours, theirs = pair()
    ours.max_memory = 0
    dm = densities(ours.mol.nao, (), 1)
    vj, vk = ours.get_jk(dm)
    assert not isinstance(ours._cderi, np.ndarray)
    assert "generated C" in ours.ran_on and "max_memory" in ours.ran_on
    for mine, pyscfs in zip((vj, vk), theirs.get_jk(dm)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("method", ["RHF", "UHF"])
def test_energies_with_integrals_in_a_file(method):
    energies = []
    for max_memory in (4000, 0):
        mf = METHODS[method]().density_fit(auxbasis=FITTING)
        mf.with_df = DF.of(mf.with_df)
        mf.with_df.max_memory, mf.conv_tol = max_memory, 1e-11
        energies.append(mf.kernel())
        assert isinstance(mf.with_df._cderi, np.ndarray) == (max_memory > 0)
    assert energies[1] == pytest.approx(energies[0], abs=1e-9)


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("columns", [1, 7, 40, 1000], ids=lambda n: f"ranges of {n}")
@pytest.mark.parametrize("kind", ["spherical", "Cartesian", "dependent"])
def test_a_file_has_the_bits_of_memory(monkeypatch, kind, columns, threads):
    monkeypatch.setattr(fitted_integrals, "COLUMNS", columns)
    auxbasis = {symbol: shells * 2 for symbol, shells in FITTING.items()} if kind == "dependent" else FITTING
    in_memory, theirs = pair(molecule(cart=kind == "Cartesian"), auxbasis)
    ours, _ = pair(in_memory.mol, auxbasis)
    ours.max_memory = 0
    with lib.with_omp_threads(threads):
        ours.build()
    in_memory.build()
    with h5py.File(ours._cderi.name) as file:
        np.testing.assert_array_equal(file["j3c"], in_memory._cderi)
    # PySCF's functions read the file.
    np.testing.assert_allclose(df.DF.get_eri(ours), theirs.get_eri(), rtol=0, atol=1e-9)
    assert df.DF.get_naoaux(ours) == len(in_memory._cderi)
    norms = lib.pack_tril(ours._file_norms[1])
    np.testing.assert_allclose(norms, np.sqrt((in_memory._cderi**2).sum(axis=0)), rtol=1e-12)


@pytest.mark.parametrize(("room", "wanted"), [(0, 1), (1e5, 1), (5e6, 3), (1e12, 4)])
def test_runs_of_pairs_within_a_limit_of_memory(room, wanted):
    ranges = [(100 * n, 100 * (n + 1)) for n in range(50)]
    threads, runs = division(ranges, nfit=50, threads=4, room=room)
    assert [part for run in runs for part in run] == ranges
    assert threads == wanted
    longest = max(run[-1][1] - run[0][0] for run in runs)
    assert longest == 100 or threads * 16 * 50 * longest <= room
    assert len(runs) >= 4 * threads


def test_a_second_geometry_has_norms_of_its_own():
    ours, _ = pair()
    ours.max_memory = 0
    c = np.random.default_rng(4).standard_normal((ours.mol.nao, 5))
    dm = lib.tag_array(c @ c.T, mo_coeff=c, mo_occ=np.ones(5))
    ours.get_jk(dm)
    near = molecule("O 0 0 0; H 0 0.1 0.1; H 0 -0.1 0.1")
    ours.reset(near)
    theirs = df.DF(near, FITTING)
    for mine, pyscfs in zip(ours.get_jk(dm), theirs.get_jk(np.asarray(dm))):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


def test_operators_share_a_file_that_was_asked_for(tmp_path):
    ours, theirs = pair()
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    dm = densities(ours.mol.nao, (), 1)
    for omega in (None, 0.3, None):
        for mine, pyscfs in zip(ours.get_jk(dm, omega=omega), theirs.get_jk(dm, omega=omega)):
            np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)
    with h5py.File(ours._cderi_to_save) as file:
        assert set(file) == {"j3c", "j3c-lr"}


@pytest.mark.parametrize("tagged", [True, False])
@pytest.mark.parametrize(("with_j", "with_k"), [(True, True), (True, False), (False, True)])
def test_matrices_from_a_file_in_several_blocks(tagged, with_j, with_k):
    ours, theirs = pair(auxbasis=MANY)
    ours.max_memory = 0
    c = np.random.default_rng(2).standard_normal((ours.mol.nao, 5))
    dm = np.array([c @ c.T, 2 * c @ c.T])
    if tagged:
        dm = lib.tag_array(dm, mo_coeff=np.array([c, c]), mo_occ=np.array([np.ones(5), np.full(5, 2.0)]))
    ours.build()
    assert ours.get_naoaux() > 2 * GROUP
    expected = theirs.get_jk(np.asarray(dm), 1, with_j, with_k)
    for mine, pyscfs in zip(ours.get_jk(dm, 1, with_j, with_k), expected):
        if pyscfs is None or np.ndim(pyscfs) == 0:
            assert mine is None
        else:
            np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)
    if with_k:
        assert "J and K from a file by generated C" in ours.ran_on


@pytest.mark.parametrize("rows", [1, 4, 9, 100], ids=lambda n: f"blocks of {n}")
@pytest.mark.parametrize("kind", ["dataset", "group"])
def test_blocks_of_a_file(tmp_path, kind, rows):
    integrals = np.random.default_rng(3).standard_normal((9, 15))
    with h5py.File(tmp_path / "cderi.h5", "w") as file:
        if kind == "dataset":
            file["j3c"] = integrals
        else:
            for n, (begin, end) in enumerate([(0, 4), (4, 4), (4, 15)]):
                file[f"j3c/{n}"] = integrals[:, begin:end]
    with file_rows.opened(str(tmp_path / "cderi.h5"), "j3c") as read:
        assert read.shape == integrals.shape
        blocks = [read[first : first + rows].copy() for first in range(0, len(read), rows)]
        np.testing.assert_array_equal(read.norms(), np.linalg.norm(integrals, axis=0))
    np.testing.assert_array_equal(np.concatenate(blocks), integrals)


def test_threads_read_rows_of_their_own(tmp_path):
    integrals = np.random.default_rng(6).standard_normal((64, 15))
    with h5py.File(tmp_path / "cderi.h5", "w") as file:
        file["j3c"] = integrals
    both_read = threading.Barrier(2)

    def read(rows, first):
        block = rows[first : first + 32]
        both_read.wait(10)
        return block

    with file_rows.opened(str(tmp_path / "cderi.h5"), "j3c") as rows, ThreadPoolExecutor(2) as pool:
        blocks = list(pool.map(partial(read, rows), (0, 32)))
    np.testing.assert_array_equal(np.concatenate(blocks), integrals)


def test_matrices_do_not_depend_on_where_the_integrals_are():
    ours, _ = pair(auxbasis=MANY)
    on_disk, _ = pair(auxbasis=MANY)
    on_disk.max_memory = 0
    c = np.random.default_rng(4).standard_normal((ours.mol.nao, 5))
    dm = lib.tag_array(c @ c.T, mo_coeff=c, mo_occ=np.ones(5))
    for one, other in zip(ours.get_jk(dm), on_disk.get_jk(dm)):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("on_disk", [False, True], ids=["in memory", "on disk"])
def test_one_thread_gives_the_bits_of_several(tmp_path, on_disk):
    mol = molecule()
    pairs = mol.nao * (mol.nao + 1) // 2
    integrals = np.random.default_rng(5).standard_normal((9 * GROUP + 1, pairs))
    with h5py.File(tmp_path / "cderi.h5", "w") as file:
        file["j3c"] = integrals
    c = np.random.default_rng(4).standard_normal((mol.nao, 5))
    dm = lib.tag_array(c @ c.T, mo_coeff=c, mo_occ=np.ones(5))
    matrices = []
    for threads in (1, 3):
        ours = DF(mol)
        ours._cderi = str(tmp_path / "cderi.h5") if on_disk else integrals
        with lib.with_omp_threads(threads):
            matrices.append(ours.get_jk(dm))
    np.testing.assert_array_equal(*matrices)


def test_a_file_that_is_lost_is_one_error(tmp_path):
    ours, _ = pair()
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    ours.build()
    (tmp_path / "cderi.h5").unlink()
    with pytest.raises(StorageError, match=r"cderi\.h5.*reset"):
        ours.get_jk(densities(ours.mol.nao, (), 1))


@pytest.mark.parametrize("function", ["preadv", "read_direct"])
def test_a_failure_while_reading_is_one_error(monkeypatch, tmp_path, function):
    """Of rows that are consecutive in the file, and of rows that HDF5 reads."""
    ours, _ = pair(auxbasis=MANY)
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    ours.build()
    if function == "read_direct":
        with h5py.File(tmp_path / "cderi.h5", "r+") as file:
            integrals = file["j3c"][:]
            del file["j3c"]
            file.create_dataset("j3c", data=integrals, chunks=(4, integrals.shape[1]))
    of = os if function == "preadv" else h5py.Dataset
    read, calls = getattr(of, function), []

    def failing(*arguments):
        calls.append(arguments)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        return read(*arguments)

    monkeypatch.setattr(of, function, failing)
    with pytest.raises(StorageError, match=r"Input/output error.*reset"):
        ours.get_jk(densities(ours.mol.nao, (), 1))


def test_a_file_that_was_cut_is_one_error(tmp_path):
    ours, _ = pair()
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    ours.build()
    os.truncate(tmp_path / "cderi.h5", os.path.getsize(tmp_path / "cderi.h5") - 8)
    with pytest.raises(StorageError, match=r"cderi\.h5.*reset"):
        ours.get_jk(densities(ours.mol.nao, (), 1))


def full(*_, **__):
    raise OSError(28, "No space left on device")


@pytest.mark.parametrize("saved", [True, False])
def test_a_full_disk_is_one_error_and_leaves_no_file(monkeypatch, tmp_path, saved):
    monkeypatch.setattr(lib.param, "TMPDIR", str(tmp_path))
    ours, _ = pair()
    ours.max_memory = 0
    if saved:
        ours._cderi_to_save = str(tmp_path / "cderi.h5")
    with monkeypatch.context() as patch:
        patch.setattr(os, "posix_fallocate", full)
        with pytest.raises(StorageError, match=rf"{tmp_path}.*No space left.*PYSCF_TMPDIR.*max_memory") as error:
            ours.build()
    assert len(str(error.value)) < 300
    assert list(tmp_path.iterdir()) == []
    assert ours.get_naoaux() > 0


def test_a_disk_that_fails_while_integrals_are_written(monkeypatch, tmp_path):
    write, calls = os.pwrite, iter(range(10**6))
    ours, _ = pair()
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    with h5py.File(ours._cderi_to_save, "w") as file:
        file["other"] = np.arange(5)
    size = (tmp_path / "cderi.h5").stat().st_size
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", lambda *args: full() if next(calls) == 5 else write(*args))
        with pytest.raises(StorageError, match="No space left"):
            ours.build()
    assert next(calls) > 5
    with h5py.File(ours._cderi_to_save) as file:
        assert list(file) == ["other"]
    assert (tmp_path / "cderi.h5").stat().st_size < size + 10_000


def test_a_file_of_another_kind_is_not_overwritten(tmp_path):
    ours, _ = pair()
    ours._cderi_to_save = str(tmp_path / "notes.txt")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StorageError, match=r"notes\.txt.*HDF5"):
        ours.build()
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_a_full_disk_is_one_error_with_pyscfs_integrals(monkeypatch):
    monkeypatch.setattr(df.outcore, "cholesky_eri_b", full)
    ours, _ = pair()
    ours.max_memory = 0
    monkeypatch.setattr(DF, "_why_pyscf", lambda *_: "for this test")
    with pytest.raises(StorageError, match=r"No space left.*max_memory"):
        ours.build()


def test_integrals_are_saved_where_asked_for(tmp_path):
    ours, _ = pair()
    ours._cderi_to_save = str(tmp_path / "cderi.h5")
    ours.build()
    assert (tmp_path / "cderi.h5").exists()
    assert "saved" in ours.ran_on
    again = DF(ours.mol)
    again._cderi = ours._cderi_to_save
    dm = densities(ours.mol.nao, (), 1)
    np.testing.assert_allclose(again.get_jk(dm)[1], ours.get_jk(dm)[1], rtol=0, atol=1e-12)


def test_shells_beyond_the_kernels_are_left_to_pyscf(capsys):
    mol = molecule("He 0 0 0", verbose=2)
    ours = DF(mol, {"He": [[0, [1.0, 1.0]], [8, [1.0, 1.0]]]})
    ours.build()
    assert "PySCF" in ours.ran_on and "beyond" in ours.ran_on
    assert "beyond" in capsys.readouterr().err + capsys.readouterr().out


def test_copies_pickles_and_the_way_back():
    ours, _ = pair()
    dm = densities(ours.mol.nao, (), 1)
    wanted = ours.get_jk(dm)[1]
    for copy in (ours.copy(), pickle.loads(pickle.dumps(ours)), ours.reset(), DF.of(ours), ours.undo()):
        np.testing.assert_allclose(copy.get_jk(dm)[1], wanted, rtol=0, atol=1e-9)
    assert type(ours.undo()) is df.DF
    assert not hasattr(ours.undo(), "ran_on")
    ours.reset(molecule("He 0 0 0"))
    assert ours.get_jk(np.ones((2, 2)))[1].shape == (2, 2)
