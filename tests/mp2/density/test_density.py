"""Densities against PySCF's native DF-MP2 and against derivatives by finite electric fields."""

from __future__ import annotations

import copy
from dataclasses import replace

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf.mp import dfmp2_native, dfump2_native

import trnqc
from tests.mp2.density.references import Parts, converged
from trnqc.errors import CompilerError, InputError, MemoryLimit, NotConverged, TrnqcError
from trnqc.mp2.density import sets
from trnqc.mp2.density.density import correlation_density
from trnqc.mp2.density.pair_sums import pair_sums
from trnqc.mp2.execution import choose
from trnqc.mp2.pairs.pairs import ResultWarning
from trnqc.mp2.response.rotations import CanonicalRotations
from trnqc.mp2.response.zvector import ZVectorOptions, solve_z_vector

SCS = (6 / 5, 1 / 3)
SOS = (1.3, 0.0)
MP2 = (1.0, 1.0)


def peer(parts, frozen, scaling):
    mf = parts.mf
    cls = dfump2_native.DFUMP2 if len(parts.spins) == 2 else dfmp2_native.DFRMP2
    mp = cls(mf, frozen=frozen, auxbasis="cc-pvdz-ri")
    mp.ps, mp.pt = scaling
    return mp


@pytest.mark.parametrize("name", ["water", "water cation"])
@pytest.mark.parametrize(("fitted", "frozen", "scaling"), [(True, None, MP2), (False, 1, SCS), (True, 1, SOS)])
def test_against_pyscf(name, fitted, frozen, scaling, tight_krylov):
    parts = Parts(converged(name, fitted), frozen)
    mp = peer(parts, frozen, scaling)
    # Divisions by differences of orbital energies, of at least 1e-4, cost the unrelaxed density a few digits.
    for relaxed, tolerance in ((False, 1e-11), (True, 1e-8)):
        density = correlation_density(*parts.arguments, scaling=scaling, relaxed=relaxed)
        for ao_repr in (False, True):
            expected = mp.make_rdm1(relaxed=relaxed, ao_repr=ao_repr)
            assert np.abs(density.rdm1(ao_repr) - expected).max() < tolerance
        energy = scaling[0] * density.energies.os + scaling[1] * density.energies.ss
        assert energy == pytest.approx(mp.calculate_energy(), abs=1e-12)


def total_energy(name, fitted, frozen, scaling, field):
    parts = Parts(converged(name, fitted, field), frozen)
    energies = pair_sums(parts.factors, scaling, parts.execution).energies
    return parts.mf.e_tot + scaling[0] * energies.os + scaling[1] * energies.ss


@pytest.mark.parametrize(
    ("name", "fitted", "frozen", "scaling"),
    [
        ("water", True, 1, SCS),
        ("water", False, None, MP2),
        ("water", True, [0, 11, 12], MP2),
        ("water", False, [1, 3], SOS),
        ("water cation", True, 1, SCS),
        ("water cation", False, [0, 12], MP2),
        ("ammonia", True, 1, MP2),
    ],
)
def test_dipole_is_the_derivative_by_an_electric_field(name, fitted, frozen, scaling):
    parts = Parts(converged(name, fitted), frozen)
    density = correlation_density(*parts.arguments, scaling=scaling, relaxed=True).rdm1(ao_repr=True)
    density = density if density.ndim == 2 else density.sum(axis=0)
    step = 2e-3
    for axis, r in enumerate(parts.mf.mol.intor("int1e_r")):
        if axis == 1:
            continue  # Two directions are enough to tell a wrong element.
        energies = {
            n: total_energy(name, fitted, frozen, scaling, tuple(n * step * np.eye(3)[axis])) for n in (-2, -1, 1, 2)
        }
        slope = (8 * (energies[1] - energies[-1]) - (energies[2] - energies[-2])) / (12 * step)
        # The error of the four-point formula is of order step^4.
        assert np.vdot(r, density) == pytest.approx(slope, abs=2e-7)


