"""Pair records: s integrals made from them by hand, upper bounds against libcint, and every pair once."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto
from scipy.special import erf

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P
from trnqc.eri.shells.pairs import NEGLIGIBLE, ShellPairs, fitting_shells, functions, pairs_between, pairs_of
from trnqc.errors import MoleculeError

WATER = "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5"
# libcint's s integrals are good to this; in forty digits the formula of the records is right to 1e-16.
LIBCINT = 2e-13
# Two contractions over three primitives, one of a single primitive.
S_ONLY = [[0, [13.0, 0.02, 0.1], [1.9, 0.14, -0.3], [0.4, 0.5, 0.7]], [0, [0.12, 1.0]]]


def molecule(basis, atom=WATER, **more) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, spin=None, **more)


def boys(t: np.ndarray) -> np.ndarray:
    root = np.sqrt(np.maximum(t, 1e-14))
    return np.sqrt(np.pi) / 2 * erf(root) / root


def products(pairs: ShellPairs, n: int) -> np.ndarray:
    """Products of contraction coefficients, [contractions, rows], with COEFFICIENT's factor."""
    rows = pairs.records[n]
    factors = rows[:, CONTRACTION:].T if pairs.general else np.ones((1, len(rows)))
    return factors * rows[:, COEFFICIENT]


def s_integrals(bra: ShellPairs, i: int, ket: ShellPairs, j: int) -> np.ndarray:
    """(ab|cd) of s shells by the formula of classes.py, [bra contractions, ket contractions]."""
    zeta, eta = bra.records[i, :, None, ZETA], ket.records[j, None, :, ZETA]
    apart = bra.records[i, :, None, P : P + 3] - ket.records[j, None, :, P : P + 3]
    primitive = boys(zeta * eta / (zeta + eta) * (apart**2).sum(axis=-1)) / np.sqrt(zeta + eta)
    return products(bra, i) @ primitive @ products(ket, j).T


def places(pairs: ShellPairs, n: int) -> tuple[np.ndarray, np.ndarray]:
    """AOs of an s shell pair by its contractions, a slower than b."""
    a = pairs.ao_first[n] + np.arange(pairs.nca)
    b = pairs.ao_second[n] + np.arange(pairs.ncb)
    return np.repeat(a, len(b)), np.tile(b, len(a))


def test_s_integrals_follow_from_the_records():
    mol = molecule(S_ONLY)
    eri = mol.intor("int2e")
    for bra in pairs_of(mol):
        for ket in pairs_of(mol):
            for i in range(len(bra)):
                for j in range(len(ket)):
                    want = eri[(*(p[:, None] for p in places(bra, i)), *(p[None, :] for p in places(ket, j)))]
                    np.testing.assert_allclose(s_integrals(bra, i, ket, j), want, rtol=0, atol=LIBCINT)


def test_fitting_shells_are_pairs_with_one():
    mol, aux = molecule(S_ONLY), molecule([[0, [2.1, 0.3, 1.0], [0.6, 1.1, 0.2]]])
    from pyscf.df import incore

    want = incore.aux_e2(mol, aux)
    for bra in pairs_of(mol):
        for ket in fitting_shells(aux):
            assert (ket.second == -1).all()
            for i in range(len(bra)):
                for j in range(len(ket)):
                    mu, nu = places(bra, i)
                    block = want[mu[:, None], nu[:, None], ket.ao_first[j] + np.arange(ket.nca)]
                    np.testing.assert_allclose(s_integrals(bra, i, ket, j), block, rtol=0, atol=LIBCINT)


@pytest.mark.parametrize("cart", [False, True])
@pytest.mark.parametrize("basis", ["cc-pvtz", "ano@4s3p2d", "6-31g*"])
def test_every_pair_once_and_no_bound_too_small(basis, cart):
    mol = molecule({"O": basis if basis[0] != "a" else "ano", "H": "cc-pvdz"}, cart=cart)
    loc = mol.ao_loc_nr()
    seen = set()
    for pairs in pairs_of(mol):
        assert pairs.la >= pairs.lb
        assert (np.diff(pairs.records[..., BOUND], axis=1) <= 0).all()
        padding = np.arange(pairs.records.shape[1]) >= pairs.count[:, None]
        assert not pairs.records[padding][:, COEFFICIENT:].any()
        assert (pairs.records[padding][:, ZETA] == 1).all()
        for n, (i, j) in enumerate(zip(pairs.first.tolist(), pairs.second.tolist())):
            seen.add((max(i, j), min(i, j)))
            assert (mol.bas_angular(i), mol.bas_angular(j)) == (pairs.la, pairs.lb)
            assert (loc[i], loc[j]) == (pairs.ao_first[n], pairs.ao_second[n])
            assert loc[i + 1] - loc[i] == pairs.nca * functions(pairs.la, mol.cart)
            diagonal = np.einsum("ijij->ij", mol.intor("int2e", shls_slice=(i, i + 1, j, j + 1) * 2))
            assert np.sqrt(diagonal.max()) <= pairs.bound[n] * (1 + 1e-12)
    assert len(seen) == mol.nbas * (mol.nbas + 1) // 2 == sum(len(p) for p in pairs_of(mol))


