"""PySCF's mean-field objects with our integrals: the same numbers through every door of such an object."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys

import numpy as np
import pytest
from pyscf import ao2mo, dft, gto, lib, scf
from pyscf.pbc import gto as pbc_gto
from pyscf.pbc import scf as pbc_scf

import trnqc
from trnqc.eri.jk.builder import JKBuilder
from trnqc.errors import InputError, MoleculeError, UnsupportedError
from trnqc.pyscf import accelerate as module
from trnqc.pyscf import coulomb_exchange

# s functions alone: one class of quartets, so that most tests compile one kernel.
PLAIN = "H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3"
RADICAL = "H 0 0 0; H 0 0.1 0.8; H 0.3 1.2 0.4"
WATER = "O 0 0.1 -0.2; H 0.76 0.6 -0.3; H -0.75 0.55 -0.1"
# s and d: a few classes without p.
POLARISED = {"H": [[0, [1.3, 0.7], [0.3, 0.5]], [2, [0.9, 1.0]]], "He": [[0, [2.4, 0.6], [0.6, 0.5]]]}
GENERAL = {
    "H": [[0, [4.0, 0.1, -0.2], [1.1, 0.5, 0.3], [0.3, 0.4, 0.9]]],
    "He": [[0, [6.0, 0.2, 0.3], [1.5, 0.6, -0.4]], [0, [0.4, 1.0]]],
}
# Hartree; what two converged calculations may differ by.
SAME = 1e-8


def molecule(atom: str = PLAIN, basis="6-31g", **options) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, **options)


def direct(mf):
    """Made to compute integrals anew in each cycle, however small the molecule is."""
    mf.max_memory = 1
    return mf.set(conv_tol=1e-11)


def coarse(mf):
    mf.grids.level = 0
    return mf


KINDS = {
    "RHF": lambda: scf.RHF(molecule()),
    "RHF, p": lambda: scf.RHF(molecule(WATER)),
    "RHF, symmetry": lambda: scf.RHF(molecule("H 0 0 0; H 0 0 0.74", symmetry=True)),
    "RHF, Cartesian d": lambda: scf.RHF(molecule(basis=POLARISED, cart=True)),
    "RHF, spherical d": lambda: scf.RHF(molecule(basis=POLARISED)),
    "RHF, general contraction": lambda: scf.RHF(molecule(basis=GENERAL)),
    "RHF, core potential": lambda: scf.RHF(molecule("Na 0 0 0; H 0 0 1.9", "lanl2dz", ecp={"Na": "lanl2dz"})),
    "RHF, spin-free X2C": lambda: scf.RHF(molecule()).x2c(),
    "RHF, solvent": lambda: scf.RHF(molecule()).PCM(),
    "UHF": lambda: scf.UHF(molecule(RADICAL, spin=1)),
    "ROHF": lambda: scf.ROHF(molecule(RADICAL, spin=1)),
    "RKS, no exchange": lambda: coarse(dft.RKS(molecule(), xc="pbe")),
    "RKS, PBE0": lambda: coarse(dft.RKS(molecule(), xc="pbe0")),
    "RKS, long-range corrected": lambda: coarse(dft.RKS(molecule(), xc="camb3lyp")),
    "RKS, screened": lambda: coarse(dft.RKS(molecule(), xc="hse06")),
    "UKS, long-range corrected": lambda: coarse(dft.UKS(molecule(RADICAL, spin=1), xc="wb97x")),
    "ROKS": lambda: coarse(dft.ROKS(molecule(RADICAL, spin=1), xc="b3lyp")),
}


# The door is the same for all classes, and those with d take their time to compile.
SLOW = ("RHF, Cartesian d", "RHF, spherical d")


@pytest.mark.parametrize("kind", [pytest.param(k, marks=[pytest.mark.slow] * (k in SLOW)) for k in KINDS])
def test_direct_energies(kind):
    theirs, ours = direct(KINDS[kind]()), trnqc.accelerate(direct(KINDS[kind]()))
    assert isinstance(ours, type(theirs))
    assert ours.kernel() == pytest.approx(theirs.kernel(), abs=SAME)
    assert ours.converged
    assert ours._eri is None


@pytest.mark.parametrize("kind", ["RHF", "UHF", "RHF, p", "RHF, general contraction"])
def test_energies_with_all_integrals_in_memory(kind):
    theirs, ours = KINDS[kind](), trnqc.accelerate(KINDS[kind]())
    assert ours.kernel() == pytest.approx(theirs.kernel(), abs=SAME)
    np.testing.assert_allclose(ours._eri, theirs._eri, rtol=0, atol=1e-12)
    assert "memory" in ours.ran_on


def test_density_fitting():
    theirs = scf.RHF(molecule()).density_fit(auxbasis="weigend")
    expected = theirs.kernel()
    ours = trnqc.accelerate(scf.RHF(molecule()).density_fit(auxbasis="weigend"))
    assert ours.kernel() == pytest.approx(expected, abs=SAME)
    after = trnqc.accelerate(scf.RHF(molecule())).density_fit(auxbasis="weigend")
    assert after.kernel() == pytest.approx(expected, abs=SAME)
    assert "generated" in ours.ran_on
    assert type(ours.undo()) is type(theirs)
    assert type(ours.undo().with_df) is type(theirs.with_df)
    np.testing.assert_allclose(ours.nuc_grad_method().kernel(), theirs.nuc_grad_method().kernel(), rtol=0, atol=1e-6)


def test_density_fitting_with_range_separation():
    mf = coarse(dft.RKS(molecule(), xc="camb3lyp")).density_fit(auxbasis="weigend").set(conv_tol=1e-11)
    assert trnqc.accelerate(mf).kernel() == pytest.approx(mf.kernel(), abs=SAME)


def test_coulomb_alone_is_fitted():
    dm = scf.RHF(molecule()).get_init_guess()
    theirs = direct(scf.RHF(molecule()).density_fit(auxbasis="weigend", only_dfj=True))
    ours = trnqc.accelerate(direct(scf.RHF(molecule()).density_fit(auxbasis="weigend", only_dfj=True)))
    for mine, pyscfs in zip(ours.get_jk(dm=dm), theirs.get_jk(dm=dm)):
        np.testing.assert_allclose(mine, pyscfs, rtol=0, atol=1e-9)


@pytest.mark.parametrize("omega", [None, 0.0, 0.3, -0.3])
@pytest.mark.parametrize("shape", [(), (1,), (2, 3)], ids=str)
@pytest.mark.parametrize("hermi", [0, 1, 2])
def test_matrices(omega, shape, hermi):
    mol = molecule()
    dm = np.random.default_rng(3).standard_normal((*shape, mol.nao, mol.nao))
    if hermi:
        dm = dm + (-1) ** (hermi + 1) * dm.swapaxes(-1, -2)
    theirs, ours = direct(scf.RHF(mol)), trnqc.accelerate(direct(scf.RHF(mol)))
    vj, vk = theirs.get_jk(mol, dm, hermi, omega=omega)
    np.testing.assert_allclose(ours.get_j(mol, dm, hermi, omega=omega), vj, rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.get_k(mol, dm, hermi, omega=omega), vk, rtol=0, atol=1e-9)
    mine = ours.get_jk(mol, dm, hermi, omega=omega)
    np.testing.assert_allclose(mine, (vj, vk), rtol=0, atol=1e-9)


def test_complex_density():
    mol = molecule()
    rng = np.random.default_rng(4)
    dm = rng.standard_normal((mol.nao, mol.nao)) + 1j * rng.standard_normal((mol.nao, mol.nao))
    theirs, ours = direct(scf.RHF(mol)), trnqc.accelerate(direct(scf.RHF(mol)))
    np.testing.assert_allclose(ours.get_jk(mol, dm, 0), theirs.get_jk(mol, dm, 0), rtol=0, atol=1e-9)


def test_the_molecules_own_omega_counts():
    mol = molecule()
    dm = scf.RHF(mol).get_init_guess()
    ours = trnqc.accelerate(direct(scf.RHF(mol)))
    full = ours.get_k(mol, dm)
    with mol.with_range_coulomb(0.4):
        np.testing.assert_allclose(ours.get_k(mol, dm), scf.RHF(mol).get_k(mol, dm, omega=0.4), rtol=0, atol=1e-9)
    np.testing.assert_allclose(ours.get_k(mol, dm), full, rtol=0, atol=1e-13)


def test_increments_are_as_good_as_whole_densities():
    mol = molecule()
    mf = trnqc.accelerate(direct(scf.RHF(mol)))
    rng = np.random.default_rng(5)
    dm = mf.get_init_guess()
    veff = mf.get_veff(mol, dm)
    for size in (1e-2, 1e-5, 1e-9):
        step = rng.standard_normal(dm.shape) * size
        new = dm + step + step.T
        veff = mf.get_veff(mol, new, dm, veff)
        dm = new
    np.testing.assert_allclose(veff, scf.RHF(mol).get_veff(mol, dm), rtol=0, atol=1e-9)


def test_a_new_object_shares_the_state_of_the_old():
    plain = direct(scf.RHF(molecule())).set(level_shift=0.2)
    plain.kernel()
    ours = trnqc.accelerate(plain)
    assert ours is not plain
    assert ours.mo_coeff is plain.mo_coeff
    assert ours.level_shift == 0.2
    assert "RHF" in type(ours).__name__
    back = ours.undo()
    assert type(back) is type(plain)
    assert back.__dict__.keys() == plain.__dict__.keys()
    assert type(plain) is scf.hf.RHF


def test_twice_is_once():
    ours = trnqc.accelerate(trnqc.accelerate(scf.RHF(molecule())))
    assert type(ours.undo()) is scf.hf.RHF


def test_conversions_keep_the_layer():
    ours = trnqc.accelerate(direct(scf.RHF(molecule())))
    energy = ours.kernel()
    unrestricted = ours.to_uhf()
    assert isinstance(unrestricted, scf.uhf.UHF)
    assert isinstance(unrestricted, module._Accelerated)
    assert unrestricted.kernel() == pytest.approx(energy, abs=SAME)
    assert ours.to_ks("hf").kernel() == pytest.approx(energy, abs=1e-6)
    assert isinstance(ours.to_ks("pbe").to_hf(), module._Accelerated)
    for other in (ours.to_ghf(), ours.to_gks("hf")):
        assert not isinstance(other, module._Accelerated)
        assert isinstance(other, scf.ghf.GHF)
    assert ours.x2c().PCM().kernel() == pytest.approx(direct(scf.RHF(molecule())).x2c().PCM().kernel(), abs=SAME)
    second_order = ours.newton()
    assert second_order.kernel() == pytest.approx(energy, abs=SAME)
    assert type(second_order.undo()._scf) is scf.hf.RHF


@pytest.mark.parametrize("through", ["memory", "direct", "fitted"])
@pytest.mark.parametrize("hermi", [0, 1, 2])
def test_matrices_of_densities_without_symmetry(through, hermi):
    mol = molecule(RADICAL, spin=1)
    theirs = {"memory": lambda mf: mf, "direct": direct, "fitted": lambda mf: mf.density_fit()}[through](scf.UHF(mol))
    ours = trnqc.accelerate(theirs)
    rng = np.random.default_rng(1)
    rows = rng.standard_normal((2, 2, mol.nao, mol.nao))
    stacks = {"pair": rows[0], "low rank": np.outer(rows[0, 0, 0], rows[0, 0, 1]), "complex": rows[0] + 1j * rows[1]}
    for dm in stacks.values():
        for omega in (None, 0.3):
            both = (mf.get_jk(mol, dm, hermi, omega=omega) for mf in (ours, theirs))
            for results, wanted in zip(*both):
                np.testing.assert_allclose(results, wanted, rtol=0, atol=1e-9)


HELD = {
    "tagged": lambda dm: lib.tag_array(dm, note="kept by the caller"),
    "list": lambda dm: [dm, 2 * dm],
    "tuple": lambda dm: (dm, dm.T),
    "nested lists": lambda dm: dm.tolist(),
    "four axes": lambda dm: np.arange(1.0, 7).reshape(2, 3, 1, 1) * dm,
    "Fortran order": np.asfortranarray,
    "strided": lambda dm: np.repeat(np.repeat(dm, 2, 0), 2, 1)[::2, ::2],
    "single precision": lambda dm: dm.astype(np.float32),
    "whole numbers": lambda dm: (10 * dm).astype(int),
    "truth values": lambda dm: dm > 0,
    "complex, single precision": lambda dm: (dm + 1j * dm.T).astype(np.complex64),
}


@pytest.mark.parametrize("through", ["memory", "direct", "fitted"])
@pytest.mark.parametrize("held", HELD)
def test_densities_as_users_hold_them(through, held):
    """Against the same values as contiguous arrays in double precision, by PySCF."""
    mol = molecule()
    theirs = {"memory": lambda mf: mf, "direct": direct, "fitted": lambda mf: mf.density_fit("weigend")}[through](
        scf.RHF(mol)
    )
    dm = HELD[held](np.random.default_rng(2).standard_normal((mol.nao, mol.nao)))
    if isinstance(dm, np.ndarray):
        dm.flags.writeable = False
    plain = np.ascontiguousarray(dm, dtype=np.result_type(np.asarray(dm).dtype, float))
    # Of complex densities PySCF's products, in memory and fitted, keep the precision that they come in.
    close = 1e-5 if np.asarray(dm).dtype == np.complex64 else 1e-9
    for results, wanted in zip(trnqc.accelerate(theirs).get_jk(dm=dm), theirs.get_jk(dm=plain)):
        assert results.shape == wanted.shape
        np.testing.assert_allclose(results, wanted, rtol=0, atol=close)


@pytest.mark.parametrize("through", [direct, lambda mf: mf.density_fit("weigend")], ids=["direct", "fitted"])
def test_densities_of_another_size(through):
    mf = trnqc.accelerate(through(scf.RHF(molecule())))
    nao = mf.mol.nao
    for shape in ((nao + 1, nao + 1), (nao,), (nao, nao + 1)):
        with pytest.raises(InputError, match=rf"\[{nao}, {nao}\]"):
            mf.get_jk(dm=np.ones(shape))


@pytest.mark.parametrize(
    "through", [lambda mf: mf, direct, lambda mf: mf.density_fit("weigend")], ids=["memory", "direct", "fitted"]
)
def test_no_densities(through):
    mf = trnqc.accelerate(through(scf.RHF(molecule())))
    nothing = np.zeros((0, mf.mol.nao, mf.mol.nao))
    assert [v.shape for v in mf.get_jk(dm=nothing)] == [nothing.shape] * 2


@pytest.mark.parametrize("through", ["memory", "direct", "fitted"])
def test_generalised_objects_are_left_to_pyscf(through):
    """PySCF's converter exchanges the class below the layer; densities are of spin orbitals then."""
    prepared = {"memory": lambda mf: mf, "direct": direct, "fitted": lambda mf: mf.density_fit()}[through]

    def energies(wrap):
        mf = wrap(prepared(scf.UHF(molecule(RADICAL, spin=1)))).run()
        assert mf.stability(internal=True, external=True)[1].shape == (2 * mf.mol.nao, 2 * mf.mol.nao)
        general = scf.addons.convert_to_ghf(mf)
        return mf, general, (mf.e_tot, general.kernel(general.make_rdm1()), general.newton().kernel())

    theirs = energies(lambda mf: mf)[2]
    mf, general, ours = energies(trnqc.accelerate)
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=SAME)
    assert "PySCF" in general.ran_on
    assert "generalised" in general.ran_on
    assert "PySCF" not in mf.ran_on
    assert type(copy.deepcopy(general)) is type(general.undo())