@pytest.mark.parametrize("name", ["water", "water cation", "ammonia"])
def test_sums_do_not_depend_on_the_sets_of_orbitals(name, monkeypatch):
    parts = Parts(converged(name, True), 1)
    whole = pair_sums(parts.factors, SCS, parts.execution)
    monkeypatch.setattr(sets, "_WIDEST", 2)
    divided = pair_sums(parts.factors, SCS, parts.execution)
    assert divided.energies.os == pytest.approx(whole.energies.os, abs=1e-14)
    for one, other in zip((*whole.p_occ, *whole.p_vir), (*divided.p_occ, *divided.p_vir)):
        assert np.abs(one - other).max() < 1e-11
    assert all(np.abs(p - p.T).max() < 1e-11 for p in (*divided.p_occ, *divided.p_vir))
    for one, other in zip(whole.gamma, divided.gamma):
        assert np.abs(one[:] - other[:]).max() < 1e-14


@pytest.mark.parametrize("name", ["water cation", "ammonia"])
@pytest.mark.parametrize("scaling", [SCS, SOS, (0.0, 1.0)])
def test_sums_without_a_compiler(name, scaling, monkeypatch):
    parts = Parts(converged(name, True), 1)
    compiled = pair_sums(parts.factors, scaling, parts.execution)

    def no_compiler():
        raise CompilerError("no C compiler")

    monkeypatch.setattr("trnqc.backends.cpu.pair_amplitudes.amplitude_library", no_compiler)
    by_numpy = pair_sums(parts.factors, scaling, parts.execution)
    assert "compiled" in compiled.ran_on and "compiled" not in by_numpy.ran_on
    assert by_numpy.energies.ss == pytest.approx(compiled.energies.ss, abs=1e-14)
    for one, other in zip((*compiled.p_occ, *compiled.p_vir), (*by_numpy.p_occ, *by_numpy.p_vir)):
        assert np.abs(one - other).max() < 1e-12
    for one, other in zip(compiled.gamma, by_numpy.gamma):
        assert np.abs(one[:] - other[:]).max() < 1e-14


def test_degenerate_orbitals_stay_in_one_set():
    cuts = sets.orbital_sets(np.array([-1.0, -0.6, -0.6 + 1e-6, -0.6 + 2e-6, -0.2]), 2)
    assert cuts == (slice(0, 1), slice(1, 4), slice(4, 5))


def test_orbitals_need_not_be_in_the_order_of_their_energies():
    """Degenerate orbitals with others between them are in one set; else the density has noise divided by a tiny gap."""
    cuts = sets.orbital_sets(np.array([-0.6, -1.0, -0.6 + 1e-6, -0.2, -2.0, -0.1]), 1)
    assert cuts == (slice(0, 3), slice(3, 4), slice(4, 5), slice(5, 6))
    mf = converged("nitrogen", True)
    order = np.arange(len(mf.mo_energy))
    order[[3, 5]] = order[[5, 3]]
    other = copy.copy(mf)
    other.mo_coeff, other.mo_energy = mf.mo_coeff[:, order], mf.mo_energy[order]
    assert abs(other.mo_energy[3] - other.mo_energy[6]) < 1e-8, "the two orbitals of symmetry pi are no neighbours"
    expected, density = (correlation_density(*Parts(one).arguments).rdm1(True) for one in (mf, other))
    assert np.abs(density - expected).max() < 1e-10


@pytest.mark.parametrize("name", ["water", "water cation"])
def test_gamma_on_disk(name, monkeypatch):
    parts = Parts(converged(name, True), 1)
    in_memory = correlation_density(*parts.arguments, relaxed=True)
    monkeypatch.setattr(sets.PairMemory, "holds_gamma", lambda self, room, width: False)
    assert pair_sums(parts.factors, MP2, parts.execution).gamma[0].on_disk
    on_disk = correlation_density(*parts.arguments, relaxed=True)
    assert np.abs(in_memory.rdm1() - on_disk.rdm1()).max() < 1e-12


def test_gamma_goes_to_disk_where_it_does_not_fit():
    memory = sets.PairMemory(((50, 500, 1500),), threads=2)
    assert memory.holds_gamma(memory.factors + memory.block(1))
    assert not memory.holds_gamma(memory.factors + memory.block(1) - 1)


