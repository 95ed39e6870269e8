"""The methods that `trnqc.DFMP2` shares with PySCF's MP2 objects."""

from __future__ import annotations

import functools

import h5py
import numpy as np
import pytest
from pyscf import df, dft, gto, lib, scf
from pyscf.mp import dfmp2, dfmp2_native, dfump2, dfump2_native

import trnqc
from trnqc.errors import InputError, MemoryLimit, UnsupportedError
from trnqc.mp2.density.sets import PairMemory

WATER = "O 0 0 0; H 0 -0.757 0.587; H 0 0.757 0.587"


@functools.cache
def mean_field(charge: int = 0):
    mol = gto.M(atom=WATER, charge=charge, spin=charge, basis="6-31g", verbose=0)
    return (scf.UHF if charge else scf.RHF)(mol).run(conv_tol=1e-12, conv_tol_grad=1e-9)


def peer(mf, **options):
    theirs = dfmp2.DFMP2(mf, **options)
    theirs.with_df = df.DF(mf.mol)
    theirs.with_df.auxbasis = df.make_auxbasis(mf.mol, mp2fit=True)
    return theirs


def test_amplitudes_are_those_of_pyscf_and_computed_on_request():
    method, theirs = trnqc.DFMP2(mean_field(), frozen=1), peer(mean_field(), frozen=1)
    assert method.t2 is None
    e_corr, t2 = method.kernel(with_t2=True)
    assert theirs.kernel()[0] == pytest.approx(e_corr, abs=1e-12)
    np.testing.assert_allclose(t2, theirs.t2, atol=1e-12)
    assert method.kernel()[1] is None
    np.testing.assert_array_equal(method.t2, t2)
    method.max_memory = 1e-3
    method._t2 = None
    with pytest.raises(MemoryLimit):
        assert method.t2 is not None


@pytest.mark.parametrize("charge", [0, 1])
def test_integrals_are_kept_in_a_file_or_passed_on(tmp_path, charge):
    method = trnqc.DFMP2(mean_field(charge), frozen=1)
    eris = method.ao2mo(ovL_to_save=str(tmp_path / "ovL.h5"))
    method.kernel(eris)
    with h5py.File(tmp_path / "ovL.h5") as file:
        assert set(file) == ({"ovL0", "ovL1"} if charge else {"ovL"})
    for ovl in (eris.ovL, str(tmp_path / "ovL.h5")):
        again = trnqc.DFMP2(mean_field(charge), frozen=1)
        again.kernel(eris=again.ao2mo(ovL=ovl))
        assert again.e_corr == method.e_corr
    with pytest.raises(InputError, match="a file with ovL"):
        method.ao2mo(ovL=str(tmp_path / "nothing.h5"))
    with pytest.raises(InputError, match="naux] was expected"):
        trnqc.DFMP2(mean_field(charge), frozen=2).ao2mo(ovL=eris.ovL)


def test_the_auxiliary_basis_is_that_of_with_df():
    fitted = trnqc.DFMP2(mean_field()).run().e_corr
    other = trnqc.DFMP2(mean_field(), auxbasis="cc-pvtz-ri").run().e_corr
    assert abs(fitted - other) > 1e-6
    method = trnqc.DFMP2(mean_field())
    method.with_df.auxbasis = "cc-pvtz-ri"
    assert method.run().e_corr == other
    new = df.DF(mean_field().mol)
    new.auxbasis = "cc-pvtz-ri"
    original = trnqc.DFMP2(mean_field())
    assert original.density_fit(with_df=new).run().e_corr == other
    assert original.density_fit("cc-pvtz-ri").run().e_corr == other
    assert original.run().e_corr == fitted and original.auxbasis is None


def test_set_and_context():
    with trnqc.DFMP2(mean_field()).set(frozen=1, force_outcore=True) as method:
        method.kernel(with_t2=True)
        assert "on disk" in method.result.run.factors and method.t2 is not None
    assert method._t2 is None and method.e_tot_scs == method.result.e_tot_scs
    with pytest.raises(InputError, match="no attribute 'frosen'"):
        method.set(frosen=2)
    assert isinstance(method, lib.StreamObject) and method.copy().frozen == 1


@pytest.mark.parametrize("charge", [0, 1])
def test_a_scanner_follows_the_geometry_with_all_options(charge):
    method = trnqc.DFMP2(mean_field(charge), frozen=1)
    scanner = method.as_scanner()
    assert scanner.as_scanner() is scanner
    moved = WATER.replace("0.587", "0.6")
    energy = scanner(moved)
    mol = mean_field(charge).mol.set_geom_(moved, inplace=False)
    expected = trnqc.DFMP2(mean_field(charge).__class__(mol).run(conv_tol=1e-12), frozen=1).run().e_tot
    assert energy == pytest.approx(expected, abs=1e-8)
    assert scanner(mean_field(charge).mol) == pytest.approx(
        trnqc.DFMP2(mean_field(charge), frozen=1).run().e_tot, abs=1e-8
    )


def test_reset_forgets_results_and_takes_the_new_molecule():
    mf = mean_field().copy()
    method = trnqc.DFMP2(mf, frozen=1).run()
    mol = mf.mol.set_geom_(WATER.replace("0.587", "0.6"), inplace=False)
    assert method.reset(mol) is method and method.e_corr is None and method.t2 is None
    assert method.mol is mol and mf.mol is mol


