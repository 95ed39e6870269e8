"""A lower bound of the time of the kernels of a J/K build on an A100 and an H100, modelled without a GPU.

    python -m scripts.device.kernel_time [--molecules water5 water20] [--basis 6-31g*] [--tiers split] [--out FILE]

For each class of quartets, the fp64 instructions of the kernel that a GPU would launch (counted by the generator, for
the form to which nvcc's registers lead) times what its launches execute (executed.py), at the rate of fp64 without
tensor cores: half the peak, since a multiplication with an addition is one instruction. Nothing is taken off for
latency, occupancy, divisions, screening or memory, so that no such GPU is faster. Beside this bound stand flops at the
peak, which is less, numbers of additions to J and K, and bytes at the bandwidth of the memory, of which caches save an
unknown part. Targets that stay in memory between two programs are beyond the caches: their time at the bandwidth stands
for itself. The host's times of host_costs.json, for a build with densities of the host and for a cycle of an SCF on
the GPU, are divided by the bound. The record is profiles/modelled/kernel_time.json.
"""

from __future__ import annotations

import argparse
import itertools
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from math import prod
from typing import Any
from unittest import mock

import numpy as np
from pyscf import scf

from scripts import ROOT
from scripts.device.executed import Executed, by_class
from scripts.eri.counting_device import CountingDevice
from scripts.registers.launched import Compiled
from scripts.registry import Benchmark, Row, Rows, listing, main, several
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.launches import DriverPrograms
from trnqc.eri.cuda.run import DeviceRun
from trnqc.eri.cuda.tiers import NAMES, Tier, traffic
from trnqc.eri.jk.batch import Batch, digested
from trnqc.eri.jk.digest import block_sizes
from trnqc.eri.jk.run import JKPass
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Var, const
from trnqc.gen import cost as costs
from trnqc.gen import statements as st
from trnqc.jit import Recipe
from trnqc.jit.device import BuiltKernel
from trnqc.mp2.reference.molecule import build_mole, load_geometry

HOST = ROOT / "profiles" / "counted" / "host_costs.json"
# The share of the kernels' time that the host may take.
ALLOWED = 0.05
# Times of a class, and what is summed over the classes.
BOUND, PEAK, BYTES = "seconds of instructions", "seconds of flops at peak", "seconds of bytes without caches"
RECURRENCE, BETWEEN = "seconds of instructions of primitives", "seconds of targets between programs"
SUMMED = ("launches", "quartets", "vectors", "flops", "additions", "bytes", BOUND, PEAK, BYTES, RECURRENCE, BETWEEN)


@dataclass(frozen=True)
class Model:
    """A GPU.

    Parameters
    ----------
    arch : str
    multiprocessors : int
    peak : float
        That of fp64 without tensor cores, flop/s; a multiplication with an addition counts as two.
    bandwidth : float
        Of the memory, byte/s.
    """

    arch: str
    multiprocessors: int
    peak: float
    bandwidth: float


# NVIDIA A100 80GB SXM data sheet (June 2021) and H100 SXM5 data sheet (2023); multiprocessors from the whitepapers.
GPUS = {"A100": Model("sm_80", 108, 9.7e12, 2.039e12), "H100": Model("sm_90", 132, 34e12, 3.35e12)}


class SizedDevice(CountingDevice):
    """A device that compiles kernels for a GPU by nvcc, and computes nothing."""

    def __init__(self, model: Model) -> None:
        super().__init__(multiprocessors=model.multiprocessors)
        self.compiled, self.arch = Compiled(model.arch), model.arch

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        return self.compiled.build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks)

    def report(self, programs: DriverPrograms) -> dict[str, Any]:
        """Return registers, spills and resident warps of the kernel of integrals."""
        tier = programs.tier
        form = programs.work.signature.name, tier.accumulate, tier.min_blocks
        return next(r for r in self.compiled.rows if form == (r["kernel"], r["accumulate"], r["min_blocks"]))


class ExecutedBuilder(CudaJKBuilder):
    """J and K on such a device, which keeps what the launches of the last pass execute, by class."""

    counts: dict[str, Executed]

    def _summed(self, run: JKPass, tables: Any, libraries: Any) -> tuple[np.ndarray, np.ndarray]:
        tasks = self._own_tasks(tables)
        share = DeviceRun(self._residents[0], self._kernels[0], run, tasks, 0, 1, self._note)
        self.counts = by_class(iter(share.plan.launches), tasks, run)
        results = share.results()
        share.release()
        return results


@dataclass(frozen=True)
class Level:
    """What a lane executes each time: flops, fp64 instructions of which one is a fused multiply-add, and bytes."""

    flops: float = 0
    instructions: float = 0
    bytes: float = 0

    def __sub__(self, other: Level) -> Level:
        return Level(self.flops - other.flops, self.instructions - other.instructions, self.bytes - other.bytes)


def levels(batch: Batch, tier: Tier) -> dict[str, Level]:
    """Return what a lane executes for each of the counts of `Executed` by name, in the kernel of a tier."""
    kernel = quartet_function(batch.cls, tier.form, tier.variant)
    vector = _first_while(st.block(digested(batch, kernel, const(0, "i64"), Var("end", "i64"))))
    bras = _first_while(kernel.body)
    kets = _first_while(bras.body)
    one, more = (_level(vector.body, rows) for rows in (0, 1))
    bra, primitive = _level(bras.body, 0), _level(kets.body, 0)
    return {"vectors": one - bra, "ket_rows": more - one, "bras": bra - primitive, "primitives": primitive}


