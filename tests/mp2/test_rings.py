"""Ring correlation: exponential sums, opposite-spin MP2 and direct RPA."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyscf import df, gto, scf
from pyscf.gw import rpa, urpa

import trnqc
from trnqc.errors import InputError, MemoryLimit, MoleculeError, NotConverged, UnsupportedError
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.reference.orbitals import active_orbitals
from trnqc.mp2.rings.energies import opposite_spin_energy, rpa_energy
from trnqc.mp2.rings.quadrature import exponential_sum


@settings(max_examples=25, deadline=None)
@given(st.floats(0.05, 5), st.floats(1, 300), st.floats(1e-8, 1e-2), st.floats(0, 1))
def test_the_error_of_an_exponential_sum_is_within_its_bound(lowest, ratio, tolerance, place):
    total = exponential_sum(lowest, lowest * ratio, tolerance)
    x = lowest * ratio**place
    assert abs(1 - x * total(x)) <= 1.001 * total.relative_error <= 1.001 * tolerance
    assert (total.exponents > 0).all() and (total.weights > 0).all()


def test_more_points_gain_a_digit_and_few_are_needed():
    sizes = [len(exponential_sum(1.0, 30.0, 10.0**-digits).exponents) for digits in range(1, 11)]
    assert sizes == sorted(sizes) and sizes[6] <= 10


@pytest.mark.parametrize("interval", [(0.0, 1.0), (2.0, 1.0), (-1.0, 1.0), (1.0, np.inf)])
def test_a_sum_needs_an_interval_of_positive_numbers(interval):
    with pytest.raises(InputError, match="interval of positive numbers"):
        exponential_sum(*interval, 1e-6)


def test_a_sum_that_cannot_be_had_is_refused():
    with pytest.raises(NotConverged, match="freeze the core"):
        exponential_sum(1e-9, 1.0, 1e-14)


@pytest.fixture
def rng():
    return np.random.default_rng(7)


def execution(**options):
    return Execution(choose("cpu", "fp64"), **options)


def drawn(rng, nocc, nvir, naux, lowest=-2.0):
    return Factors(
        rng.standard_normal((nocc, nvir, naux)),
        np.sort(rng.uniform(lowest, -0.3, nocc)),
        np.sort(rng.uniform(0.1, 3, nvir)),
    )


def opposite_spin(a, b):
    integrals = np.einsum("iaP,jbP->iajb", a.B, b.B)
    gaps = [f.eps_occ[:, None] - f.eps_vir for f in (a, b)]
    return (integrals**2 / (gaps[0][:, :, None, None] + gaps[1])).sum()


@pytest.mark.parametrize("shape", [(1, 1, 1), (3, 5, 7), (2, 13, 4)])
@pytest.mark.parametrize("open_shell", [False, True])
def test_opposite_spin_energy_of_any_factors(rng, shape, open_shell):
    channels = [drawn(rng, *shape)] + ([drawn(rng, shape[0] + 1, shape[1] + 2, shape[2])] if open_shell else [])
    exact = opposite_spin(channels[0], channels[-1])
    for tolerance in (1e-3, 1e-6, 1e-9):
        result = opposite_spin_energy(channels, execution(), tolerance)
        assert abs(result.energy - exact) <= result.error + 1e-13 * abs(exact) and result.error <= tolerance


def test_sums_in_groups_and_blocks_are_the_same(rng, monkeypatch):
    channels = [drawn(rng, 5, 7, 11)]
    whole = opposite_spin_energy(channels, execution()), rpa_energy(channels, execution())
    monkeypatch.setattr("trnqc.mp2.rings.gram.ROWS", 10)
    few = execution(memory=8 * (5 * 7 * 11 + 2 * 2 * 7 * 11 + 4 * 11 * 11))
    parts = opposite_spin_energy(channels, few), rpa_energy(channels, few)
    assert [p.energy for p in parts] == pytest.approx([w.energy for w in whole], rel=1e-13)
    with pytest.raises(MemoryLimit, match="raise max_memory"):
        rpa_energy(channels, execution(memory=2000))


def test_points_are_chosen_again_for_an_energy_larger_than_expected(rng):
    """A hundred times the expected energy needs more points than were chosen at first."""
    small = drawn(rng, 4, 5, 6)
    large = Factors(30 * small.B, small.eps_occ, small.eps_vir)
    few, many = (opposite_spin_energy([factors], execution(), 1e-4) for factors in (small, large))
    assert many.energy == pytest.approx(30**4 * few.energy, rel=1e-4)
    assert many.error <= 1e-4 and many.points > few.points


@pytest.mark.parametrize("threads", [2, 3])
def test_threads_share_the_points(rng, threads):
    channels = [drawn(rng, 5, 7, 11)]
    alone, shared = (opposite_spin_energy(channels, execution(threads=n)) for n in (1, threads))
    assert (alone.energy, alone.points) == (shared.energy, shared.points)


def test_progress_counts_points(rng):
    reports = []
    rpa_energy([drawn(rng, 2, 3, 4)], execution(progress=lambda *report: reports.append(report)), points=7)
    assert reports[-1] == ("frequencies", 7, 7)


def test_orbitals_without_a_gap_are_refused(rng):
    factors = drawn(rng, 2, 3, 4)
    metal = Factors(factors.B, np.array([-1.0, 0.5]), np.array([0.2, 0.4, 0.9]))
    for energy in (opposite_spin_energy, rpa_energy):
        with pytest.raises(MoleculeError, match="positive gap"):
            energy([metal], execution())
    with pytest.raises(InputError, match="tolerance"):
        opposite_spin_energy([factors], execution(), 0.0)
    with pytest.raises(InputError, match="points"):
        rpa_energy([factors], execution(), 0)


def channels_of(mf, auxbasis):
    auxmol = df.addons.make_auxmol(mf.mol, auxbasis)
    spins = [(mf.mo_coeff, mf.mo_energy, mf.mo_occ)]
    if isinstance(mf, scf.uhf.UHF):
        spins = list(zip(mf.mo_coeff, mf.mo_energy, mf.mo_occ))
    return [build_factors(mf.mol, auxmol, [active_orbitals(*spin, None)], execution()) for spin in spins]


@pytest.mark.parametrize(
    ("atom", "spin", "reference"),
    [
        ("O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587", 0, rpa.RPA),
        ("N 0 0 0; O 0 1.10 0.47; O 0 -1.10 0.47", 1, urpa.URPA),
    ],
)
def test_rpa_agrees_with_pyscf(atom, spin, reference):
    mol = gto.M(atom=atom, basis="6-31g", spin=spin, verbose=0)
    mf = (scf.UHF if spin else scf.RHF)(mol).run()
    theirs = reference(mf)
    theirs.with_df = df.DF(mol, "cc-pvdz-ri")
    theirs.kernel()
    assert rpa_energy(channels_of(mf, "cc-pvdz-ri"), execution()).energy == pytest.approx(theirs.e_corr, abs=1e-8)


WATER = "O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587"
RADICAL = "N 0 0 0; H 0 0.80 0.63; H 0 -0.80 0.63"


@pytest.mark.parametrize(("atom", "spin"), [(WATER, 0), (RADICAL, 1)])
@pytest.mark.parametrize("frozen", [None, 1])
def test_sos_mp2_is_that_of_dfmp2(atom, spin, frozen):
    mf = gto.M(atom=atom, basis="cc-pvdz", spin=spin, verbose=0).HF().run()
    exact = trnqc.DFMP2(mf, frozen=frozen).run().result.e_corr_sos
    for tolerance in (1e-6, 1e-10):
        sos = trnqc.SOSMP2(mf, frozen=frozen, tolerance=tolerance).run()
        assert abs(sos.e_corr - exact) <= sos.result.error + 1e-12 and sos.result.error <= tolerance
        assert sos.e_tot == mf.e_tot + sos.e_corr


@pytest.mark.parametrize(("atom", "spin", "theirs"), [(WATER, 0, rpa.RPA), (RADICAL, 1, urpa.URPA)])
def test_rpa_of_kohn_sham_orbitals_agrees_with_pyscf(atom, spin, theirs):
    mf = gto.M(atom=atom, basis="cc-pvdz", spin=spin, verbose=0).KS(xc="PBE")
    mf.grids.atom_grid = (15, 50)
    mf = mf.density_fit().run()
    reference = theirs(mf)
    reference.with_df = df.DF(mf.mol, "cc-pvdz-ri")
    reference.kernel()
    ours = trnqc.RPA(mf).run()
    assert ours.e_corr == pytest.approx(reference.e_corr, abs=1e-9)
    assert ours.e_tot == pytest.approx(reference.e_tot, abs=1e-9)
    core = trnqc.RPA(mf).set_frozen().run()
    assert ours.e_corr < core.e_corr < 0.9 * ours.e_corr


def test_a_spin_without_electrons_to_correlate():
    mf = scf.UHF(gto.M(atom="H", basis="cc-pvdz", spin=1, verbose=0)).run()
    sos = trnqc.SOSMP2(mf).run()
    assert (sos.e_corr, sos.result.error) == (0.0, 0.0)
    assert trnqc.RPA(mf).run().e_corr < -1e-3  # Direct RPA correlates an electron with itself.


def test_references_of_ring_methods():
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0)
    kohn_sham, triplet = mol.KS(xc="PBE").run(), gto.M(atom="O", basis="sto-3g", spin=2, verbose=0).ROHF().run()
    with pytest.raises(UnsupportedError, match="Kohn-Sham"):
        trnqc.SOSMP2(kohn_sham)
    with pytest.raises(UnsupportedError, match="RHF or UHF object, got ROHF"):
        trnqc.RPA(triplet)
    with pytest.raises(InputError, match="c_os must be a positive factor"):
        trnqc.SOSMP2(mol.HF().run(), c_os=0.0).kernel()