def test_no_memory_for_one_density_leaves_it_to_pyscf():
    """PySCF takes max_memory for a wish; `mol.max_memory = 0` is how its users ask for the direct way."""
    mol = molecule(max_memory=0)
    mf = trnqc.accelerate(scf.RHF(mol))
    assert mf.kernel() == pytest.approx(scf.RHF(mol).kernel(), abs=SAME)
    assert "PySCF" in mf.ran_on
    assert "mol.max_memory" in mf.ran_on


def test_leaving_to_pyscf_is_said(capsys):
    mf = trnqc.accelerate(scf.UHF(molecule(RADICAL, spin=1)))
    general = scf.addons.convert_to_ghf(mf).set(verbose=3, stdout=sys.stdout)
    general.get_jk(dm=np.eye(2 * mf.mol.nao))
    assert "J and K are left to PySCF" in capsys.readouterr().out


def test_methods_that_come_after():
    theirs = direct(scf.RHF(molecule()))
    theirs.kernel()
    ours = trnqc.accelerate(theirs)
    assert ours.MP2().kernel()[0] == pytest.approx(theirs.MP2().kernel()[0], abs=SAME)
    np.testing.assert_allclose(ours.TDA().kernel(nstates=1)[0], theirs.TDA().kernel(nstates=1)[0], rtol=0, atol=1e-6)
    np.testing.assert_allclose(ours.Hessian().kernel(), theirs.Hessian().kernel(), rtol=0, atol=1e-6)


