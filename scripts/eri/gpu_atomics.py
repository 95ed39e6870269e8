"""Atomic additions of one J/K build on a GPU, counted from the launches and from the lengths of queues.

    python -m scripts.eri.gpu_atomics [--molecules water5 water20] [--basis 6-31g*] [--tiles 2048] [--out FILE]

The host code of `trnqc.eri.cuda` runs on a device that only counts. nvcc compiles its kernels for sm_80, so that each
class has the form and the resident blocks that an A100 would have. The queue of every row is found by the test of the
screening program, with the density of superposed atoms. Counted are additions of one number by one thread:

    per quartet     as if each lane of a vector added its shares of K and of J of its ket pair to memory, lanes without
                    a quartet included, and each warp its sums for J of the bra pair
    memory, shared  what the kernels add to memory, and to the tile in shared memory

Elements of a tile count as added to memory if any quartet has met them, although those that are exactly zero are not.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections import Counter, defaultdict
from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
from pyscf import gto, scf

from scripts.eri.counting_device import CountingDevice
from scripts.registers.launched import Compiled
from scripts.registry import Benchmark, Row, Rows, listing, main, several
from trnqc.eri.cuda import blocks, forms
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.launches import BlockLaunch
from trnqc.eri.cuda.run import DeviceRun
from trnqc.eri.cuda.slots import slots_of
from trnqc.eri.cuda.tiers import TILE, candidates
from trnqc.eri.cuda.tile import share_slots
from trnqc.eri.jk.batch import REALS, SCHWARZ, SHELL_A, SHELL_B
from trnqc.eri.jk.digest import BLOCKS, block_sizes
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.jit import Recipe
from trnqc.jit.device import BuiltKernel
from trnqc.jit.occupancy import WARP
from trnqc.mp2.reference.molecule import build_mole, load_geometry

ARCH = "sm_80"


class CompilingDevice(CountingDevice):
    """A counting device whose kernels are compiled by nvcc, with the resident blocks that ptxas allows for."""

    def __init__(self) -> None:
        super().__init__()
        self.compiled = Compiled(ARCH)

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        return self.compiled.build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks)


def queue_of(task: QuartetTask, run: JKPass, pair: int, begin: int, end: int) -> np.ndarray:
    """Return the ket pairs of a row that pass the test of the screening program."""
    dm, kets = run.maxima, np.arange(begin, min(end, pair + 1) if task.bra is task.ket else end)
    a, b = task.bra.places[pair, [SHELL_A, SHELL_B]]
    c, d = task.ket.places[kets, SHELL_A], task.ket.places[kets, SHELL_B]
    largest = np.maximum(np.maximum(dm[a, c], dm[a, d]), np.maximum(dm[b, c], dm[b, d]))
    largest = np.minimum(1.0, np.maximum(largest, 4.0 * np.maximum(dm[a, b], dm[c, d])))
    bounds = task.bra.measures[pair, SCHWARZ] * task.ket.measures[kets, SCHWARZ] * largest
    return kets[bounds >= run.reals[REALS.index("cutoff")]]


def count(launch: BlockLaunch, task: QuartetTask, run: JKPass) -> Counter[str]:
    """Count the additions of a launch of a class without general contractions, for one density."""
    given, lanes = launch.arguments, launch.programs.work.lanes
    sizes, cls, tile = block_sizes(task.cls), task.cls, launch.programs.tier.tile
    na, nb, nc, nd = cls.extents
    exchange = sum(sizes[block] for block in BLOCKS)
    slots = slots_of(task.ket, blocks.KETS, share_slots(cls)).of_pairs
    limits = [given["slots_c"], given["slots_d"]] if tile else [0, 0]
    kept = given["tile_pairs"] if tile else 0
    met = np.zeros((launch.workers, kept), bool)
    found: Counter[str] = Counter()
    for row in range(launch.rows):
        begin = given["ket_begin"] + row % given["parts"] * given["ket_part"]
        pair = given["first_pair"] + row // given["parts"] * given["step"]
        queue = queue_of(task, run, pair, begin, min(begin + given["ket_part"], given["ket_end"]))
        vectors = -(-len(queue) // lanes)
        found["quartets"] += len(queue)
        warps = max(1, lanes // WARP) * na * nb
        found["per quartet"] += vectors * lanes * (exchange + sizes["cd"]) + warps
        inside = [slots[queue, n] < limits[n] for n in (0, 1)]
        own = [np.unique(slots[queue, n][inside[n]]) for n in (0, 1)]
        if share_slots(cls):
            own = [np.union1d(*own), own[1][:0]]
        tiled = [int(each.sum()) * (na + nb) * n for each, n in zip(inside, (nc, nd))]
        positions = queue - given["ket_begin"]
        coulomb = int((positions < kept).sum()) * sizes["cd"]
        met[row % launch.workers, positions[positions < kept]] = True
        found["memory"] += sum(len(each) * (na + nb) * n for each, n in zip(own, (nc, nd)))
        found["memory"] += len(queue) * (exchange + sizes["cd"]) - sum(tiled) - coulomb
        found["memory"] += na * nb if tile else warps
        found["shared"] += sum(tiled) + coulomb + (warps if tile else 0)
    found["memory"] += int(met.sum()) * sizes["cd"]
    return found


class CountingBuilder(CudaJKBuilder):
    """J and K on a counting device, which keeps the counts of the last pass by the digits of the classes."""

    def __init__(self, mol: gto.Mole) -> None:
        super().__init__(mol, devices=[CompilingDevice()])
        self.counts: dict[str, Counter[str]] = defaultdict(Counter)

    def _summed(self, run: JKPass, tables: Any, libraries: Any) -> tuple[np.ndarray, np.ndarray]:
        tasks = self._own_tasks(tables)
        share = DeviceRun(self._residents[0], self._kernels[0], run, tasks, 0, 1, self._note)
        for launch in share.plan.launches:
            task = tasks[launch.arguments["task"]]
            self.counts[task.cls.digits] += count(launch, task, run)
        return share.results()


def counts_of(mol: gto.Mole, tile: int) -> dict[str, Counter[str]]:
    """Return the counts of a build by classes, with tiles of at most so many elements."""

    def limited(cls: Any) -> Any:
        return (replace(tier, tile=min(tier.tile, tile)) for tier in candidates(cls))

    with mock.patch.object(forms, "candidates", limited):
        builder = CountingBuilder(mol)
        builder.get_jk(scf.hf.init_guess_by_minao(mol))
    return dict(builder.counts)


def rows(asked: argparse.Namespace) -> Rows:
    """The counts of each molecule by tiles."""
    for title, tile in itertools.product(asked.molecules, asked.tiles):
        found = counts_of(build_mole(load_geometry(title), asked.basis), tile)
        total = sum(found.values(), Counter())
        classes = [{"class": digits, **each} for digits, each in sorted(found.items())]
        yield {"molecule": title, "tile": tile, "total": dict(total), "classes": classes}


def total(name: str) -> Callable[[Row], str]:
    """What prints a count of all classes."""
    return lambda row: f"{row['total'][name]:.3e}"


BENCHMARK = Benchmark(
    "eri_gpu_atomics",
    __doc__,
    {"J and K": rows},
    {
        "--molecules": several(["water5", "water20"]),
        "--basis": {"default": "6-31g*"},
        "--tiles": several([TILE], help="elements of a tile, at most"),
    },
    place=("", "rows"),
    line=lambda row: f"{row['molecule']}, tiles of {row['tile']}",
    table=listing(
        {"molecule": None, "tile": None}
        | {name: total(name) for name in ("quartets", "per quartet", "memory", "shared")}
        | {"less by": lambda row: f"{row['total']['per quartet'] / row['total']['memory']:.1f}"}
    ),
    facts=lambda asked: {"basis": asked.basis},
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
