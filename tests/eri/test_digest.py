"""Screening, batching and digestion by themselves: a kernel that looks its integrals up stands in for the real one."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from pyscf import gto

from trnqc import jit
from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, QuartetClass
from trnqc.eri.compiled import programs as library
from trnqc.eri.jk import builder as jk
from trnqc.eri.jk.batch import Batch, driver
from trnqc.eri.jk.layout import block_maxima, layout_of
from trnqc.eri.jk.run import JKPass, ThreadBuffers
from trnqc.eri.jk.screening import _table
from trnqc.eri.jk.tasks import tasks_of
from trnqc.eri.kernels.parameters import parameters
from trnqc.eri.shells.pairs import ShellPairs, pair_orbitals, pairs_of
from trnqc.gen import Var, run
from trnqc.gen import statements as st
from trnqc.gen.values import cast

# Two contractions of s on the oxygen, s and p elsewhere; in the second d and p shells of one contraction.
GENERAL = {"O": [[0, [5.0, 0.3, 0.1], [0.6, 0.7, -0.4]], [1, [0.7, 1.0]]], "H": [[0, [0.8, 1.0]]]}
WITH_D = {"O": [[2, [0.7, 1.0]]], "H": [[1, [0.8, 1.0]]]}
# Two contractions of s beside p: half as many classes as the first.
FEW = {"O": GENERAL["O"][:1], "H": [[1, [0.8, 1.0]]]}
# Correctness does not need the optimiser.
QUICK = ("-O0",)


def looked_up(cls: QuartetClass) -> st.Function:
    """Instead of the kernel: integral = COEFFICIENT of the ket times an element of the array `boys`.

    ZETA of a bra is where its integrals begin, that of a ket is added, and so are row and column.
    """
    p = parameters(cls)
    ab, cd, i, j = (Var(n, "i64") for n in ("ab", "cd", "i", "j"))
    na, nb, nc, nd = cls.extents
    bra, ket = cast(p.bra[0, ZETA], "i64"), cast(p.ket[0, ZETA], "i64")
    stride = cast(p.omega, "i64")
    at = (bra + ab * (na * nb) + i) * stride + ket + cd * (nc * nd) + j
    table = replace(p.boys, shape=(None,))
    body = st.store(p.out[ab, cd, i, j], table[at] * p.ket[0, COEFFICIENT])
    loops = st.loop(ab, p.n_ab, st.loop(cd, p.n_cd, st.loop(i, na * nb, st.loop(j, nc * nd, body))))
    params = tuple(table if q == p.boys else q for q in p.all)
    return st.Function(cls.name, params, st.block(loops))


@cache
def compiled(batch: Batch, lanes: int):
    function = driver(batch, looked_up(batch.cls))
    return getattr(jit.library(jit.Recipe.of(function, name="digest-test"), lanes, QUICK), function.name)


def pairs_with_places(mol: gto.Mole, bounds: np.ndarray) -> list[ShellPairs]:
    """The molecule's pairs, whose only row says where they stand among all pair functions; Schwarz bounds as given."""
    parts, begin = [], 0
    for pairs in pairs_of(mol):
        records = np.zeros((len(pairs), 1, pairs.records.shape[2]))
        na, nb = pairs.extents
        size = pairs.contractions * na * nb
        records[:, 0, ZETA] = begin + size * np.arange(len(pairs))
        records[:, 0, COEFFICIENT] = records[:, 0, BOUND] = 1.0
        records[:, 0, CONTRACTION:] = 1.0
        begin += size * len(pairs)
        bounded = replace(
            pairs, records=records, count=np.ones(len(pairs), int), bound=bounds[pairs.first, pairs.second]
        )
        parts.append(bounded.take(np.argsort(-bounded.bound, kind="stable")))
    return parts


def symmetric_tensor(n: int, rng) -> np.ndarray:
    """Random numbers with the eight-fold symmetry of integrals."""
    g = rng.normal(size=(n, n, n, n))
    g = g + g.transpose(1, 0, 2, 3)
    g = g + g.transpose(0, 1, 3, 2)
    return g + g.transpose(2, 3, 0, 1)


def passes(mol: gto.Mole, bounds: np.ndarray, dm: np.ndarray, cutoff: float) -> np.ndarray:
    """The test of batch.py for every four shells, as a mask over orbitals."""
    d = block_maxima(mol, dm)
    n = np.arange(mol.nbas)
    i, j, k, l = n[:, None, None, None], n[:, None, None], n[:, None], n
    most = np.maximum.reduce(
        [
            4 * d[i, j] + 0 * k * l,
            4 * d[k, l] + 0 * i * j,
            *(d[x, y] + 0 * (i + j + k + l) for x in (i, j) for y in (k, l)),
        ]
    )
    kept = bounds[i, j] * bounds[k, l] * np.minimum(most, 1) >= cutoff
    shell = np.repeat(n, np.diff(mol.ao_loc_nr()))
    return kept[np.ix_(shell, shell, shell, shell)]


