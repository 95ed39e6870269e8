"""Double hybrids: energies of every recipe, frozen core, references that are refused, relaxed dipoles."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, scf
from pyscf.mp import dfmp2, dfump2

import trnqc
from trnqc.errors import InputError, NotConverged, UnsupportedError
from trnqc.mp2.hybrids.dispersion import dispersion_energy
from trnqc.mp2.hybrids.kohn_sham import energy_with
from trnqc.mp2.hybrids.recipes import recipe

# Total energies without dispersion, Hartree, of both molecules in 6-31G by pyscf-forge (pyscf.dh on PySCF 2.14): SCF
# fitted with def2-universal-jkfit, unpruned grids (15, 50), all electrons.
FORGE = {
    "B2PLYP": (-100.30623299838375, -55.77665440516384),
    "B2GP-PLYP": (-100.2804146893692, -55.75582496128515),
    "DSD-BLYP": (-100.25400604516781, -55.73482132283977),
    "DSD-PBEP86": (-100.20356307939217, -55.70277176983464),
    "PBE0-2": (-100.21598707785996, -55.7119451895263),
    "PBE-QIDH": (-100.24829947184729, -55.74116330032311),
    "wB2PLYP": (-100.23456768703942, -55.714745703769566),
    "XYG3": (-100.30626335533616, -55.776529660459744),
}
ATOMS = ("F 0 0 0; H 0 0 0.92", "N 0 0 0; H 0 0.80 0.63; H 0 -0.80 0.63")


def kohn_sham(atom, spin, xc, fitted=True, **options):
    mf = dft.KS(gto.M(atom=atom, basis="6-31g", spin=spin, verbose=0), xc=xc)
    mf = mf.density_fit("def2-universal-jkfit") if fitted else mf
    mf.grids.atom_grid = mf.nlcgrids.atom_grid = (15, 50)
    mf.grids.prune = None
    return mf.set(conv_tol=1e-12, **options)


@pytest.mark.parametrize("spin", [0, 1])
@pytest.mark.parametrize("name", FORGE)
def test_energies_agree_with_pyscf_forge(name, spin):
    dh = trnqc.DH(kohn_sham(ATOMS[spin], spin, recipe(name).scf), name, disp=False).run()
    assert dh.e_tot == pytest.approx(FORGE[name][spin], abs=1e-8)
    assert dh.e_tot == dh.result.e_dft + dh.e_corr


def test_attributes_are_set_before_the_perturbation():
    mf = kohn_sham(ATOMS[0], 0, recipe("B2PLYP").scf).run()
    dh = trnqc.DH(mf, "B2PLYP", disp=False).run(frozen=1, threads=1)
    assert dh.mp2.threads == 1
    assert dh.e_corr == pytest.approx(trnqc.DH(mf, "B2PLYP", frozen=1, disp=False).run().e_corr, abs=1e-12)
    with pytest.raises(InputError, match=r"DH has no attribute 'xc' to set; it has .*frozen"):
        dh.set(threads=2, xc="XYG3")
    assert dh.threads == 1
    with pytest.raises(TypeError, match="precison"):
        trnqc.DH(mf, "B2PLYP", precison="fp64")


@pytest.mark.parametrize("spin", [0, 1])
def test_wb97m2_is_the_published_sum(spin):
    mf = kohn_sham(ATOMS[spin], spin, "wB97M-V")
    dh = trnqc.DH(mf, "wB97M(2)").run()
    perturbation = (dfump2.DFUMP2 if spin else dfmp2.DFMP2)(mf)
    perturbation.with_df = scf.hf.SCF(mf.mol).density_fit("cc-pvdz-ri").with_df
    theirs = trnqc.DFMP2(mf, "cc-pvdz-ri", kohn_sham=True)
    assert theirs.kernel()[0] == pytest.approx(perturbation.kernel()[0], abs=1e-9)
    expected = energy_with(mf, recipe("wB97M(2)").final) + 0.34096 * dh.mp2.e_corr
    assert dh.e_tot == pytest.approx(expected, abs=1e-12)
    assert dh.result.e_scf == mf.e_tot and abs(dh.result.e_dft - mf.e_tot) > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("spin", [0, 1])
@pytest.mark.parametrize("name", FORGE)
def test_energies_agree_with_an_installed_pyscf_forge(name, spin):
    forge = pytest.importorskip("pyscf.dh", reason="pyscf-forge is not installed")
    mf = kohn_sham(ATOMS[spin], spin, recipe(name).scf).run()
    name_there = {"DSD-BLYP": "DSD_BLYP_D3BJ", "DSD-PBEP86": "DSD_PBEP86_D3BJ"}.get(name, name)
    theirs = forge.DFDH(mf, xc=name_there)
    theirs.kernel()
    expected = theirs.eng_nc + theirs.eng_pt2 + mf.energy_nuc()
    assert trnqc.DH(mf, name, disp=False).kernel() == pytest.approx(expected, abs=1e-9)


@pytest.mark.slow
def test_wb2plyp_agrees_with_a_published_program():
    # ORCA 5.0.4, as quoted in the tests of pyscf-forge; its fitting and grids differ from PySCF's.
    mol = gto.M(atom="O; H 1 0.94; H 1 0.94 2 104.5", basis="6-31g", verbose=0)
    assert trnqc.DH(mol, "wB2PLYP").kernel() == pytest.approx(-76.223828450855, abs=1e-5)


@pytest.mark.parametrize("spin", [0, 1])
def test_frozen_core(spin):
    mf = kohn_sham(ATOMS[spin], spin, recipe("B2PLYP").scf)
    dh = trnqc.DH(mf, "B2PLYP", auxbasis="cc-pvdz-ri").set_frozen().run()
    perturbation = (dfump2.DFUMP2 if spin else dfmp2.DFMP2)(mf, frozen=1)
    perturbation.with_df = scf.hf.SCF(mf.mol).density_fit("cc-pvdz-ri").with_df
    assert dh.e_corr == pytest.approx(0.27 * perturbation.kernel()[0], abs=1e-9)


def test_a_molecule_gets_an_accelerated_scf():
    mol = gto.M(atom=ATOMS[0], basis="6-31g", verbose=0)
    for density_fit in (False, "def2-universal-jkfit"):
        dh = trnqc.DH(mol, "XYG3", density_fit=density_fit)
        dh.mf.grids.atom_grid, dh.mf.grids.prune = (15, 50), None
        assert dh.kernel() == pytest.approx(FORGE["XYG3"][0], abs=1e-7 if density_fit else 1e-4)
        assert hasattr(dh.mf, "ran_on") and (getattr(dh.mf, "with_df", None) is not None) == bool(density_fit)


def test_dispersion_is_part_of_the_energy():
    pytest.importorskip("pyscf.dispersion")
    mf = kohn_sham(ATOMS[0], 0, recipe("DSD-PBEP86").scf).run()
    plain, full = (trnqc.DH(mf, "DSD-PBEP86", disp=disp).kernel() for disp in (False, None))
    assert full < plain
    assert full - plain == pytest.approx(dispersion_energy(mf.mol, recipe("DSD-PBEP86")), abs=1e-12)


def test_explicit_recipes():
    mf = kohn_sham(ATOMS[0], 0, "0.53*HF + 0.47*B88, 0.73*LYP").run()
    named = trnqc.DH(mf, "B2PLYP").kernel()
    assert trnqc.DH(mf, (mf.xc, 0.27, 0.27)).kernel() == pytest.approx(named, abs=1e-12)
    assert trnqc.DH(mf, (mf.xc, mf.xc, 0.27, 0.27)).kernel() == pytest.approx(named, abs=1e-9)


@pytest.mark.parametrize(
    ("kind", "error", "message"),
    [
        (lambda mol: dft.RKS(mol, xc="PBE0"), InputError, "needs orbitals of the functional.*found 'PBE0'"),
        (lambda mol: scf.RHF(mol), UnsupportedError, "need an RKS or UKS object, got RHF"),
        (lambda mol: dft.ROKS(mol, xc="PBE0"), UnsupportedError, "need an RKS or UKS object, got ROKS"),
        (lambda mol: 7, InputError, "a molecule, RKS or UKS object was expected, got int"),
        (
            lambda mol: dft.RKS(mol, xc=recipe("B2PLYP").scf).set(disp="d3bj"),
            InputError,
            "dispersion energy of its own",
        ),
    ],
)
def test_references_that_are_refused(kind, error, message):
    with pytest.raises(error, match=message):
        trnqc.DH(kind(gto.M(atom=ATOMS[0], basis="6-31g", verbose=0)), "B2PLYP")


def test_an_scf_that_has_not_converged_is_refused():
    with pytest.raises(NotConverged):
        trnqc.DH(kohn_sham(ATOMS[0], 0, recipe("B2PLYP").scf, max_cycle=1), "B2PLYP").kernel()


@pytest.mark.parametrize("name", ["wB97M(2)", ("wB97M-V", 0.1, 0.1)])
def test_relaxed_densities_with_vv10_are_refused(name):
    dh = trnqc.DH(kohn_sham("H 0 0 0; H 0 0 0.74", 0, recipe(name).scf), name)
    with pytest.raises(UnsupportedError, match="VV10"):
        dh.dip_moment()
    with pytest.raises(UnsupportedError, match="VV10"):
        dh.nuc_grad_method().kernel()


# P86 with spin polarisation is left out: its energy in libxc is not smooth enough, also without perturbation.
@pytest.mark.parametrize(
    ("name", "spin"),
    [("B2PLYP", 0), ("PBE-QIDH", 1), ("XYG3", 0), ("XYG3", 1), pytest.param("wB2PLYP", 0, marks=pytest.mark.slow)],
)
def test_dipoles_are_derivatives_by_an_electric_field(name, spin):
    def energy(field):
        mf = kohn_sham(ATOMS[spin], spin, recipe(name).scf, conv_tol_grad=1e-8)
        core = mf.get_hcore() + field * mf.mol.intor("int1e_r")[2]
        return trnqc.DH(mf.set(get_hcore=lambda *_: core), name, disp=False).kernel()

    mf = kohn_sham(ATOMS[spin], spin, recipe(name).scf, conv_tol_grad=1e-8)
    nuclei = mf.mol.atom_charges() @ mf.mol.atom_coords()[:, 2]
    step = 2e-3
    differences = (8 * (energy(step) - energy(-step)) - (energy(2 * step) - energy(-2 * step))) / (12 * step)
    dipole = trnqc.DH(mf, name, disp=False).dip_moment("AU")
    assert dipole[2] == pytest.approx(nuclei - differences, abs=1e-7)
    assert np.abs(dipole[:2]).max() < 1e-6


@pytest.mark.parametrize(
    ("name", "spin", "frozen"),
    [
        ("B2PLYP", 0, None),
        ("XYG3", 0, 1),
        pytest.param("PBE-QIDH", 1, 1, marks=pytest.mark.slow),
        pytest.param("XYG3", 1, None, marks=pytest.mark.slow),
        pytest.param("wB2PLYP", 0, None, marks=pytest.mark.slow),
    ],
)
def test_gradients_are_derivatives_of_the_energy(name, spin, frozen):
    positions = np.array([[0.0, 0.0, 0.1], [0.2, 1.45, 1.1], [0.0, -1.45, 1.2]])

    def double_hybrid(moved):
        atoms = list(zip("NHH" if spin else "OHH", positions + moved))
        mol = gto.M(atom=atoms, unit="Bohr", basis="6-31g", spin=spin, verbose=0)
        mf = dft.KS(mol, xc=recipe(name).scf).density_fit("cc-pvdz-jkfit").set(conv_tol=1e-12, conv_tol_grad=1e-8)
        mf.grids.atom_grid, mf.grids.prune = (15, 50), None
        mf.diis_space = 12  # With the usual 8, the orbital gradient of the radical stays above 2e-8.
        return trnqc.DH(mf, name, auxbasis="cc-pvdz-ri", frozen=frozen, disp=False).run()

    gradient = double_hybrid(0.0).nuc_grad_method().kernel()
    direction, step = np.array([[0.3, -0.2, 0.8], [0.1, 0.5, 0.4], [-0.6, 0.2, 0.1]]), 2e-3
    at = {k: double_hybrid(k * step * direction).e_tot for k in (1, -1, 2, -2)}
    differences = (8 * (at[1] - at[-1]) - (at[2] - at[-2])) / (12 * step)
    assert np.vdot(gradient, direction) == pytest.approx(differences, abs=2e-7)
    assert np.abs(gradient.sum(axis=0)).max() < 1e-7


def test_a_gradient_computes_the_energy_where_that_is_missing():
    molecule = gto.M(atom="H 0 0 0; H 0 0 0.74", basis="6-31g", verbose=0)
    first, second = trnqc.DH(molecule, "PBE0-2"), trnqc.DH(molecule, "PBE0-2").run()
    np.testing.assert_allclose(first.nuc_grad_method().kernel(), second.nuc_grad_method().kernel(), atol=1e-7)


@pytest.mark.parametrize("fitted", [False, True])
def test_scanners_leave_the_object_as_it_was(fitted):
    at = {r: gto.M(atom=f"H 0 0 0; H 0 0 {r}", basis="6-31g", verbose=0) for r in (0.74, 0.9)}
    dh = trnqc.DH(at[0.74], "B2PLYP", density_fit=fitted)
    energy, gradient = dh.nuc_grad_method().as_scanner()(at[0.9])
    other = trnqc.DH(at[0.9], "B2PLYP", density_fit=fitted).run()
    assert energy == pytest.approx(other.e_tot, abs=1e-8)
    np.testing.assert_allclose(gradient, other.nuc_grad_method().kernel(), atol=1e-6)
    assert dh.kernel() == pytest.approx(trnqc.DH(at[0.74], "B2PLYP", density_fit=fitted).kernel(), abs=1e-8)


def test_unknown_functionals_of_explicit_recipes_are_refused():
    for functional in (("nonsense", 0.1, 0.1), ("PBE0", "0.5*HF + nonsense", 0.1, 0.1)):
        with pytest.raises(InputError, match=r"nonsense.*is not one of PySCF's"):
            trnqc.DH(gto.M(atom="He", basis="6-31g", verbose=0), functional)


def test_the_gradient_of_dispersion():
    pytest.importorskip("pyscf.dispersion")
    mf = kohn_sham("H 0 0 0; H 0 0 0.74", 0, recipe("DSD-BLYP").scf).run()
    plain, full = (trnqc.DH(mf, "DSD-BLYP", disp=disp).nuc_grad_method().kernel() for disp in (False, None))

    def energy(distance):
        return dispersion_energy(gto.M(atom=f"H 0 0 0; H 0 0 {distance}", unit="Bohr"), recipe("DSD-BLYP"))

    bond, step = mf.mol.atom_coord(1)[2], 1e-3
    expected = (energy(bond + step) - energy(bond - step)) / (2 * step)
    assert (full - plain)[1, 2] == pytest.approx(expected, abs=1e-8)