def _first_while(program: st.Statement) -> st.While:
    """Return the first while loop of a block, outside of other loops. Raises LookupError without one."""
    for statement in program.body if isinstance(program, st.Block) else ():
        if isinstance(statement, st.While):
            return statement
        if isinstance(statement, st.Block):
            try:
                return _first_while(statement)
            except LookupError:
                continue
    raise LookupError("expected a program with a while loop, found none")


def _level(program: st.Statement, rows: int) -> Level:
    """Return the cost of a program with one density and so many primitive pairs of the ket records."""

    def number(count: costs.TripPolynomial) -> int:
        return count.at(**{name: _trips(name, rows) for name in count.names})

    cost = costs.cost(program)
    with mock.patch.dict(costs.FLOPS, fma=1):
        instructions = number(costs.cost(program).flops)
    return Level(number(cost.flops), instructions, number(cost.read) + number(cost.written))


def _trips(name: str, rows: int) -> int:
    """Return the trips of a loop by its bound, a product such as "rows * 6"."""
    known = {"rows": rows, "densities": 1, "n_ab": 1, "n_cd": 1}
    return prod(int(factor) if factor.isdigit() else known[factor] for factor in name.split(" * "))


def row_of(batch: Batch, tier: Tier, kernel: dict[str, Any], counts: Executed, model: Model) -> dict[str, Any]:
    """Return the counts and times of a class."""
    lanes, each = kernel["lanes"], levels(batch, tier)
    totals = {
        name: lanes * sum(getattr(level, name) * getattr(counts, count) for count, level in each.items())
        for name in ("flops", "instructions", "bytes")
    }
    added = sum(block_sizes(batch.cls).values()) * counts.vectors * lanes
    names = ("lanes", "registers", "spill_stores", "spill_loads", "resident_warps")
    return {
        "class": batch.cls.digits,
        "tier": tier.name,
        **{name: kernel[name] for name in names},
        **asdict(counts),
        "lanes in use": counts.quartets / max(1, counts.vectors * lanes),
        **totals,
        "additions": added,
        PEAK: totals["flops"] / model.peak,
        BOUND: 2 * totals["instructions"] / model.peak,
        BYTES: totals["bytes"] / model.bandwidth,
        RECURRENCE: 2 * lanes * each["primitives"].instructions * counts.primitives / model.peak,
        BETWEEN: tier.split * traffic(batch.cls, tier) * counts.vectors * lanes / model.bandwidth,
    }


def case(title: str, basis: str, name: str, tiers: Sequence[str] = ()) -> dict[str, Any]:
    """Return the counts and times of a molecule on a GPU, by class and in sum."""
    mol, model = build_mole(load_geometry(title), basis), GPUS[name]
    device = SizedDevice(model)
    builder = ExecutedBuilder(mol, devices=[device], tiers=tiers)
    builder.get_jk(scf.hf.init_guess_by_minao(mol))
    rows = []
    for batch, programs in builder._kernels[0].items():
        counts = builder.counts[batch.cls.digits]
        rows.append(row_of(batch, programs.tier, device.report(programs), counts, model))
    rows.sort(key=lambda row: -row[BOUND])
    return {
        "case": f"{title}/{basis}",
        "gpu": name,
        **asdict(model),
        **total(rows, f"{title}/{basis}"),
        "classes": rows,
    }


def total(rows: list[dict[str, Any]], title: str) -> dict[str, Any]:
    """Return sums over the classes, and the host's time beside them where it is recorded."""
    sums = {name: sum(row[name] for row in rows) for name in SUMMED}
    bound = sums[BOUND]
    rates = {f"{name} a second": sums[name] / bound for name in ("launches", "additions")}
    host: dict[str, float] = {}
    for short, case in (("host", "J and K"), ("cycle", "SCF cycle")):
        found = next((r for r in json.loads(HOST.read_text())["rows"] if r["case"] == f"{case}, {title}"), None)
        if found is not None:
            # From the second build on a graph is launched, so that the number of launches does not matter.
            host |= {f"{short} seconds": found["host_seconds"], f"{short} over bound": found["host_seconds"] / bound}
    return sums | rates | host | ({"allowed": ALLOWED} if host else {})


def cases(asked: argparse.Namespace) -> Rows:
    """All molecules on all GPUs."""
    for title, gpu in itertools.product(asked.molecules, asked.gpus):
        yield case(title, asked.basis, gpu, asked.tiers)


def shown(name: str, form: str, unit: float = 1) -> Callable[[Row], str]:
    """What prints a field of a row in a unit, where the row has it."""
    return lambda row: f"{row[name] / unit:{form}}" if name in row else ""


BENCHMARK = Benchmark(
    "kernel_time",
    __doc__,
    {"J and K": cases},
    {
        "--molecules": several(["water5", "water20"]),
        "--basis": {"default": "6-31g*"},
        "--gpus": several(list(GPUS), choices=GPUS),
        "--tiers": {"nargs": "+", "default": [], "choices": NAMES, "help": "forms of kernels, where a class has them"},
    },
    place=("", "cases"),
    line=lambda row: f"{row['case']} on {row['gpu']}: {row[BOUND] * 1e3:.2f} ms",
    table=listing(
        {
            "case": None,
            "gpu": None,
            "quartets": shown("quartets", ".3g"),
            "launches": None,
            "bound ms": shown(BOUND, ".2f", 1e-3),
            "at peak ms": shown(PEAK, ".2f", 1e-3),
            "bytes ms": shown(BYTES, ".2f", 1e-3),
            "additions": shown("additions", ".3g"),
            "host ms": shown("host seconds", ".2f", 1e-3),
            "host over bound": shown("host over bound", ".0%"),
            "cycle ms": shown("cycle seconds", ".2f", 1e-3),
            "cycle over bound": shown("cycle over bound", ".0%"),
        },
        width=140,
    ),
    folder="modelled",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