@pytest.mark.parametrize("cart", [False, True])
@pytest.mark.parametrize("la, lb", [(0, 0), (1, 0), (2, 1), (3, 3), (4, 2)])
def test_primitive_bounds_hold_and_are_not_idle(la, lb, cart):
    basis = {"O": [[la, [1.7, 1.0]], [la, [0.2, 1.0]]], "H": [[lb, [0.9, 1.0]], [lb, [6.0, 1.0]]]}
    mol = molecule(basis, cart=cart)
    for pairs in pairs_of(mol):
        for n, (i, j) in enumerate(zip(pairs.first, pairs.second)):
            diagonal = np.einsum("ijij->ij", mol.intor("int2e", shls_slice=(i, i + 1, j, j + 1) * 2))
            exact, bound = np.sqrt(diagonal.max()), pairs.records[n, 0, BOUND]
            assert exact <= bound * (1 + 1e-12)
            # Loose by what |x^a y^b z^c| <= r^l and r_A <= r_P + |PA| give away.
            assert bound <= 12 * 4 ** (pairs.la + pairs.lb) * exact


def test_two_molecules():
    one, two = molecule("sto-3g"), molecule({"O": [[2, [0.8, 1.0]]], "H": [[0, [0.5, 1.0]]]}, atom="O 1 1 1; H 0 0 2")
    results = set()
    for pairs in pairs_between(one, two):
        a, b = (two, one) if pairs.swapped else (one, two)
        for i, j in zip(pairs.first.tolist(), pairs.second.tolist()):
            assert a.bas_angular(i) == pairs.la >= b.bas_angular(j) == pairs.lb
            results.add((j, i) if pairs.swapped else (i, j))
    assert results == {(i, j) for i in range(one.nbas) for j in range(two.nbas)}
    with pytest.raises(MoleculeError, match="cart"):
        pairs_between(one, molecule("sto-3g", cart=True))


def test_some_of_the_pairs():
    pairs = next(p for p in pairs_of(molecule("cc-pvdz")) if p.la == 1 and not p.general)
    rows = np.flatnonzero(pairs.count == pairs.count.min())[::-1]
    some = pairs.take(rows)
    assert len(some) == len(rows)
    assert some.records.shape[1] == pairs.count.min() < pairs.records.shape[1]
    np.testing.assert_array_equal(some.records, pairs.records[rows, : pairs.count.min()])
    np.testing.assert_array_equal(some.ao_second, pairs.ao_second[rows])
    assert len(pairs.take(np.zeros(0, int))) == 0


def test_far_pairs_lose_primitives_but_stay():
    mol = molecule("cc-pvdz", atom="O 0 0 0; O 0 0 9")
    kept = {p.la * 10 + p.lb: p for p in pairs_of(mol) if not p.general}
    everything = {p.la * 10 + p.lb: p for p in pairs_of(mol, cutoff=0.0) if not p.general}
    assert kept[11].count.min() >= 1
    assert kept[11].count.sum() < everything[11].count.sum()
    rows = np.arange(everything[11].records.shape[1]) < everything[11].count[:, None]
    dropped = everything[11].records[rows][:, BOUND] < NEGLIGIBLE
    assert 0 < dropped.sum() <= everything[11].count.sum() - kept[11].count.sum() + (kept[11].bound < NEGLIGIBLE).sum()


@pytest.mark.parametrize("wrong", [0.0, -1.0, np.inf])
def test_impossible_exponents_are_named(wrong):
    mol = molecule("sto-3g")
    mol._env[mol._bas[2, gto.PTR_EXP]] = wrong
    with pytest.raises(MoleculeError, match="shell 2 of O"):
        pairs_of(mol)
