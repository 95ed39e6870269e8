"""J and K against PySCF's, over bases, densities and operators."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf.scf._vhf import incore

from trnqc.eri.api import get_jk
from trnqc.eri.jk.builder import JKBuilder
from trnqc.errors import InputError, MemoryLimit

WATER = "O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5"
# s functions alone: one class of quartets.
PLAIN = "H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3"
# All integrals times density below the cutoff together.
CLOSE = 1e-10
# One d shell among s shells: a few classes.
FEW = {"O": [[2, [1.1, 0.6], [0.4, 0.5]], [0, [0.3, 1.0]]], "H": "sto-3g"}


def molecule(basis, atom=WATER, **more) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, spin=None, **more)


def density(mol: gto.Mole, *count: int, sign: int = 1, seed: int = 0) -> np.ndarray:
    nao = mol.nao_nr()
    dm = np.random.default_rng(seed).normal(size=(*count, nao, nao))
    return dm + sign * dm.swapaxes(-1, -2) if sign else dm


def matches(mol: gto.Mole, dm: np.ndarray, hermi: int = 1, omega=None, **options) -> JKBuilder:
    builder = JKBuilder(mol, omega=omega, threads=1, **options)
    for ours, theirs in zip(builder.get_jk(dm, hermi), scf.hf.get_jk(mol, dm, hermi, omega=omega)):
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)
    return builder


@pytest.mark.parametrize(
    "basis, cart",
    [
        ("sto-3g", False),
        pytest.param("def2-svp", False, marks=pytest.mark.slow),
        pytest.param(FEW, False, marks=pytest.mark.slow),
        pytest.param(FEW, True, marks=pytest.mark.slow),
        pytest.param("cc-pvdz", False, marks=pytest.mark.slow),
        pytest.param("6-31g*", True, marks=pytest.mark.slow),
        pytest.param("cc-pvtz", False, marks=pytest.mark.slow),
        pytest.param({"O": "ano@4s3p2d", "H": "ano@2s1p"}, False, marks=pytest.mark.slow),
    ],
)
def test_bases(basis, cart):
    mol = molecule(basis, cart=cart)
    matches(mol, density(mol))


@pytest.mark.parametrize("cart", [False, True])
def test_d_functions_without_pairs_of_them(cart):
    """(dd|dd) takes long to compile: the pair of two d shells is left out of the sums, on both sides."""
    mol = molecule(FEW, cart=cart)
    builder = JKBuilder(mol, threads=1)
    builder._pairs = [pairs for pairs in builder._pairs if pairs.la + pairs.lb < 4]
    assert any(cls.cartesian for cls in builder.classes()) == cart
    is_d = np.repeat([mol.bas_angular(n) == 2 for n in range(mol.nbas)], np.diff(mol.ao_loc_nr()))
    eri = mol.intor("int2e")
    eri[np.ix_(is_d, is_d)] = 0
    eri[:, :, is_d[:, None] & is_d] = 0
    dm = density(mol)
    vj, vk = builder.get_jk(dm)
    np.testing.assert_allclose(vj, np.einsum("ijkl,ji->kl", eri, dm), rtol=0, atol=CLOSE)
    np.testing.assert_allclose(vk, np.einsum("ijkl,jk->il", eri, dm), rtol=0, atol=CLOSE)


# s shells with three and one contractions, p shells with two and one.
GENERAL_S = {"O": [[0, [9.0, 0.1, 0.3, 0.0], [1.3, 0.5, -0.4, 0.1], [0.3, 0.6, 0.2, 1.0]]], "H": [[0, [1.1, 1.0]]]}
GENERAL_P = {"O": [[1, [2.0, 0.4, -0.3], [0.4, 0.7, 1.0]]], "H": [[1, [0.9, 1.0]]]}


@pytest.mark.parametrize(
    "basis",
    [GENERAL_S, GENERAL_P, pytest.param({x: GENERAL_S[x] + GENERAL_P[x] for x in ("O", "H")}, marks=pytest.mark.slow)],
    ids=["s", "p", "s and p"],
)
def test_general_contractions(basis):
    mol = molecule(basis)
    matches(mol, density(mol, 2))


@pytest.mark.parametrize(
    "atom", ["He 0 0 0", "O 0 0 0; ghost-H 0 0 1.2; H 0 0.8 -0.3", "H 0 0 0; H 0 0 0.74; H 0 0 40"]
)
def test_few_ghostly_and_distant_atoms(atom):
    mol = molecule("6-31g", atom=atom)
    matches(mol, density(mol))


@pytest.mark.parametrize("count", [(), (1,), (3,)])
@pytest.mark.parametrize("hermi, sign", [(1, 1), (2, -1), (0, 0), (0, 1), (0, -1)])
def test_densities(hermi, sign, count):
    mol = molecule("sto-3g")
    matches(mol, density(mol, *count, sign=sign), hermi)


@pytest.mark.parametrize("hermi", [0, 1, 2])
@pytest.mark.parametrize("sign", [1, -1, 0], ids=["symmetric", "antisymmetric", "general"])
@pytest.mark.parametrize("omega", [None, 0.3, -0.3])
def test_hermi_is_no_promise_about_the_density(hermi, sign, omega):
    """PySCF takes any density for any `hermi`, which only says how the triangles of K belong together."""
    mol = molecule("sto-3g") if omega is None else molecule("6-31g", PLAIN)
    matches(mol, density(mol, sign=sign), hermi, omega)
    matches(mol, np.concatenate([density(mol, 1, sign=s) for s in (1, -1, 0)]), hermi, omega)
    if omega is None:
        eri = mol.intor("int2e", aosym="s8")
        dm = density(mol, sign=sign)
        for ours, theirs in zip(get_jk(mol, dm, hermi), incore(eri, dm, hermi)):
            np.testing.assert_allclose(ours, theirs, rtol=0, atol=CLOSE)


@pytest.mark.parametrize("with_j, with_k", [(True, False), (False, True)])
def test_one_matrix_of_a_general_density(with_j, with_k):
    mol = molecule([[1, [0.9, 1.0]]], PLAIN)
    dm = density(mol, sign=0)
    ours, theirs = (jk(mol, dm, 1, with_j=with_j, with_k=with_k) for jk in (get_jk, scf.hf.get_jk))
    assert (ours[0] is None, ours[1] is None) == (not with_j, not with_k)
    np.testing.assert_allclose(ours[with_k], theirs[with_k], rtol=0, atol=CLOSE)


@pytest.mark.parametrize("hermi", [0, 1, 2])
def test_complex_densities(hermi):
    mol = molecule("sto-3g")
    dm = density(mol, 2, sign=0) + 1j * density(mol, 2, sign=0, seed=1)
    matches(mol, dm, hermi)
    matches(mol, dm + dm.conj().swapaxes(1, 2), hermi)


@pytest.mark.parametrize("size, treated", [(1e-15, 1), (1e-11, 2)])
def test_rounding_errors_make_no_second_matrix(monkeypatch, size, treated):
    """A density that is symmetric but for rounding is as quick as a symmetric one, and right in both cases."""
    seen = []
    plain = JKBuilder._halves
    monkeypatch.setattr(JKBuilder, "_halves", lambda self, dm, *rest: seen.append(len(dm)) or plain(self, dm, *rest))
    mol = molecule("sto-3g")
    dm = density(mol)
    matches(mol, dm + size * density(mol, sign=-1, seed=1), 0)
    assert seen == [treated]


def test_steps_of_a_direct_scf_count_as_symmetric(monkeypatch):
    """The rounding of whole densities is large against their difference; the screening would drop it too."""
    seen = []
    plain = JKBuilder._halves
    monkeypatch.setattr(JKBuilder, "_halves", lambda self, dm, *rest: seen.append(len(dm)) or plain(self, dm, *rest))
    mol = molecule("sto-3g")
    matches(mol, 1e-9 * density(mol) + 1e-16 * density(mol, sign=-1, seed=1))
    assert seen == [1]


def test_passes_that_memory_asks_for_change_no_bits():
    mol = molecule("sto-3g")
    dm = density(mol, 3, sign=0)
    builder = JKBuilder(mol, threads=1)
    whole = builder.get_jk(dm, 0)
    # Room for one of the six symmetric and antisymmetric parts at a time.
    mol.max_memory = 12 * 8e-6 * 49 * 1.5
    for one, all_at_once in zip(builder.get_jk(dm, 0), whole):
        np.testing.assert_array_equal(one, all_at_once)


@pytest.mark.parametrize(
    "basis, omega",
    [
        ("6-31g", 0.3),
        ("6-31g", -0.3),
        ("6-31g", 5.0),
        ([[1, [0.9, 1.0]]], -0.3),
        *(pytest.param("6-31g**", omega, marks=pytest.mark.slow) for omega in (0.3, -0.3, 5.0)),
    ],
)
def test_range_separation(basis, omega):
    mol = molecule(basis, PLAIN)
    matches(mol, density(mol), omega=omega)
    with mol.with_range_coulomb(omega):
        matches(mol, density(mol), omega=None)


def test_what_is_not_wanted_is_none():
    mol = molecule("6-31g", PLAIN)
    dm = density(mol)
    vj, vk = scf.hf.get_jk(mol, dm)
    only_j, no_k = get_jk(mol, dm, with_k=False)
    no_j, only_k = get_jk(mol, dm, with_j=False)
    assert no_j is no_k is None
    np.testing.assert_allclose(only_j, vj, rtol=0, atol=CLOSE)
    np.testing.assert_allclose(only_k, vk, rtol=0, atol=CLOSE)


def test_threads_change_nothing_but_the_order_of_sums():
    mol = molecule("6-31g", atom="O 0 0 0.1; H 0 0.75 -0.45; H 0 -0.7 -0.5; O 3 0 0; H 3 0.8 0.5; H 3 -0.8 0.5")
    dm = density(mol)
    one, two = (JKBuilder(mol, threads=n) for n in (1, 2))
    for ours, theirs in zip(two.get_jk(dm), one.get_jk(dm)):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=1e-13 * np.abs(theirs).max())
    assert two.ran_on.endswith("2 threads")
    assert one.ran_on.endswith("1 thread")


def test_a_small_change_of_density_is_cheap_and_right():
    """Builds add up: what a direct SCF does from step to step."""
    mol = molecule("6-31g")
    first, change = density(mol), 1e-4 * density(mol, seed=1)
    builder = JKBuilder(mol, threads=1)
    for total, a, b in zip(*(builder.get_jk(dm) for dm in (first + change, first, change))):
        np.testing.assert_allclose(a + b, total, rtol=0, atol=CLOSE)


def test_a_coarse_cutoff_bounds_the_error():
    mol = molecule("sto-3g", atom="".join(f"H 0 0 {1.5 * n};" for n in range(12)))
    dm = density(mol)
    exact = scf.hf.get_jk(mol, dm)
    for cutoff in (1e-5, 1e-9):
        worst = max(np.abs(o - e).max() for o, e in zip(JKBuilder(mol, cutoff=cutoff, threads=1).get_jk(dm), exact))
        assert worst <= 12**2 * cutoff
    assert worst > 0


def test_an_empty_density():
    mol = molecule("sto-3g")
    for hermi in (0, 1, 2):
        for matrix in get_jk(mol, np.zeros((2, 7, 7)), hermi):
            assert matrix.shape == (2, 7, 7)
            assert not matrix.any()


def test_what_cannot_be_a_density():
    mol = molecule("sto-3g")
    good = density(mol)
    bad = good.copy()
    bad[2, 3] = np.nan
    builder = JKBuilder(mol, threads=1)
    for dm, hermi, match in [
        (good[:3], 1, r"\[7, 7\]"),
        (bad, 1, "not finite"),
        (good.astype(object), 1, "real or complex"),
        (good, 3, "hermi"),
    ]:
        with pytest.raises(InputError, match=match):
            builder.get_jk(dm, hermi)
    mol.max_memory = 1e-3
    with pytest.raises(MemoryLimit, match="max_memory"):
        builder.get_jk(good)


def test_backends_by_name():
    mol = molecule("sto-3g")
    with pytest.raises(InputError, match="auto or one of cpu, cuda"):
        get_jk(mol, density(mol), backend="abacus")