def test_other_gpu_codes_get_pyscfs_object(monkeypatch):
    monkeypatch.setattr(scf.hf.RHF, "to_gpu", lambda mf: type(mf))
    assert trnqc.accelerate(scf.RHF(molecule())).to_gpu() is scf.hf.RHF


def test_scanner_follows_the_molecule():
    theirs = direct(scf.RHF(molecule())).as_scanner()
    ours = trnqc.accelerate(direct(scf.RHF(molecule()))).as_scanner()
    for atom in (PLAIN, PLAIN.replace("0.74", "0.8"), "He 0 0 0; He 0 0 1.4"):
        mol = molecule(atom)
        assert ours(mol) == pytest.approx(theirs(mol), abs=SAME)


def test_a_molecule_that_moves_in_place_is_met_anew():
    mol = molecule()
    ours = trnqc.accelerate(direct(scf.RHF(mol)))
    dm = ours.get_init_guess()
    first = ours.get_j(mol, dm)
    mol.set_geom_("H 0 0 0; H 0 0.1 0.9; He 1.4 0 0", unit="Angstrom")
    second = ours.get_j(mol, dm)
    assert abs(second - first).max() > 1e-3
    np.testing.assert_allclose(second, scf.RHF(mol).get_j(mol, dm), rtol=0, atol=1e-9)


