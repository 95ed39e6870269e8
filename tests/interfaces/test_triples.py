"""Perturbative triples against PySCF, and against the formulas written as sums over whole arrays."""

from __future__ import annotations

import tracemalloc
from functools import cache
from itertools import permutations

import numpy as np
import pytest
from pyscf import cc, gto, scf

from examples import rccsd_triples as example
from trnqc.errors import InputError, MemoryLimit, NotConverged
from trnqc.interfaces.triples import Operands, energy, rccsd_triples, triples_energy
from trnqc.interfaces.triples.memory import OVERHEAD, block_size, needed
from trnqc.mp2.reference.molecule import build_mole, load_geometry

WATER = "O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587"
METHANE = "C 0 0 0; H .63 .63 .63; H -.63 -.63 .63; H -.63 .63 -.63; H .63 -.63 -.63"


@cache
def coupled_cluster(atoms, basis, frozen=0):
    mf = scf.RHF(gto.M(atom=atoms, basis=basis, verbose=0)).run(conv_tol=1e-11)
    return cc.CCSD(mf, frozen=frozen).run()


@pytest.mark.parametrize(
    ("atoms", "basis", "frozen"),
    [
        (WATER, "6-31g", 0),
        ("N 0 0 0; N 0 0 1.1", "6-31g", 2),
        ("Li 0 0 0; H 0 0 1.6", "6-31g", 0),
        (METHANE, "6-31g", 1),
        ("H 0 0 0; H 0 0 0.74", "6-31g", 0),
        pytest.param(WATER, "cc-pvtz", 1, marks=pytest.mark.slow),
    ],
    ids=["water", "N2 with frozen core", "LiH", "methane with frozen core", "H2 has no triples", "water in cc-pVTZ"],
)
def test_energy_is_that_of_pyscf(atoms, basis, frozen):
    theirs = coupled_cluster(atoms, basis, frozen)
    # Sums of some million terms of about 1e-8 in another order.
    assert rccsd_triples(theirs) == pytest.approx(theirs.ccsd_t(), abs=1e-12)


def random_operands(o, v, seed=1):
    """Amplitudes and integrals with the symmetries of real orbitals, and Fock elements f_ia as without RHF."""
    rng = np.random.default_rng(seed)
    n = o + v
    eri = rng.standard_normal((n,) * 4)
    for axes in ((1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)):
        eri = eri + eri.transpose(axes)
    t2 = rng.standard_normal((o, o, v, v))
    integrals = eri[:o, o:, o:, o:]
    return Operands(
        t1=rng.standard_normal((o, v)),
        t2=t2 + t2.transpose(1, 0, 3, 2),
        fock=rng.standard_normal((o, v)),
        occupied=-1 - rng.random(o),
        virtual=1 + rng.random(v),
        ovov=eri[:o, o:, :o, o:],
        ovoo=eri[:o, o:, :o, :o],
        ovvv=lambda i: integrals[i],
    )


def reference(x):
    """The energy over all i, j, k, by whole arrays: Rendell, Lee and Komornicki 1991."""
    ovvv = np.array([x.ovvv(i) for i in range(len(x.t1))])
    w = np.einsum("iabf,kjcf->ijkabc", ovvv, x.t2) - np.einsum("iajm,mkbc->ijkabc", x.ovoo, x.t2)
    v = np.einsum("ia,jbkc->ijkabc", x.t1, x.ovov) + np.einsum("ia,jkbc->ijkabc", x.fock, x.t2)
    pairs = list(permutations(range(3)))
    w = sum(w.transpose(*p, *(3 + n for n in p)) for p in pairs)
    v = w + sum(v.transpose(*p, *(3 + n for n in p)) for p in pairs) / 2
    above, below = x.occupied, x.virtual
    d = np.add.outer(np.add.outer(above, above), above)[..., None, None, None] - np.add.outer(
        np.add.outer(below, below), below
    )
    mixed = 4 * w + w.transpose(0, 1, 2, 5, 3, 4) + w.transpose(0, 1, 2, 4, 5, 3)
    return np.sum(mixed * (v - v.transpose(0, 1, 2, 5, 4, 3)) / d) / 3


@pytest.mark.parametrize(
    ("o", "v"),
    [(2, 2), (2, 7), (3, 8), (5, 11), (9, 3), (2, 17)],
    ids=["smallest", "below a tile", "a tile", "primes", "occupied beyond a tile", "several tiles"],
)
def test_energy_is_the_sum_over_whole_arrays(o, v):
    operands = random_operands(o, v)
    # Relative: the elements of these operands are about 1, and the squares have errors of that size times 1e-16.
    assert triples_energy(operands) == pytest.approx(reference(operands), rel=1e-11)


