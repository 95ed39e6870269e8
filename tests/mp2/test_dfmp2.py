"""DFMP2 against PySCF on the same orbitals and auxiliary basis, component by component."""

from __future__ import annotations

import copy
import io
import warnings

import numpy as np
import pytest
from pyscf import df, gto, mp, scf

from trnqc import DFMP2
from trnqc.errors import InputError, MemoryLimit, MoleculeError, NotConverged, UnsupportedError, UnsupportedPrecision
from trnqc.mp2.reference.molecule import load_geometry

# Hartree, in each spin component: what a user may expect of two programs (README), on molecules of this size.
TOLERANCE = {"fp64": 1e-9, "fp32": 1e-6, "bf16x3": 1e-6}
NAMES = [
    "water",
    "water conventional",
    "hydroxide",
    "hydrogen sulfide",
    "hydrogen",
    "hydrogen iodide",
    "cartesian water",
]


def energies(mf, **options) -> tuple[float, float]:
    method = DFMP2(mf, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a generated set and the bf16x3 estimate are told, rightly
        e_corr, nothing = method.kernel()
    assert nothing is None
    assert e_corr == method.e_corr == method.e_corr_os + method.e_corr_ss
    return method.e_corr_os, method.e_corr_ss


@pytest.mark.parametrize("precision", sorted(TOLERANCE))
@pytest.mark.parametrize("name", NAMES)
def test_both_spin_components_against_pyscf(reference, pyscf_mp2, name, precision):
    mf = reference(name)
    auxbasis = df.autoaux(mf.mol) if name == "hydrogen iodide" else None  # the library has none for iodine
    result = energies(mf, auxbasis=auxbasis, precision=precision)
    np.testing.assert_allclose(result, pyscf_mp2(mf, auxbasis=auxbasis), rtol=0, atol=TOLERANCE[precision])


@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
def test_nki_kernels_on_the_simulator_against_pyscf(reference, pyscf_mp2, precision, fused):
    mf = reference("water")
    result = energies(mf, frozen=1, backend="simulator", precision=precision, fused=fused)
    np.testing.assert_allclose(result, pyscf_mp2(mf, frozen=1), rtol=0, atol=TOLERANCE[precision])


def test_simulator_has_no_fp64(reference):
    with pytest.raises(UnsupportedPrecision, match=r"simulator.*fp32"):
        DFMP2(reference("water"), backend="simulator").kernel()


@pytest.mark.parametrize("frozen", [None, 0, 1, 4, [0, 2], [0, 20, 23]])
def test_frozen_orbitals_against_pyscf(reference, pyscf_mp2, frozen):
    mf = reference("water")
    np.testing.assert_allclose(energies(mf, frozen=frozen), pyscf_mp2(mf, frozen), rtol=0, atol=1e-9)


def test_dependent_auxiliary_basis_against_pyscf(reference, pyscf_mp2):
    mf = reference("water")
    doubled = {s: mf.mol.format_basis({s: "cc-pvdz-ri"})[s] * 2 for s in ("H", "O")}
    np.testing.assert_allclose(energies(mf, auxbasis=doubled), pyscf_mp2(mf, auxbasis=doubled), rtol=0, atol=1e-9)


def test_fitting_error_is_that_of_an_ri_set(reference):
    """Against exact integrals: 1e-4 Hartree for water; the JK set misses by more than the RI set does."""
    mf = reference("water conventional")
    exact = mp.MP2(mf).kernel(with_t2=False)[0]
    assert sum(energies(mf)) == pytest.approx(exact, abs=1e-4)
    assert abs(sum(energies(mf)) - exact) < abs(sum(energies(mf, auxbasis="cc-pvdz-jkfit")) - exact)


def test_pair_energies_are_lower_triangular_and_sum_up(reference):
    method = DFMP2(reference("water"), frozen=1)
    method.kernel()
    for matrix, total in ((method.pair_energies.os, method.e_corr_os), (method.pair_energies.ss, method.e_corr_ss)):
        assert matrix.shape == (4, 4)
        assert not np.triu(matrix, 1).any()
        assert matrix.sum() == pytest.approx(total, rel=1e-14)
        assert (matrix <= 0).all()
    assert not method.pair_energies.ss.diagonal().any()


def test_one_occupied_orbital_has_no_same_spin_energy(reference):
    os, ss = energies(reference("hydrogen"))
    assert os < -0.01
    assert ss == 0


def test_energy_is_additive_over_distant_molecules():
    atoms = [(s, np.array(x)) for s, x in zip(*(lambda g: (g.symbols, g.coordinates))(load_geometry("water")))]
    one, two = (
        scf.RHF(gto.M(atom=[(s, x + shift) for shift in shifts for s, x in atoms], basis="6-31g", verbose=0))
        .density_fit()
        .run(conv_tol=1e-11)
        for shifts in ([0.0], [0.0, 200.0])
    )
    assert sum(energies(two)) == pytest.approx(2 * sum(energies(one)), abs=1e-7)


def test_attributes_are_those_of_pyscf(reference):
    mf = reference("water")
    method = DFMP2(mf, frozen=1)
    assert (method.e_corr, method.e_tot, method.pair_energies, method.result) == (None,) * 4
    assert (method.nocc, method.nmo, method.max_memory, method.mol) == (4, 23, mf.max_memory, mf.mol)
    method.kernel()
    assert method.e_tot == pytest.approx(mf.e_tot + method.e_corr, abs=1e-14)
    assert method.result.sizes.nvir == 19
    assert method.result.frozen.occ == (0,)
    assert method.set_frozen().frozen == 1


def test_run_sets_attributes_and_returns_the_object(reference):
    method = DFMP2(reference("water")).run(frozen=1)
    assert method.e_corr == DFMP2(reference("water"), frozen=1).kernel()[0]
    with pytest.raises(InputError, match=r"no attribute 'frosen' to set; it has .*frozen"):
        method.run(frosen=1)


def test_factors_can_be_used_again(reference):
    method = DFMP2(reference("water"))
    factors = method.ao2mo()
    first = method.kernel(factors)[0]
    method.precision = "fp32"
    second = method.kernel(factors)[0]
    assert 0 < abs(first - second) < 1e-6


def test_factors_come_from_the_method_of_a_users_class(reference, tmp_path):
    class Mine(DFMP2):
        def ao2mo(self, *args, **options):
            factors = super().ao2mo(*args, **options)
            return super().ao2mo(ovL=1.1 * np.asarray(factors.ovL))

    mf = reference("hydrogen")
    mine, plain = Mine(mf), DFMP2(mf)
    assert mine.kernel()[0] == pytest.approx(1.1**4 * plain.kernel()[0], rel=1e-12)
    eris = mine.ao2mo()
    np.testing.assert_allclose(mine.make_rdm1(), plain.make_rdm1(eris=eris), rtol=0, atol=1e-12)
    assert np.abs(mine.make_rdm1() - plain.make_rdm1()).max() > 1e-4
    with pytest.raises(UnsupportedError, match=r"Mine\.ao2mo: set no checkpoint"):
        Mine(mf, checkpoint=tmp_path).kernel()


def test_factors_of_other_orbitals_are_refused(reference):
    method = DFMP2(reference("water"))
    factors = method.ao2mo()
    method.frozen = 1
    with pytest.raises(InputError, match="5 occupied and 19 virtual orbitals are not those of the 4 and 19"):
        method.kernel(factors)


def test_threads_are_counted_from_one(reference):
    with pytest.raises(InputError, match="threads must be a positive number"):
        DFMP2(reference("water"), threads=-1).ao2mo()


def test_result_describes_the_run(reference):
    method = DFMP2(reference("hydroxide"), precision="fp32", fused=False)
    method.kernel()
    r = method.result
    assert (r.run.backend, r.run.precision, r.run.fused) == ("cpu", "fp32", False)
    assert r.run.ran_on
    assert (r.system.geometry.formula, r.system.geometry.charge) == ("HO", -1)
    assert r.system.geometry.coordinates[1] == pytest.approx((0, 0, 0.964))
    assert r.system.basis == "aug-cc-pvdz"
    assert r.system.auxbasis == {"H": "aug-cc-pvdz-ri", "O": "aug-cc-pvdz-ri"}
    assert "density-fitted" in r.system.scf
    assert {"integrals", "transformation", "metric", "fitting", "pairs", "error estimate"} == set(r.timings)
    assert {"trnqc", "pyscf", "numpy", "blas"} <= set(r.versions)
    assert r.e_corr_scs == pytest.approx(1.2 * r.e_corr_os + r.e_corr_ss / 3)
    assert r.e_corr_sos == pytest.approx(1.3 * r.e_corr_os)


def test_own_scaling_factors(reference):
    method = DFMP2(reference("water"), scs=(1.0, 0.0), sos=2.0)
    method.kernel()
    assert method.result.e_corr_scs == method.e_corr_os
    assert method.result.e_tot_sos == pytest.approx(method.e_hf + 2 * method.e_corr_os)


def test_generated_auxiliary_set_is_said_aloud(reference):
    method = DFMP2(reference("hydrogen iodide"))
    with pytest.warns(UserWarning, match="for I"):
        method.kernel()
    assert method.result.system.generated == ("I",)
    assert any("for I" in message for message in method.result.warnings)


def test_errors_of_the_input_come_early(reference):
    mf = reference("water")
    with pytest.raises(MoleculeError, match="5 frozen"):
        DFMP2(mf, frozen=5).kernel()
    with pytest.raises(MemoryLimit, match=r"limit is 0.02 MB"):
        DFMP2(mf, max_memory=0.02).kernel()
    with pytest.raises(InputError, match="precision"):
        DFMP2(mf, precision="double").kernel()
    with pytest.raises(UnsupportedError, match="only RHF, UHF and ROHF"):
        DFMP2(scf.GHF(mf.mol))


def test_no_virtuals():
    mf = scf.RHF(gto.M(atom="He 0 0 0", basis="sto-3g", verbose=0)).run()
    with pytest.raises(MoleculeError, match="no virtual orbitals"):
        DFMP2(mf, auxbasis="def2-svp-ri").kernel()


def test_unconverged_orbitals(reference):
    mf = copy.copy(reference("water"))
    mf.converged = False
    with pytest.raises(NotConverged):
        DFMP2(mf)
    with pytest.warns(UserWarning, match="not converged"):
        DFMP2(mf, allow_unconverged=True).kernel()


def test_progress_names_its_stages(reference):
    stages = []
    DFMP2(reference("water"), progress=lambda stage, done, total: stages.append((stage, done == total))).kernel()
    assert {("integrals", True), ("fitting", True), ("pairs", True)} <= set(stages)


@pytest.mark.parametrize(("verbose", "said"), [(0, False), (3, True)])
def test_verbosity_is_that_of_pyscf(reference, verbose, said):
    method = DFMP2(reference("water"))
    method.verbose, method.stdout = verbose, io.StringIO()
    method.kernel()
    assert ("E(DF-MP2)" in method.stdout.getvalue()) == said