def test_builders_are_kept_and_dropped(monkeypatch):
    omegas = []

    def counted(mol, **options):
        omegas.append(options["omega"])
        return JKBuilder(mol, **options)

    monkeypatch.setattr(coulomb_exchange, "builder", lambda backend: counted)
    mf = trnqc.accelerate(direct(scf.RHF(molecule())))
    dm = mf.get_init_guess()
    for omega in (None, 0.2, None, 0.2):
        mf.get_jk(dm=dm, omega=omega)
    assert omegas == [0.0, 0.2]
    mf.copy().get_jk(dm=dm)
    assert len(omegas) == 2
    mf.reset(molecule())
    mf.get_jk(dm=dm)
    assert len(omegas) == 3


def test_a_threshold_that_is_set_later_counts():
    mf = trnqc.accelerate(direct(scf.RHF(molecule())))
    dm = mf.get_init_guess()
    exact = mf.get_jk(dm=dm)[1]
    coarse = mf.set(direct_scf_tol=1e-2).get_jk(dm=dm)[1]
    assert np.abs(coarse - exact).max() > 1e-6
    np.testing.assert_array_equal(mf.set(direct_scf_tol=1e-13).get_jk(dm=dm)[1], exact)


@pytest.mark.parametrize("through", [copy.deepcopy, lambda mf: pickle.loads(pickle.dumps(mf))], ids=["copy", "pickle"])
def test_copies_and_pickles(through):
    ours = trnqc.accelerate(scf.RHF(molecule()))
    energy = ours.kernel()
    other = through(ours)
    assert isinstance(other, module._Accelerated)
    assert other.e_tot == energy
    np.testing.assert_array_equal(other.mo_coeff, ours.mo_coeff)
    assert direct(other).kernel() == pytest.approx(energy, abs=SAME)