@pytest.mark.parametrize("held", [3, 6])
def test_blocks_of_occupied_orbitals_and_threads_change_no_digit(held):
    operands = random_operands(7, 5)
    whole = triples_energy(operands, threads=1)
    read = []
    counted = Operands(**{**vars(operands), "ovvv": lambda i: read.append(i) or operands.ovvv(i)})
    assert triples_energy(counted, threads=2, memory_limit=needed(7, 5, 2, held)) == whole
    assert len(read) > 7  # orbitals were dropped and read again


def test_a_block_is_the_largest_that_fits():
    assert block_size(10, 30, 1, None) == 10
    assert block_size(10, 30, 1, needed(10, 30, 1, 10)) == 10
    assert block_size(10, 30, 1, needed(10, 30, 1, 10) - 1) == 3
    assert block_size(10, 30, 1, needed(10, 30, 1, 6)) == 2


def test_a_limit_that_is_too_small_names_one_that_does():
    operands = random_operands(4, 5)
    least = needed(4, 5, 2, 3)
    with pytest.raises(MemoryLimit, match=f"pass a memory_limit of {least} bytes or fewer threads than 2"):
        triples_energy(operands, memory_limit=least - 1, threads=2)
    triples_energy(operands, memory_limit=least, threads=2)


def test_a_run_keeps_its_limit():
    o, v = 7, 30
    operands = random_operands(o, v)
    triples_energy(operands, threads=1)  # loads the programs
    limit = needed(o, v, 1, 3)
    tracemalloc.start()
    try:
        triples_energy(operands, threads=1, memory_limit=limit)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # No array of this size comes from mmap, which is not traced. The limit is no vast bound either.
    assert 0.5 * (limit - OVERHEAD) < peak < limit


def test_an_error_of_a_thread_ends_the_others(monkeypatch):
    def fail(self, triple, orbitals):
        raise KeyboardInterrupt

    monkeypatch.setattr(energy.Worker, "energy", fail)
    with pytest.raises(KeyboardInterrupt):
        triples_energy(random_operands(4, 5), threads=2)


def test_integrals_may_lie_in_the_file_of_pyscf():
    theirs = coupled_cluster(WATER, "6-31g")
    outcore = cc.CCSD(theirs._scf)
    outcore.max_memory = 0
    eris = cc.ccsd._make_eris_outcore(outcore)
    assert not isinstance(eris.ovvv, np.ndarray)
    assert rccsd_triples(theirs, eris=eris) == pytest.approx(theirs.ccsd_t(), abs=1e-12)


def test_inputs_that_are_no_closed_shell_are_refused():
    water = coupled_cluster(WATER, "6-31g")
    with pytest.raises(InputError, match="closed shell"):
        rccsd_triples(water, (water.t1, water.t1), (water.t2,) * 3)
    with pytest.raises(InputError, match="real fp64"):
        rccsd_triples(water, water.t1, water.t2.astype(complex))
    with pytest.raises(InputError, match="both t1 and t2"):
        rccsd_triples(water, water.t1)
    with pytest.raises(InputError, match="positive number of bytes"):
        rccsd_triples(water, memory_limit=0)
    with pytest.raises(InputError, match="expected finite amplitudes"):
        rccsd_triples(water, water.t1, np.full_like(water.t2, np.nan))


def test_amplitudes_have_to_be_converged_or_passed():
    water = coupled_cluster(WATER, "6-31g")
    stopped = cc.CCSD(water._scf)
    with pytest.raises(NotConverged, match="no amplitudes"):
        rccsd_triples(stopped)
    stopped.max_cycle = 1
    stopped.kernel()
    with pytest.raises(NotConverged, match="pass t1 and t2"):
        rccsd_triples(stopped)
    assert rccsd_triples(stopped, stopped.t1, stopped.t2) == pytest.approx(stopped.ccsd_t(), abs=1e-12)


def test_the_example_prints_the_energies_of_pyscf(capsys):
    assert example.main(["water", "--basis", "sto-3g", "--memory", "10M"]) == 0
    *_, total = capsys.readouterr().out.split("E(CCSD(T))")
    mol = build_mole(load_geometry("water"), "sto-3g")
    theirs = cc.CCSD(scf.RHF(mol).run(conv_tol=1e-11)).run()
    assert float(total.split()[0]) == pytest.approx(theirs.e_tot + theirs.ccsd_t(), abs=1e-8)
