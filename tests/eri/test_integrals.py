"""Integral arrays against libcint's through PySCF: values, layouts, slices, operators, and what is refused."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import df, gto

from trnqc.eri.integrals import int2c2e, int2e, int3c2e
from trnqc.errors import InputError, UnsupportedClass

# Of an integral of order one; larger ones have as many correct digits.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}
WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
WATERS = WATER + "; O 3 0 0; H 3 0.8 0.5; H 3 -0.8 0.5"
# Two kinds of s shells with two contractions that share primitives, a contracted p.
GENERAL = {
    "O": [
        [0, [50.0, 0.1, -0.02], [9.0, 0.5, -0.1], [2.0, 0.6, 0.4], [0.4, 0.0, 0.7]],
        [1, [8.0, 0.2, 0.1], [1.5, 0.6, -0.3], [0.3, 0.4, 0.9]],
    ],
    "H": [[0, [4.0, 0.3, 0.1], [0.7, 0.6, 0.9]], [1, [0.8, 1.0]]],
}
# The same and one d shell: its kernels take their time to compile.
GENERAL_D = GENERAL | {"O": [*GENERAL["O"], [2, [1.1, 1.0]]]}
# One contraction and one d shell among few classes.
FEW = {"O": [[0, [2.0, 0.4], [0.5, 0.7]], [2, [1.1, 1.0]]], "H": [[0, [0.7, 1.0]]]}
# Fitting functions, one shell of each kind.
FITTING = [[0, [3.0, 0.4], [0.9, 0.7]], [0, [0.3, 1.0]], [1, [0.8, 1.0]], [2, [1.2, 1.0]]]


def molecule(basis="6-31g", cart=False, atom=WATER, omega=0.0):
    mol = gto.M(atom=atom, basis=basis, cart=cart, verbose=0)
    mol.omega = omega
    return mol


MOLECULES = {
    "segmented": molecule(),
    "general": molecule(GENERAL),
    "d": molecule(FEW),
    "Cartesian": molecule(FEW, cart=True),
    "one shell": molecule([[1, [0.7, 1.0]]], atom="He 0 0 0"),
    "coincident": molecule("sto-3g", atom="He 0 0 0; ghost-He 0 0 0; H 0 0 40; H 0 0 40.7"),
    "general with d": molecule(GENERAL_D),
    "general with Cartesian d": molecule(GENERAL_D, cart=True),
}
QUICK = ("segmented", "general", "one shell", "coincident")
SLOW = ("general with d", "general with Cartesian d")


def molecules(*quick: str):
    """Parameters of a test: names of molecules."""
    return pytest.mark.parametrize("name", [*quick, *(pytest.param(name, marks=pytest.mark.slow) for name in SLOW)])


def fitting(mol: gto.Mole) -> gto.Mole:
    return gto.M(atom=mol.atom, basis=FITTING, cart=mol.cart, verbose=0)


@pytest.mark.parametrize("aosym", ["s1", "s2ij", "s2kl", "s4", "s8"])
@molecules(*QUICK)
def test_four_centres(name, aosym):
    mol = MOLECULES[name]
    ours, theirs = int2e(mol, aosym=aosym), mol.intor("int2e", aosym=aosym)
    assert ours.shape == theirs.shape and ours.strides == theirs.strides
    np.testing.assert_allclose(ours, theirs, **CLOSE)


# All kinds of quartets of s and d shells but (dd|dd), which takes long to compile; bra and ket either way.
@pytest.mark.parametrize(
    "shells", [(0, 2, 0, 2, 0, 2, 2, 4), (2, 4, 2, 4, 0, 2, 0, 2), (1, 2, 2, 4, 2, 4, 1, 2), (0, 1, 1, 2, 1, 2, 2, 4)]
)
@pytest.mark.parametrize("name", ["d", "Cartesian"])
def test_four_centres_of_d_functions(name, shells):
    mol = MOLECULES[name]
    ours, theirs = int2e(mol, shells), mol.intor("int2e", shls_slice=shells)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("aosym", ["s1", "s2ij"])
@molecules(*QUICK, "d", "Cartesian")
def test_three_centres(name, aosym):
    mol = MOLECULES[name]
    aux = fitting(mol)
    ours, theirs = int3c2e(mol, aux, aosym), df.incore.aux_e2(mol, aux, aosym=aosym)
    assert ours.shape == theirs.shape and ours.strides == theirs.strides
    np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("name", [*QUICK, "Cartesian"])
def test_two_centres(name):
    aux = fitting(MOLECULES[name])
    np.testing.assert_allclose(int2c2e(aux), aux.intor("int2c2e"), **CLOSE)


@pytest.mark.parametrize("shells", [(0, 2, 1, 4, 0, 3, 2, 5), (1, 3, 1, 3, 0, 5, 0, 5), (2, 2, 0, 1), (0, 3, 2, 3)])
def test_slices_of_four_centres(shells):
    mol = MOLECULES["general"]
    ours, theirs = int2e(mol, shells), mol.intor("int2e", shls_slice=shells)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize(
    ("aosym", "shells"),
    [
        ("s2ij", (1, 3, 1, 3)),
        ("s2kl", (0, 2, 1, 3, 2, 4, 2, 4)),
        ("s4", (1, 4, 1, 4, 0, 2, 0, 2)),
        ("s8", (1, 4, 1, 4, 1, 4, 1, 4)),
    ],
)
def test_packed_slices_of_four_centres(aosym, shells):
    mol = MOLECULES["general"]
    ours = int2e(mol, shells, aosym)
    ranges = list(zip(shells[::2], shells[1::2]))
    i, j, k, l = ranges + [(0, mol.nbas)] * (4 - len(ranges))
    square = mol.intor("int2e", shls_slice=(*i, *j, *k, *l))
    low = [np.tril_indices(n) for n in square.shape[::2]]
    if aosym in ("s2ij", "s4", "s8"):
        square = square[low[0]]
    if aosym in ("s2kl", "s4", "s8"):
        square = square[..., low[1][0], low[1][1]]
    if aosym == "s8":
        square = square[np.tril_indices(len(square))]
    np.testing.assert_allclose(ours, square, **CLOSE)


@pytest.mark.parametrize(
    ("aosym", "shells"),
    [
        ("s1", (0, 2, 1, 4, 2, 5)),
        ("s1", (1, 3, 1, 3, 0, 7)),
        ("s1", (2, 2, 0, 3, 0, 2)),
        ("s2ij", (1, 3, 0, 3, 2, 7)),
        ("s2ij", (0, 5, 0, 5, 4, 4)),
    ],
)
def test_slices_of_three_centres(aosym, shells):
    mol = MOLECULES["general"]
    aux = fitting(mol)
    ours, theirs = int3c2e(mol, aux, aosym, shells), df.incore.aux_e2(mol, aux, aosym=aosym, shls_slice=shells)
    assert ours.shape == theirs.shape
    np.testing.assert_allclose(ours, theirs, **CLOSE)


@pytest.mark.parametrize("omega", [0.3, -0.3])
@pytest.mark.parametrize("source", ["mol", "argument"])
def test_range_separation(omega, source):
    mol, aux = (molecule(b, atom="H 0 0 0; H 0.1 0 0.74", omega=omega) for b in ("6-31g", FITTING[:-1]))
    wanted = mol.intor("int2e"), df.incore.aux_e2(mol, aux), aux.intor("int2c2e")
    if source == "argument":
        mol.omega = aux.omega = 0.0
    word = {} if source == "mol" else {"omega": omega}
    ours = int2e(mol, **word), int3c2e(mol, aux, **word), int2c2e(aux, **word)
    for one, other in zip(ours, wanted):
        np.testing.assert_allclose(one, other, **CLOSE)


def test_an_argument_overrules_the_molecule():
    mol = molecule("sto-3g", omega=0.4)
    plain = molecule("sto-3g")
    np.testing.assert_allclose(int2e(mol, omega=0.0), plain.intor("int2e"), **CLOSE)


@pytest.mark.parametrize(
    "l, cart",
    [
        pytest.param(l, cart, marks=[] if (l, cart) in ((3, True), (4, False)) else [pytest.mark.slow])
        for l in (3, 4, 5, 6)
        for cart in (False, True)
    ],
)
def test_high_fitting_functions(l, cart):
    mol = gto.M(atom="N 0 0 0; H 0.3 0.8 0.6", basis="6-31g", cart=cart, spin=None, verbose=0)
    basis = [[l, [1.4, 0.6], [0.6, 0.5]], [l, [0.5, 1.0]]]
    aux = gto.M(atom="N 0 0 0; H 0.3 0.8 0.6", basis=basis, cart=cart, spin=None, verbose=0)
    np.testing.assert_allclose(int3c2e(mol, aux), df.incore.aux_e2(mol, aux), **CLOSE)
    np.testing.assert_allclose(int2c2e(aux), aux.intor("int2c2e"), **CLOSE)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_threads_share_the_work(threads):
    mol, aux = (molecule(b, atom=WATERS) for b in ("6-31g", FITTING))
    np.testing.assert_allclose(int3c2e(mol, aux, threads=threads), df.incore.aux_e2(mol, aux), **CLOSE)


def test_far_pairs_are_zero_where_out_held_something():
    mol = molecule("6-31g", atom="He 0 0 0; He 0 0 30")
    aux = molecule("weigend", atom="He 0 0 0; He 0 0 30")
    out = np.full((aux.nao, mol.nao * (mol.nao + 1) // 2), 7.0)
    ours = int3c2e(mol, aux, "s2ij", out=out)
    assert np.shares_memory(ours, out) and (ours == 0).any()
    np.testing.assert_allclose(ours, df.incore.aux_e2(mol, aux, aosym="s2ij"), **CLOSE)


def test_a_buffer_of_any_shape_is_used():
    mol = molecule("sto-3g")
    out = np.ones(mol.nao**4 + 5)
    np.testing.assert_allclose(int2e(mol, out=out), mol.intor("int2e"), **CLOSE)
    assert (out[-5:] == 1).all()
    np.testing.assert_allclose(out[:-5], mol.intor("int2e").ravel(), **CLOSE)


REFUSED = {
    "aosym of int2e is": lambda mol: int2e(mol, aosym="s3"),
    "s1 or s2ij": lambda mol: int3c2e(mol, mol, "s8"),
    "packs ij": lambda mol: int2e(mol, (0, 1, 0, 2), "s4"),
    "packs ij with kl": lambda mol: int2e(mol, (0, 1, 0, 1, 0, 2, 0, 2), "s8"),
    "not a range": lambda mol: int2e(mol, (0, 99)),
    "pairs of shell numbers": lambda mol: int2e(mol, (0, 1, 2)),
    "from 0 to": lambda mol: int3c2e(mol, mol, "s2ij", (0, 2, 1, 2, 0, 1)),
    "at least": lambda mol: int2e(mol, out=np.zeros(3)),
    "float64": lambda mol: int2e(mol, out=np.zeros(10**4, np.float32)),
    "found MaskedArray": lambda mol: int2e(mol, out=np.ma.zeros(10**5)),
    "whole numbers": lambda mol: int2e(mol, (0.5, 1)),
    "omega is a finite number": lambda mol: int2e(mol, omega=float("nan")),
    "contiguous": lambda mol: int2e(mol, out=np.zeros(10**5)[::2]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_requests_that_make_no_sense(message):
    with pytest.raises(InputError, match=message):
        REFUSED[message](MOLECULES["segmented"])


def test_limits_are_said():
    aux = gto.M(atom="He 0 0 0", basis=[[8, [1.0, 1.0]]], verbose=0)
    with pytest.raises(UnsupportedClass, match="beyond"):
        int2c2e(aux)
    with pytest.raises(UnsupportedClass, match="one kind of functions"):
        int3c2e(MOLECULES["segmented"], MOLECULES["Cartesian"])