def test_checkpoints(tmp_path):
    ours = trnqc.accelerate(direct(scf.RHF(molecule())))
    ours.chkfile = str(tmp_path / "helium.chk")
    energy = ours.kernel()
    again = scf.RHF(molecule())
    again.init_guess = "chkfile"
    again.chkfile = ours.chkfile
    assert again.kernel() == pytest.approx(energy, abs=SAME)
    assert again.cycles <= 3


def test_one_orbital_and_ghosts():
    for atom, charge in (("He 0 0 0", 0), ("He 0 0 0; GHOST-He 0 0 1.5", 0), ("H 0 0 0; H 0 0 0.74", 0)):
        mol = molecule(atom, "sto-3g", charge=charge)
        ours = trnqc.accelerate(direct(scf.RHF(mol)))
        assert ours.kernel() == pytest.approx(scf.RHF(mol).kernel(), abs=SAME)


def test_a_hamiltonian_of_ones_own():
    """PySCF's way to run a model: no basis set, integrals put into _eri. A ring of six sites, U = 2 t."""
    n = 6
    mol = gto.M(verbose=0)
    mol.nelectron, mol.incore_anyway = n, True
    hopping = -np.eye(n, k=1) - np.eye(n, k=n - 1)
    eri = np.zeros((n,) * 4)
    eri[(np.arange(n),) * 4] = 2.0
    mf = scf.RHF(mol).set(init_guess="1e", _eri=ao2mo.restore(8, eri, n))
    mf.get_hcore, mf.get_ovlp = lambda *_: hopping + hopping.T, lambda *_: np.eye(n)
    # One electron in each site's two spins: U n / 4 above the band energy -8.
    assert trnqc.accelerate(mf).kernel() == pytest.approx(-8 + 2 * n / 4, abs=1e-9)


