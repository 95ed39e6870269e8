"""Quartets, memory and copies of one J/K build on a GPU for a molecule of 272 atoms, counted without a GPU.

    python -m scripts.eri.gpu_sizes [--molecule scripts/workloads/trp_cage.xyz] [--charge 1] [--basis 6-31g*]
                                    [--sample 64] [--out FILE]

The host code of `trnqc.eri.cuda` runs on a device that only counts (`counting_device`), with the multiprocessors and
the memory of an A100. The density is that of the orbitals in the field of PySCF's guess from Hueckel orbitals, which
alone has no polarization functions. Quartets are counted by stages:

    all        unique quartets of all shells
    pairs      of pairs of shells that can matter to some quartet
    schwarz    that pass the Schwarz bound with the largest element of the density; the screening program tests these
    computed   that pass with the elements of the density that they meet; the second program computes these

The first three are exact. The last one is estimated from `--sample` bra pairs of every two tables of pairs, drawn at
random from strata of like bounds; its standard error is given.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, scf

from scripts.eri.counting_device import CountingDevice
from scripts.registry import Benchmark, Rows, main, number
from scripts.workloads.trp_cage import FILE
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.run import DeviceRun
from trnqc.eri.jk.batch import REALS, SCHWARZ, SHELL_A, SHELL_B
from trnqc.eri.jk.builder import JKBuilder as HostBuilder
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.tasks import QuartetTask

# Products of an integral and a density element, in Hartree, that the first SCF step leaves out.
CUTOFF = 1e-8
# Bra pairs of a stratum: the fewest that have a variance.
STRATUM = 2


@dataclass(frozen=True)
class Count:
    """Quartets of one or several tasks that pass Schwarz bounds, and that are computed with the variance of these."""

    schwarz: int = 0
    computed: float = 0.0
    variance: float = 0.0

    def __add__(self, other: Count) -> Count:
        return Count(self.schwarz + other.schwarz, self.computed + other.computed, self.variance + other.variance)


def kets_within(task: QuartetTask, run: JKPass) -> np.ndarray:
    """Return for each bra pair of a task how many ket pairs, which have falling bounds, can matter to it."""
    cutoff, largest = (run.reals[REALS.index(name)] for name in ("cutoff", "largest"))
    ket = task.ket.measures[:, SCHWARZ]
    with np.errstate(divide="ignore"):
        least = cutoff / (task.bra.measures[task.begin : task.end, SCHWARZ] * largest)
    kets = np.searchsorted(-ket, -least, side="right")
    return np.minimum(kets, np.arange(task.begin, task.end) + 1) if task.bra is task.ket else kets


def computed_kets(task: QuartetTask, run: JKPass, pair: int, kets: int) -> int:
    """Return how many of the first `kets` ket pairs matter to a bra pair, by the test of the screening program."""
    dm, some = run.maxima, slice(0, kets)
    a, b = task.bra.places[pair, [SHELL_A, SHELL_B]]
    c, d = task.ket.places[some, SHELL_A], task.ket.places[some, SHELL_B]
    exchange = np.maximum(np.maximum(dm[a, c], dm[a, d]), np.maximum(dm[b, c], dm[b, d]))
    largest = np.minimum(1.0, np.maximum(exchange, 4.0 * np.maximum(dm[a, b], dm[c, d])))
    bounds = task.bra.measures[pair, SCHWARZ] * task.ket.measures[some, SCHWARZ] * largest
    return int((bounds >= run.reals[REALS.index("cutoff")]).sum())


def count(task: QuartetTask, run: JKPass, sample: int, rng: np.random.Generator) -> Count:
    """Count the quartets of a task; exactly if it has no more than `sample` bra pairs that matter."""
    kets = kets_within(task, run)
    pairs = np.flatnonzero(kets)
    total = Count(schwarz=int(kets.sum()))
    strata = np.array_split(pairs, max(1, sample // STRATUM)) if len(pairs) > sample else [pairs]
    for stratum in strata:
        drawn = stratum if len(strata) == 1 else rng.choice(stratum, STRATUM, replace=False)
        found = [computed_kets(task, run, task.begin + n, kets[n]) for n in drawn]
        n, left = len(stratum), 1 - len(found) / max(1, len(stratum))
        variance = n**2 * left * float(np.var(found, ddof=1)) / len(found) if left else 0.0
        total += Count(computed=n * float(np.mean(found or [0])), variance=variance)
    return total


class CountingBuilder(CudaJKBuilder):
    """J and K on a counting device, which keeps the counts of the last pass.

    Attributes
    ----------
    kept_pairs : int
        The pairs in tables.
    quartets : dict
        Counts by the digits of the classes.
    memory : dict
        Bytes by the name of the array.
    """

    def __init__(self, mol: gto.Mole, device: CountingDevice, sample: int) -> None:
        super().__init__(mol, devices=[device])
        self.sample, self.kept_pairs = sample, 0
        self.quartets: dict[str, Count] = {}
        self.memory: dict[str, int] = {}

    def _summed(self, run: JKPass, tables: Any, libraries: Any) -> tuple[np.ndarray, np.ndarray]:
        tasks, rng = self._own_tasks(tables), np.random.default_rng(0)
        share = DeviceRun(self._residents[0], self._kernels[0], run, tasks, 0, 1, self._note)
        share.launch()
        self.memory, self.kept_pairs = share.memory(), sum(map(len, tables))
        self.quartets = defaultdict(Count)
        for task in tasks:
            self.quartets[task.cls.digits] += count(task, run, self.sample, rng)
        results = share.results()
        share.release()
        return results


def first_density(mol: gto.Mole) -> np.ndarray:
    """Return the closed-shell density after one SCF step, whose integrals are screened by CUTOFF."""
    dm = np.asarray(scf.hf.init_guess_by_huckel(mol))
    vj, vk = (np.asarray(v) for v in HostBuilder(mol, cutoff=CUTOFF).get_jk(dm))
    energies, orbitals = scf.hf.eig(scf.hf.get_hcore(mol) + vj - vk / 2, mol.intor("int1e_ovlp"))
    return np.asarray(scf.hf.make_rdm1(orbitals, 2.0 * (np.arange(len(energies)) < mol.nelectron // 2)))


def unique(n: int) -> int:
    """Return the number of unordered pairs of n things, each with itself included."""
    return n * (n + 1) // 2


def rows_of(builder: CountingBuilder) -> Iterator[dict[str, Any]]:
    """Yield the counts of each class, the most numerous first."""
    for digits, found in sorted(builder.quartets.items(), key=lambda item: -item[1].computed):
        error = found.variance**0.5
        yield {"class": digits, "schwarz": found.schwarz, "computed": round(found.computed), "error": round(error)}


def record_of(mol: gto.Mole, dm: np.ndarray, device: CountingDevice, sample: int) -> dict[str, Any]:
    """Return what one J/K build of a molecule asks of a device."""
    builder = CountingBuilder(mol, device, sample)
    builder.get_jk(dm)
    copied, launches = dict(device.copied), sum(device.launches.values())
    tables = builder.memory["tables"]
    total = sum(builder.quartets.values(), Count())
    shells, kept = unique(mol.nbas), builder.kept_pairs
    return {
        "molecule": {"atoms": mol.natm, "functions": mol.nao_nr(), "shells": mol.nbas, "cutoff": builder.cutoff},
        "device": {"multiprocessors": device.multiprocessors, "memory": device.memory, "streams": device.streams},
        "pairs": {"all": shells, "kept": kept},
        "quartets": {
            "all": unique(shells),
            "pairs": unique(kept),
            "schwarz": total.schwarz,
            "computed": round(total.computed),
            "error": round(total.variance**0.5),
        },
        "bytes": builder.memory | {"most": device.most_used},
        "copied first": copied,
        "copied again": copied | {"in": copied["in"] - tables},
        "launches": launches,
        "notes": builder.notes,
        "classes": list(rows_of(builder)),
    }


def sizes(asked: argparse.Namespace) -> Rows:
    """The one row of the record."""
    mol = gto.M(atom=asked.molecule, basis=asked.basis, charge=asked.charge, max_memory=16000, verbose=0)
    yield record_of(mol, first_density(mol), CountingDevice(), asked.sample)


def text(row: dict[str, Any]) -> str:
    """All but the classes, a line each."""
    return "\n".join(f"{name}: {value}" for name, value in row.items() if name != "classes")


BENCHMARK = Benchmark(
    "eri_gpu_sizes",
    __doc__,
    {"J and K": sizes},
    {
        "--molecule": {"default": str(FILE), "help": "a file of PySCF's, or atoms as PySCF reads them"},
        "--charge": number(1),
        "--basis": {"default": "6-31g*"},
        "--sample": number(64, "bra pairs of every two tables"),
    },
    place=("", ""),
    line=text,
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