def test_too_little_memory():
    parts = Parts(converged("water", True), 1)
    with pytest.raises(
        MemoryLimit, match=r"keeps .nearly. degenerate orbitals together, need .* left of the memory limit"
    ):
        pair_sums(parts.factors, MP2, replace(parts.execution, memory=3e4))


def test_every_limit_above_the_smallest_is_enough():
    """Γ goes to disk where it would leave too little memory for a set of degenerate orbitals."""
    mf = scf.RHF(gto.M(atom="N 0 0 0; N 0 0 1.1", basis="6-31g", verbose=0)).density_fit().run()
    parts = Parts(mf, 2)
    energies = pair_sums(parts.factors, MP2, parts.execution).energies
    (shape,) = (factors.shape for factors in parts.factors)
    memory = sets.PairMemory((shape,), parts.execution.threads)
    least = memory.factors + memory.block(2)
    with pytest.raises(MemoryLimit, match="densities of 2 occupied orbitals"):
        pair_sums(parts.factors, MP2, replace(parts.execution, memory=least - 1))
    for more in np.linspace(0, 2 * memory.factors, 6):
        limited = pair_sums(parts.factors, MP2, replace(parts.execution, memory=least + more)).energies
        assert limited.os == pytest.approx(energies.os, abs=1e-12)


def test_closed_shell_as_two_spins():
    """A closed shell as two spins has the density of the closed shell."""
    mf = converged("water", True)
    closed = correlation_density(*Parts(mf, 1).arguments, scaling=SCS, relaxed=True).rdm1()
    opened = correlation_density(*Parts(mf.to_uhf(), 1).arguments, scaling=SCS, relaxed=True).rdm1()
    assert np.abs(opened[0] - closed / 2).max() < 1e-9
    assert np.abs(opened[1] - opened[0]).max() < 1e-9


def test_not_converged():
    parts = Parts(converged("water", True))
    with pytest.raises(NotConverged, match="have not converged in 2 iterations: the residual is"):
        correlation_density(*parts.arguments, relaxed=True, options=ZVectorOptions(max_cycle=2))


class Concave:
    """A response that makes the second derivative of the SCF energy negative, or zero if the factor is -1."""

    rough = None

    def __init__(self, parts, factor=-1.5) -> None:
        (spin,) = parts.spins
        self.spin, self.factor = spin, factor
        self.gap = np.subtract.outer(spin.energies[~spin.occupied], spin.energies[spin.occupied])

    def columns(self, densities):
        return [np.zeros((self.spin.nmo, self.spin.nocc))]

    def rotation(self, z):
        return [self.spin.rotated(self.factor * self.gap * z[0])[:, self.spin.occupied]]


def solve(spin, response):
    """Solve the Z-vector equations of a constant of ones."""
    rotations = CanonicalRotations([spin])
    return solve_z_vector(np.ones_like(rotations.gap), [np.zeros((spin.nmo, spin.nmo))], [spin], rotations, response)


@pytest.mark.parametrize("factor", [-1.5, -1.0])
def test_scf_that_is_no_minimum(factor):
    parts = Parts(converged("water", True))
    with pytest.raises(TrnqcError, match=r"not a minimum.*not positive definite. mf.stability"):
        solve(parts.spins[0], Concave(parts, factor))


def test_occupied_orbital_above_a_virtual_one():
    parts = Parts(converged("water", True))
    (spin,) = parts.spins
    swapped = replace(spin, occupied=np.roll(spin.occupied, 1))
    with pytest.raises(TrnqcError, match=r"lowest virtual orbital lies .* Hartree below the highest occupied"):
        solve(swapped, Concave(parts))


def with_gap(parts, gap):
    """The factors, with the lowest virtual energy of each spin above the highest occupied one by `gap` Hartree."""
    return [replace(f, eps_vir=np.concatenate([f.eps_occ[-1:] + gap, f.eps_vir[1:]])) for f in parts.factors]


