"""The energy (T) of closed-shell coupled cluster within a memory limit, against PySCF's from the same integrals.

The amplitudes are those after one iteration: no step of either program depends on their values.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from pyscf import cc, gto, lib, scf

from scripts import ROOT
from scripts.contract.disk import resident_peak
from scripts.measuring import clocked, in_turns, ratio
from trnqc.host.threads import cpus
from trnqc.interfaces.triples import rccsd_triples

# Molecule in examples/molecules, basis set, frozen orbitals, memory limits in bytes.
CASES: tuple[tuple[str, str, int, tuple[int, ...]], ...] = (
    ("benzene", "cc-pvdz", 6, (300 * 10**6, 150 * 10**6)),
    ("benzene", "6-31g", 6, (300 * 10**6,)),
    ("benzene", "sto-3g", 6, (300 * 10**6,)),
    ("water", "cc-pvqz", 1, (300 * 10**6,)),
)
ROUNDS = 2
# Largest difference of the energies, Hartree.
TOLERANCE = 1e-9


def triples() -> dict[str, Any]:
    threads = (1, 2) if cpus() > 1 else (1,)
    return {f"{case[0]}/{case[1]}, {n} threads": _case(*case, threads=n) for case in CASES for n in threads}


def _case(molecule: str, basis: str, frozen: int, limits: tuple[int, ...], threads: int) -> dict[str, Any]:
    geometry = str(ROOT / "examples" / "molecules" / f"{molecule}.xyz")
    theirs = cc.CCSD(scf.RHF(gto.M(atom=geometry, basis=basis, verbose=0)).run(conv_tol=1e-12), frozen=frozen)
    eris = theirs.ao2mo()
    t1, t2 = theirs.update_amps(*theirs.init_amps(eris)[1:], eris)
    contestants: dict[str, Callable[[], float]] = {"pyscf": partial(theirs.ccsd_t, t1=t1, t2=t2, eris=eris)}
    for limit in limits:
        work = partial(rccsd_triples, theirs, t1, t2, eris, memory_limit=limit, threads=threads)
        contestants[f"trnqc within {limit / 1e6:.0f} MB"] = work
    energies: dict[str, float] = {}
    with lib.with_omp_threads(threads):
        runs = {name: partial(_measured, energies, name, work) for name, work in contestants.items()}
        answers = in_turns(ROUNDS, runs)
    times = {name: [answer[:2] for answer in all_of] for name, all_of in answers.items()}
    peaks = {name: max(answer[2] for answer in all_of) for name, all_of in answers.items()}
    errors = {name: abs(energy - energies["pyscf"]) for name, energy in energies.items()}
    assert max(errors.values()) < TOLERANCE, f"the energies differ by {errors}"
    ratios = {name: ratio(times[name], times["pyscf"]) for name in contestants}
    for name in contestants:
        print(f"{molecule}/{basis} {name:24} {peaks[name] / 1e6:5.0f} MB, (wall, CPU) s {times[name]}, {ratios[name]}")
    return {
        "orbitals": t1.shape,
        "threads": threads,
        "wall_cpu_s": times,
        "over_pyscf": ratios,
        "peak_bytes": peaks,
        "energies_hartree": energies,
        "largest_difference_hartree": errors,
    }


def _measured(energies: dict[str, float], name: str, work: Callable[[], float]) -> tuple[float, float, int]:
    """(wall seconds, CPU seconds, bytes by which the process grew at most); the energy is kept."""
    clocks: list[tuple[float, float]] = []

    def run() -> None:
        energies[name] = work()

    peak = resident_peak(lambda: clocks.append(clocked(run)()))
    return (*clocks[0], peak)
