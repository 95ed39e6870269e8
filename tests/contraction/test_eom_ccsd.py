"""The example that finds excited states of coupled cluster as eigenvalues of its Jacobian, against PySCF's."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import cc, gto, scf
from pyscf.cc import eom_rccsd

from examples import eom_ccsd
from trnqc.errors import NotConverged


def reference(atoms, basis):
    mol = gto.M(atom=atoms, basis=basis, verbose=0)
    return scf.RHF(mol).run(conv_tol=1e-14, conv_tol_grad=1e-10)


@pytest.fixture(scope="module")
def water():
    """The SCF and solved arrays of a molecule without symmetry but its plane, in a minimal basis."""
    mf = reference("O 0 0 0; H 0.1 0.9 0.5; H 0 -0.7 0.6", "sto-3g")
    return mf, eom_ccsd.solved(mf)


@pytest.fixture(scope="module")
def excitation(water):
    return eom_ccsd.Jacobian(water[1])


def dense(product, size):
    return np.array([product(x) for x in np.eye(size)]).T


def spectrum(eom):
    """All eigenvalues of PySCF's matrix, ascending. Its own solver leaves residuals of 1e-7."""
    product, _ = eom.gen_matvec()
    values = np.linalg.eigvals(dense(lambda x: np.asarray(product([x])[0]), eom.vector_size())).real
    return np.sort(values[abs(values) > 1e-6])  # Zeros stem from elements of its vectors that are no amplitudes.


def of_pyscf(mf):
    return cc.CCSD(mf).run(conv_tol=1e-13, conv_tol_normt=1e-11)


def test_excitations_are_all_of_the_jacobian_of_pyscf(water, excitation):
    theirs = of_pyscf(water[0])
    singlets, triplets = spectrum(eom_rccsd.EOMEESinglet(theirs)), spectrum(eom_rccsd.EOMEETriplet(theirs))
    energies, vectors = eom_ccsd.lowest(excitation, 8)
    np.testing.assert_allclose(energies, np.sort([*singlets, *triplets])[:8], rtol=0, atol=1e-9)
    names = [eom_ccsd.multiplicity("ee", *excitation.amplitudes(x)) for x in vectors]
    assert [name == "singlet" for name in names] == [min(abs(singlets - energy)) < 1e-8 for energy in energies]
    assert {"singlet", "triplet"} == set(names)
    # Every singlet and triplet is among the states without a change of spin; quintets are there besides.
    every = np.linalg.eigvals(dense(excitation.__matmul__, excitation.gaps.size)).real
    distances = np.abs(every[:, None] - np.concatenate([singlets, triplets])).min(axis=0)
    assert distances.max() < 1e-8 and every.size > singlets.size


@pytest.mark.slow
def test_water_in_a_split_basis():
    mf = reference(str(eom_ccsd.ccsd.HERE / "molecules" / "water.xyz"), "6-31g")
    energies, _ = eom_ccsd.lowest(eom_ccsd.Jacobian(eom_ccsd.solved(mf)), 4)
    # PySCF stops at residuals of 1e-7 Hartree.
    np.testing.assert_allclose(energies, eom_ccsd.of_pyscf(mf, "ee", 4), rtol=0, atol=1e-8)


@pytest.mark.parametrize("states, kind", [("ip", eom_rccsd.EOMIP), ("ea", eom_rccsd.EOMEA)])
def test_ions_are_all_of_the_jacobian_of_pyscf(water, states, kind):
    doublets = spectrum(kind(of_pyscf(water[0])))
    jacobian = eom_ccsd.Jacobian(water[1], states)
    free = {"ip": 5, "ea": 2}[states]  # orbitals from which an alpha electron is removed, or to which it is attached
    assert jacobian.singles == free
    # Every doublet is among the states; quartets are there besides.
    every = np.linalg.eigvals(dense(jacobian.__matmul__, jacobian.gaps.size)).real
    assert np.abs(every[:, None] - doublets).min(axis=0).max() < 1e-8 and every.size > doublets.size
    energies, vectors = eom_ccsd.lowest(jacobian, 8)
    np.testing.assert_allclose(energies, np.sort(every)[:8], rtol=0, atol=1e-9)
    names = [eom_ccsd.multiplicity(states, *jacobian.amplitudes(x)) for x in vectors]
    assert [name == "doublet" for name in names] == [min(abs(doublets - energy)) < 1e-8 for energy in energies]
    assert {"doublet", "quartet"} == set(names)


@pytest.mark.slow
@pytest.mark.parametrize("states", ["ip", "ea"])
def test_ions_of_water_in_a_split_basis(states):
    mf = reference(str(eom_ccsd.ccsd.HERE / "molecules" / "water.xyz"), "6-31g")
    jacobian = eom_ccsd.Jacobian(eom_ccsd.solved(mf), states)
    energies, _ = eom_ccsd.lowest(jacobian, 3)
    # PySCF stops at residuals of 1e-7 Hartree.
    np.testing.assert_allclose(energies, eom_ccsd.of_pyscf(mf, states, 3), rtol=0, atol=1e-8)


def test_the_product_is_the_derivative_of_the_residuals(water, excitation):
    """By finite differences; spin is conserved."""
    _, arrays = water
    plan = eom_ccsd.einsum_plan(eom_ccsd.ccsd_properties.sized(arrays), outputs=("r1", "r2"))
    x = np.random.default_rng(3).standard_normal(excitation.gaps.size)
    d1, d2 = excitation.amplitudes(x)
    assert not d1[:5, 2:].any() and not d2[:5, :5, :, 2:].any() and d2[:5, 5:, 2:, :2].all()
    s, t1, t2 = 1e-5, arrays["t1"], arrays["t2"]
    multipliers = {"l1": np.zeros_like(t1), "l2": np.zeros_like(t2)}
    ahead, behind = (plan.run({**arrays, **multipliers, "t1": t1 + h * d1, "t2": t2 + h * d2}) for h in (s, -s))
    product = excitation.amplitudes(excitation @ x)
    for name, value in zip(("r1", "r2"), product):
        # The error is of third order in s, and rounding of 1e-16 / s.
        np.testing.assert_allclose(value, (ahead[name] - behind[name]) / (2 * s), rtol=0, atol=1e-7)


def test_states_that_are_not_found_are_an_error(excitation):
    with pytest.raises(NotConverged, match=r"residual of 3 states is \S+ Hartree after at most 2 iterations"):
        eom_ccsd.lowest(excitation, 3, most=2)
    with pytest.raises(ValueError, match="from 1 to 140, the number of amplitudes; found 141"):
        eom_ccsd.lowest(excitation, 141)


def test_the_script_runs(capsys):
    assert eom_ccsd.main(["water", "--basis", "sto-3g", "--roots", "1"]) == 0
    assert "triplet" in capsys.readouterr().out
    assert eom_ccsd.main(["water", "--basis", "sto-3g", "--roots", "2", "--states", "ip"]) == 0
    assert capsys.readouterr().out.count("doublet") == 2