def build(mol, dm, eri, bounds, cutoff, with_j, with_k, lanes):
    """J and K by the drivers with looked up integrals; lanes None: by the interpreter, with four."""
    width = lanes or 4
    builder = jk.JKBuilder(mol, cutoff=cutoff, threads=1)
    parts, at = [], 0
    for pairs in pairs_with_places(mol, bounds):
        parts.append(_table(pairs, layout_of(mol), at))
        at += parts[-1].elements
    # The table of integrals in the order in which `pairs_with_places` numbers pair functions.
    where = [pair_orbitals(pairs) for pairs in pairs_of(mol)]
    i, j = (np.concatenate([w[x].ravel() for w in where]) for x in (0, 1))
    table = np.ascontiguousarray(eri[i[:, None], j[:, None], i, j])
    orbitals = [pair_orbitals(t.pairs) for t in parts]
    flat = np.concatenate([dm[:, i, j].reshape(len(dm), -1) for i, j in orbitals], axis=1)
    options = {"with_j": with_j, "with_k": with_k, "cutoff": cutoff, "omega": float(len(table))}
    work = JKPass.of(mol, builder.layout, dm, flat, **options)
    vj, vk = np.zeros_like(work.pairs), np.zeros_like(work.blocks)
    for task in tasks_of(parts, builder.operator.name):
        batch = Batch(task.cls, with_j, with_k)
        inputs = work.arguments(task, ThreadBuffers(), vj, vk)
        inputs["boys"] = table.reshape(-1)
        if lanes is None:
            inputs = {n: a.reshape(-1, width) if batch.arrays[n].lanes else a for n, a in inputs.items()}
            run(driver(batch, looked_up(task.cls)), inputs, lanes=width, groups=(task.begin, task.end))
        else:
            compiled(batch, width)(**inputs, groups_begin=task.begin, groups_end=task.end)
    half = np.zeros_like(dm)
    for t, (i, j) in zip(parts, orbitals):
        half[:, i, j] = vj[:, t.at : t.at + t.elements].reshape(-1, *i.shape)
    return 2 * (half + half.transpose(0, 2, 1)), builder.layout.matrices(vk)


@pytest.fixture
def width(monkeypatch):
    """Sets the lanes that tables and buffers are made for."""
    return lambda lanes: monkeypatch.setattr(library, "lanes", lambda: lanes)


@pytest.mark.parametrize("basis, densities, lanes", [(FEW, 1, 1), (FEW, 1, 4), (GENERAL, 3, 8), (WITH_D, 1, 8)])
def test_every_image_of_every_integral(width, basis, densities, lanes):
    width(lanes)
    mol = gto.M(atom="O 0 0 0; H 0 1 0; H 1 0 0", basis=basis, verbose=0)
    rng = np.random.default_rng(densities)
    n = mol.nao_nr()
    dm = rng.normal(size=(densities, n, n))
    dm = dm + dm.transpose(0, 2, 1)
    eri, ones = symmetric_tensor(n, rng), np.ones((mol.nbas, mol.nbas))
    vj, half = build(mol, dm, eri, ones, 0.0, True, True, lanes)
    np.testing.assert_allclose(vj, np.einsum("ijkl,nji->nkl", eri, dm), rtol=0, atol=1e-10)
    vk = half + half.transpose(0, 2, 1)
    np.testing.assert_allclose(vk, np.einsum("ijkl,njk->nil", eri, dm), rtol=0, atol=1e-10)


@pytest.mark.parametrize("with_j, with_k", [(True, False), (False, True)])
def test_one_of_both_and_antisymmetric_densities(width, with_j, with_k):
    width(8)
    mol = gto.M(atom="O 0 0 0; H 0 1 0; H 1 0 0", basis=FEW, verbose=0)
    rng = np.random.default_rng(5)
    n = mol.nao_nr()
    dm = rng.normal(size=(1, n, n))
    sign = 1 if with_j else -1
    dm = dm + sign * dm.transpose(0, 2, 1)
    eri = symmetric_tensor(n, rng)
    vj, half = build(mol, dm, eri, np.ones((mol.nbas, mol.nbas)), 0.0, with_j, with_k, 8)
    if with_j:
        np.testing.assert_allclose(vj, np.einsum("ijkl,nji->nkl", eri, dm), rtol=0, atol=1e-10)
        assert not half.any()
    else:
        vk = half - half.transpose(0, 2, 1)
        np.testing.assert_allclose(vk, np.einsum("ijkl,njk->nil", eri, dm), rtol=0, atol=1e-10)
        assert not vj.any()


@pytest.mark.parametrize("seed", [1, 2])
def test_what_is_left_out_is_what_the_test_says(width, seed):
    width(4)
    mol = gto.M(atom="O 0 0 0; H 0 1 0; H 1 0 0; H 1 1 1; H 2 0 1", basis="sto-3g", verbose=0)
    rng = np.random.default_rng(seed)
    n = mol.nao_nr()
    dm = rng.normal(size=(1, n, n)) * 10.0 ** rng.uniform(-4, 0, (n, n))
    dm = dm + dm.transpose(0, 2, 1)
    bounds = 10.0 ** rng.uniform(-3, 0, (mol.nbas, mol.nbas))
    bounds = np.minimum(bounds, bounds.T)
    cutoff = 3e-4
    kept = passes(mol, bounds, dm, cutoff)
    assert 0.1 < kept.mean() < 0.9
    eri = symmetric_tensor(n, rng)
    vj, half = build(mol, dm, eri, bounds, cutoff, True, True, 4)
    eri = eri * kept
    np.testing.assert_allclose(vj, np.einsum("ijkl,nji->nkl", eri, dm), rtol=0, atol=1e-10)
    vk = half + half.transpose(0, 2, 1)
    np.testing.assert_allclose(vk, np.einsum("ijkl,njk->nil", eri, dm), rtol=0, atol=1e-10)


def test_the_interpreter_agrees(width):
    width(4)
    mol = gto.M(atom="O 0 0 0; H 0 1 0", basis=FEW, spin=1, verbose=0)
    rng = np.random.default_rng(3)
    n = mol.nao_nr()
    dm = rng.normal(size=(1, n, n))
    dm = dm + dm.transpose(0, 2, 1)
    eri, ones = symmetric_tensor(n, rng), np.ones((mol.nbas, mol.nbas))
    for ours, theirs in zip(*(build(mol, dm, eri, ones, 0.0, True, True, lanes) for lanes in (4, None))):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-12)