@pytest.mark.filterwarnings("ignore:invalid value:RuntimeWarning")
@pytest.mark.parametrize(
    ("name", "pair", "spin"), [("water", r"3, 3", ""), ("water cation", r"3, 2", " of alpha and beta spin")]
)
def test_small_denominators_are_named(name, pair, spin):
    parts = Parts(converged(name, True), 1)
    words = rf"the pair \({pair}\) and the virtual orbitals \(0, 0\){spin} is only"
    with pytest.warns(ResultWarning, match=words):
        pair_sums(with_gap(parts, 1e-3), MP2, parts.execution)
    with pytest.raises(TrnqcError, match=rf"not finite: .*{words} 0 Hartree"):
        pair_sums(with_gap(parts, 0.0), MP2, parts.execution)


def test_frozen_and_correlated_orbitals_that_are_degenerate():
    parts = Parts(converged("ammonia", True), [0, 2])
    eps = parts.spins[0].energies
    assert abs(eps[2] - eps[3]) < 1e-3
    eps[3] = eps[2]
    with pytest.raises(TrnqcError, match="frozen orbital 2 and the correlated orbital 3 have the same energy"):
        correlation_density(*parts.arguments, relaxed=True)


def test_factors_of_other_orbitals():
    parts = Parts(converged("water", True), 1)
    other = Parts(converged("water", True))
    with pytest.raises(InputError, match=r"\[\(4, 8\)\] .* were expected, found \[\(5, 8\)\]"):
        correlation_density(parts.mf, parts.spins, other.factors, parts.auxmol, parts.execution)


@pytest.mark.parametrize("name", ["water", "water cation"])
@pytest.mark.parametrize(("precision", "error"), [("fp32", 1e-6), ("bf16x3", 2e-5)])
def test_gamma_of_the_simulated_kernel(name, precision, error):
    """Γ by the NKI kernel on the simulator, in relaxed densities of closed and open shells."""
    parts = Parts(converged(name, True), 1)
    on_host = correlation_density(*parts.arguments, scaling=SCS, relaxed=True)
    parts.execution = replace(parts.execution, choice=choose("simulator", precision))
    simulated = correlation_density(*parts.arguments, scaling=SCS, relaxed=True)
    difference = np.abs(simulated.rdm1() - on_host.rdm1()).max()
    assert 1e-12 < difference < error
    gammas = [pair_sums(parts.factors, SCS, execution) for execution in (parts.execution, Parts(parts.mf).execution)]
    assert "trnqc.sim" in gammas[0].ran_on and "NumPy" in gammas[1].ran_on
    for ours, theirs in zip(gammas[0].gamma, gammas[1].gamma):
        assert np.abs(ours[:] - theirs[:]).max() < error


def test_gamma_of_the_kernel_keeps_the_memory_limit():
    parts = Parts(converged("water", True), 1, memory=2e6)
    parts.execution = replace(parts.execution, choice=choose("simulator", "fp32"))
    density = correlation_density(*parts.arguments)
    free = Parts(converged("water", True), 1)
    assert np.abs(density.rdm1() - correlation_density(*free.arguments).rdm1()).max() < 1e-6


def test_spin_without_correlated_electrons():
    """Helium with a hydrogen atom far away: the only correlated pair is that of helium."""
    atoms = {"atom": "He 0 0 0; H 0 0 40", "basis": "6-31g", "verbose": 0}
    radical = scf.UHF(gto.M(**atoms, spin=1)).run(conv_tol=1e-12)
    lithium = scf.UHF(gto.M(atom="Li 0 0 0; H 0 0 1.6", basis="6-31g", spin=2, verbose=0)).run(conv_tol=1e-12)
    helium = scf.RHF(gto.M(atom="He 0 0 0", basis="6-31g", verbose=0)).run(conv_tol=1e-12)
    mp = trnqc.DFMP2(radical, auxbasis="cc-pvdz-ri").run()
    assert mp.e_corr == pytest.approx(trnqc.DFMP2(helium, auxbasis="cc-pvdz-ri").run().e_corr, abs=1e-8)
    no_beta = trnqc.DFMP2(lithium, auxbasis="cc-pvdz-ri", frozen=[[], [0]]).make_rdm1(relaxed=True)
    assert no_beta.trace(axis1=1, axis2=2) == pytest.approx([3, 1], abs=1e-10)
    assert mp.make_rdm1(relaxed=True).trace(axis1=1, axis2=2) == pytest.approx([2, 1], abs=1e-10)
