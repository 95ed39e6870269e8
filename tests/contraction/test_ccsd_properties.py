"""The example that derives the Lambda equations and the densities of coupled cluster, against PySCF's."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import cc, gto, scf

from examples import ccsd, ccsd_properties
from trnqc.contraction import einsum_plan, gradient
from trnqc.errors import NotConverged

MOLECULES = {
    "hydrogen fluoride": ("F 0 0 0; H 0.1 0.2 0.9", "6-31g"),
    "water": ("O 0 0 0; H 0 0.76 0.59; H 0 -0.76 0.59", "sto-3g"),
    "bent water": ("O 0 0 0; H 0.1 0.9 0.5; H 0 -0.7 0.6", "6-31g"),
}


def solved(name):
    """The SCF and the arrays of its coupled cluster without multipliers."""
    atoms, basis = MOLECULES[name]
    mf = scf.RHF(gto.M(atom=atoms, basis=basis, verbose=0)).run(conv_tol=1e-14, conv_tol_grad=1e-10)
    _, _, arrays = ccsd.iterate(mf, threshold=1e-12, change_threshold=1e-11, progress=lambda line: None)
    return mf, arrays | ccsd_properties.fock(mf)


@pytest.fixture(scope="module")
def water():
    return solved("water")


@pytest.mark.parametrize("name", ["hydrogen fluoride", "bent water"])
def test_densities_are_those_of_pyscf(name):
    mf, arrays = solved(name)
    arrays |= ccsd_properties.solve_lambda(arrays)
    dm1, dm2 = ccsd_properties.densities(mf, arrays)
    theirs = cc.CCSD(mf).run(conv_tol=1e-13, conv_tol_normt=1e-11)
    theirs.solve_lambda()
    np.testing.assert_allclose(dm1, theirs.make_rdm1(), rtol=0, atol=1e-9)
    np.testing.assert_allclose(dm2, theirs.make_rdm2(), rtol=0, atol=1e-9)
    assert np.abs(dm1 - np.diag(mf.mo_occ)).max() > 1e-3
    n = mf.mo_occ.size
    h = mf.mo_coeff.T @ mf.get_hcore() @ mf.mo_coeff
    repulsion = np.einsum("pqrs,pi,qj,rk,sl->ijkl", mf.mol.intor("int2e"), *[mf.mo_coeff] * 4, optimize=True)
    energy = np.vdot(h, dm1) + np.vdot(repulsion, dm2) / 2 + mf.mol.energy_nuc()
    assert energy == pytest.approx(theirs.e_tot, abs=1e-9)
    assert dm2.shape == (n,) * 4 and np.trace(dm1) == pytest.approx(mf.mol.nelectron, abs=1e-10)


def test_the_dipole_moment_is_that_of_pyscf():
    """Its electronic part by PySCF's density and integrals; the correlation changes it by more than the tolerance."""
    mf, arrays = solved("bent water")
    dm1, _ = ccsd_properties.densities(mf, arrays | ccsd_properties.solve_lambda(arrays))
    theirs = cc.CCSD(mf).run(conv_tol=1e-13, conv_tol_normt=1e-11)
    theirs.solve_lambda()
    electrons = np.einsum("xij,ij->x", mf.mol.intor("int1e_r"), theirs.make_rdm1(ao_repr=True))
    expected = mf.mol.atom_charges() @ mf.mol.atom_coords() - electrons
    moment = ccsd_properties.dipole_moment(mf, dm1)
    np.testing.assert_allclose(moment, expected, rtol=0, atol=1e-8)
    assert np.abs(moment - mf.dip_moment(unit="AU", verbose=0)).max() > 1e-3


def test_densities_are_derivatives_of_the_energy(water):
    """In a field that adds to the Fock matrix, with orbitals fixed and amplitudes solved for, by finite differences."""
    _, arrays = water
    arrays = arrays | ccsd_properties.solve_lambda(arrays)
    program = ccsd_properties.sized(arrays)
    rng = np.random.default_rng(2)
    spins = {"o": [0] * 5 + [1] * 5, "v": [0] * 2 + [1] * 2}
    field = {}
    for name in ccsd_properties.FOCK:
        left, right = (np.array(spins[x]) for x in name[1:])
        x = rng.standard_normal(arrays[name].shape) * (left[:, None] == right)
        field[name] = x + x.T if name != "fov" else x
    values = einsum_plan(gradient(program, "L", ccsd_properties.FOCK)).run(arrays)
    expected = sum(np.vdot(values[f"dL_d{name}"], x) for name, x in field.items())
    plan = einsum_plan(program, outputs=("r1", "r2", "energy"))

    def energy(strength: float) -> float:
        inside = arrays | {name: arrays[name] + strength * x for name, x in field.items()}
        for _ in range(60):
            new = plan.run(inside)
            inside["t1"], inside["t2"] = (
                inside["t1"] + new["r1"] / inside["d1"],
                inside["t2"] + new["r2"] / inside["d2"],
            )
        assert np.abs(new["r2"]).max() < 1e-10
        return float(new["energy"])

    s = 4e-5  # The error is of the order s^2, and 1.4e-5 of the value for 2e-4.
    assert (energy(s) - energy(-s)) / (2 * s) == pytest.approx(expected, rel=1e-5)


def test_multipliers_that_are_not_found_are_an_error(water):
    _, arrays = water
    with pytest.raises(NotConverged, match=r"Lambda equations is \S+ after 2 iterations"):
        ccsd_properties.solve_lambda(arrays, most=2)
    # Without amplitudes and with no integrals but <ij||ab> the Jacobian is zero, and the energy is not stationary.
    singular = {name: np.zeros_like(x) for name, x in arrays.items()}
    singular |= {name: arrays[name] for name in ("oovv", "d1", "d2")}
    with pytest.raises(NotConverged, match="singular"):
        ccsd_properties.solve_lambda(singular)


def test_the_script_runs(capsys):
    assert ccsd_properties.main(["water", "--basis", "sto-3g"]) == 0
    assert "dipole moment" in capsys.readouterr().out