REFUSED = {
    "no SCF object": (lambda: molecule(), InputError, "SCF object"),
    "a number": (lambda: 3, InputError, "int"),
    "GHF": (lambda: scf.GHF(molecule()), UnsupportedError, "GHF"),
    "Dirac": (lambda: scf.DHF(molecule()), UnsupportedError, "DHF|UHF"),
    "two-component X2C": (lambda: scf.X2C(molecule()), UnsupportedError, "several components"),
    "second order": (lambda: scf.RHF(molecule()).newton(), UnsupportedError, "newton"),
    "grids for K": (lambda: scf.RHF(molecule()).COSX(), UnsupportedError, "grid"),
    "periodic": (
        lambda: pbc_scf.RHF(pbc_gto.M(atom="He 0 0 0", a=np.eye(3) * 6, basis="sto-3g", verbose=0)),
        UnsupportedError,
        "periodic",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals_say_what_to_do(case):
    make, error, words = REFUSED[case]
    with pytest.raises(error, match=words):
        trnqc.accelerate(make())


def test_an_unknown_backend():
    with pytest.raises(InputError, match="abacus"):
        trnqc.accelerate(scf.RHF(molecule()), backend="abacus")


def test_beyond_the_limit_is_pyscfs_and_said():
    basis = {"He": [[0, [1.2, 1.0]]], "H": [[0, [0.8, 1.0]], [6, [1.1, 1.0]]]}
    mol = molecule("He 0 0 0; H 0 0 1.2", basis, charge=1)
    ours, dm = trnqc.accelerate(direct(scf.RHF(mol))), np.eye(mol.nao)
    with pytest.warns(RuntimeWarning, match=r"H.*angular momentum 6.*beyond 5") as said:
        results = [ours.get_jk(mol, dm) for _ in range(2)]
    assert len(said) == 1
    assert ours.ran_on == "PySCF"
    np.testing.assert_array_equal(results[1], direct(scf.RHF(mol)).get_jk(mol, dm))


def test_screening_data_of_pyscf_are_there_for_who_asks():
    mf = trnqc.accelerate(direct(scf.RHF(molecule())))
    mf.kernel()
    assert mf.opt.prescreen == direct(scf.RHF(molecule())).init_direct_scf().prescreen
    mf.opt = None
    assert mf.opt is mf.opt is not None


def test_a_density_that_is_not_a_number():
    mf = trnqc.accelerate(direct(scf.RHF(molecule())))
    dm = mf.get_init_guess()
    dm[1, 0] = np.nan
    with pytest.raises(InputError, match="finite"):
        mf.get_jk(dm=dm)


def test_zero_exponents():
    mol = molecule("He 0 0 0")
    mol._env[mol._bas[0, gto.PTR_EXP]] = 0.0
    with pytest.raises(MoleculeError, match="exponent"):
        trnqc.accelerate(direct(scf.RHF(mol))).get_jk(mol, np.eye(mol.nao))


def test_importing_trnqc_is_cheap():
    code = "import sys, trnqc, trnqc.eri; assert 'accelerate' in dir(trnqc); assert 'pyscf' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_the_rooms_public_names():
    from trnqc import eri

    for name in eri.__all__:
        assert getattr(eri, name).__name__ == name
    with pytest.raises(AttributeError, match="nonsense"):
        eri.nonsense


@pytest.mark.slow
@pytest.mark.parametrize(
    ("atom", "basis", "options"),
    [
        ("examples/molecules/benzene.xyz", "def2-svp", {}),
        ("examples/molecules/benzene.xyz", "cc-pvtz", {}),
        ("Ni 0 0 0; C 0 0 1.67; O 0 0 2.82", "def2-tzvp", {}),
        ("Cu 0 0 0; Cl 0 0 2.05", "def2-tzvp", {}),
        ("F 0 0 0; H 0 0 0.92", "cc-pvqz", {}),
        (WATER, "cc-pvtz", {"cart": True}),
    ],
    ids=["benzene, double zeta", "benzene, triple zeta", "NiCO", "CuCl", "HF, cc-pVQZ", "Cartesian f"],
)
def test_energies_of_whole_molecules(atom, basis, options):
    def mf():
        return direct(scf.RHF(molecule(atom, basis, **options)))

    assert trnqc.accelerate(mf()).kernel() == pytest.approx(mf().kernel(), abs=SAME)