@pytest.mark.parametrize(("charge", "theirs"), [(0, dfmp2_native.DFMP2), (1, dfump2_native.DFUMP2)])
def test_densities_and_natural_orbitals_are_those_of_pyscf(charge, theirs):
    method, native = trnqc.DFMP2(mean_field(charge), frozen=1), theirs(mean_field(charge), frozen=1)
    method.cphf_tol = native.cphf_tol = 1e-11
    # The residual of PySCF's Z-vector equations is 8e-6 for these molecules, whatever their threshold.
    for relaxed, tolerance in ((False, 1e-10), (True, 5e-7)):
        for ao_repr in (False, True):
            np.testing.assert_allclose(
                method.make_rdm1(relaxed=relaxed, ao_repr=ao_repr), native.make_rdm1(relaxed, ao_repr), atol=tolerance
            )
        np.testing.assert_allclose(
            method.make_natorbs(relaxed=relaxed)[0], native.make_natorbs(relaxed=relaxed)[0], atol=tolerance
        )


def test_density_without_frozen_orbitals_and_frozen_natural_orbitals():
    method, theirs = trnqc.DFMP2(mean_field(), frozen=[0, 12]).run(), peer(mean_field(), frozen=[0, 12])
    theirs.kernel()
    np.testing.assert_allclose(method.make_rdm1(with_frozen=False), theirs.make_rdm1(with_frozen=False), atol=1e-10)
    for options in ({"pct_occ": 0.97}, {"nvir_act": 4}, {}):
        frozen, coefficients = method.make_fno(**options)
        expected, orbitals = theirs.make_fno(**options)
        np.testing.assert_array_equal(frozen, expected)
        np.testing.assert_allclose(abs(coefficients), abs(orbitals), atol=1e-6)


@pytest.mark.parametrize("ao_repr", [False, True])
def test_two_particle_densities_are_those_of_pyscf(ao_repr):
    method, theirs = trnqc.DFMP2(mean_field(), frozen=[0, 12]), peer(mean_field(), frozen=[0, 12])
    theirs.kernel()
    np.testing.assert_allclose(method.make_rdm2(ao_repr), theirs.make_rdm2(ao_repr=ao_repr), atol=1e-10)
    method, theirs = trnqc.DFMP2(mean_field(1), frozen=1), dfump2.DFUMP2(mean_field(1), frozen=1)
    theirs.with_df = peer(mean_field(1)).with_df
    theirs.kernel()
    for block, expected in zip(method.make_rdm2(ao_repr), theirs.make_rdm2(ao_repr=ao_repr)):
        np.testing.assert_allclose(block, expected, atol=1e-10)
    with pytest.raises(MemoryLimit, match="two-particle density needs"):
        method.set(max_memory=1).make_rdm2()


def test_the_energy_follows_from_the_densities():
    """The terms of Hylleraas' functional: the Fock operator gives -E, the fluctuation potential 2 E."""
    method = trnqc.DFMP2(mean_field()).run()
    mf, eris = mean_field(), method.ao2mo()
    nocc, nmo = method.nocc, method.nmo
    v = np.zeros((nmo,) * 4)
    v[:nocc, nocc:, :nocc, nocc:] = np.einsum("iaQ,jbQ->iajb", eris.B, eris.B)
    v += v.transpose(1, 0, 3, 2)
    fock = np.einsum("p,pp->", mf.mo_energy, method.make_rdm1() - np.diag(mf.mo_occ))
    assert np.sum(v * method.make_rdm2()) / 2 == pytest.approx(2 * method.e_corr, abs=1e-10)
    assert fock == pytest.approx(-method.e_corr, abs=1e-10)


def test_the_gradient_is_that_of_the_scaled_energy():
    method = trnqc.DFMP2(mean_field(), frozen=1)
    method.gradient_scaling = method.scs
    de = method.nuc_grad_method().kernel()
    scanner, step, energies = method.as_scanner(), 2e-3, []
    for sign in (1, -1):
        moved = mean_field().mol.atom_coords() + sign * step * np.eye(3)[[2, 0, 0]] * [[1, 0, 1], [0, 0, 0], [0, 0, 0]]
        scanner(mean_field().mol.set_geom_(moved, unit="Bohr", inplace=False))
        energies.append(scanner.e_tot_scs)
    assert de[0, 2] == pytest.approx((energies[0] - energies[1]) / (2 * step), abs=2e-6)


def test_factors_leave_room_for_densities():
    """Where factors and the smallest block of pairs, which has the degenerate orbitals, do not fit together."""
    mf = scf.RHF(gto.M(atom="N 0 0 0; N 0 0 1.1", basis="cc-pvdz", verbose=0)).run()
    plain = trnqc.DFMP2(mf, frozen=2, threads=1)
    memory = PairMemory((plain.ao2mo().shape,), threads=1)
    needed = (memory.factors + memory.block(2)) / 1e6
    for limit, where in ((0.99 * needed, "on disk"), (10 * needed, "in memory")):
        method = trnqc.DFMP2(mf, frozen=2, threads=1, max_memory=limit)
        with method._open_factors(for_densities=True) as (factors, _):
            assert factors.where.startswith(where)
        np.testing.assert_allclose(method.make_rdm1(), plain.make_rdm1(), atol=1e-11)


def test_wrong_factors_and_scalings_are_refused():
    method = trnqc.DFMP2(mean_field())
    with pytest.raises(InputError, match=r"eris must be factors that ao2mo\(\) has returned, got int"):
        method.kernel(eris=3)
    for scaling in ("scs", (1.0,), (1.0, np.nan)):
        method.gradient_scaling = scaling
        with pytest.raises(InputError, match="gradient_scaling must be two finite factors"):
            method.make_rdm1()


def test_kohn_sham_orbitals_need_to_be_asked_for():
    mf = dft.RKS(mean_field().mol, xc="b3lyp").run()
    with pytest.raises(UnsupportedError, match="Kohn-Sham"):
        trnqc.DFMP2(mf)
    assert trnqc.DFMP2(mf, kohn_sham=True, frozen=1).run().e_corr < -0.05
