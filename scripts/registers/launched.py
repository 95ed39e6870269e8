"""Registers, spills, shared memory and resident warps of the kernels that a GPU would launch, without a GPU.

    python -m scripts.registers.launched [--arch sm_80 sm_90] [--rooms mp2 cg eri] [--out FILE]

A stand-in for a device compiles what the code builds for a GPU by nvcc, and answers with what ptxas reports, so that
the choice among forms of a kernel is made as it is on a GPU. The classes of J and K are those up to (22|22). Of some
the form of two programs is compiled too, where another one is chosen. The record keeps the rows of rooms that are not
asked for.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from scripts.registry import Benchmark, Row, Rows, main, several, stored
from scripts.workloads.contractions import contraction
from scripts.workloads.tensor_products import configuration
from trnqc.backends.cuda import packing, programs
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.cg.cuda.contraction_engine import CudaContractionEngine
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.cg.programs.polynomial import KINDS
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.forms import first_sound
from trnqc.eri.jk.batch import Batch
from trnqc.gen import emit_cuda
from trnqc.jit import PtxasReport, Recipe, compile_cuda
from trnqc.jit.device import BuiltKernel
from trnqc.jit.occupancy import MULTIPROCESSORS, WARP, resident_warps

LABELS = ("mace-large", "nequip-revmd17-aspirin")
CONTRACTIONS = ("mace-large", "mace-medium")
# Pairs of shells in the classes of J and K.
PAIRS = ((0, 0), (1, 0), (1, 1), (2, 0), (2, 1), (2, 2))
# Classes whose form of two programs is compiled in any case.
APART = ("2121", "2211", "2221", "2222")


class Compiled:
    """A device that only compiles. It keeps a row for each kernel that is built.

    Parameters
    ----------
    arch : str
        The architecture, a key of MULTIPROCESSORS.
    """

    streams, most_lanes, multiprocessors = 4, 1024, 108

    def __init__(self, arch: str) -> None:
        self.name, self.arch = f"nvcc for {arch}", arch
        self.rows: list[dict[str, Any]] = []

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        """Compile a kernel as `CudaDevice` does, by nvcc. Raises CompilerError."""
        (signature,) = recipe.signatures
        text = emit_cuda(*recipe.functions(), lanes=lanes, accumulate=accumulate, min_blocks=min_blocks)
        kernel = compile_cuda(text, name=recipe.name, arch=self.arch).kernel(signature.name)
        warps = resident_warps(kernel, lanes, self.arch)
        self.rows.append(self._row(kernel, lanes, accumulate, min_blocks, warps))
        print(f"{self.arch} {kernel}", file=sys.stderr)
        return BuiltKernel(signature, lanes, None, kernel.stack, warps * WARP // lanes, warps)

    def _row(self, kernel: PtxasReport, lanes: int, accumulate: str, min_blocks: int, warps: int) -> dict[str, Any]:
        return {
            "kernel": kernel.name,
            "arch": self.arch,
            "lanes": lanes,
            "accumulate": accumulate,
            "min_blocks": min_blocks,
            "registers": kernel.registers,
            "stack": kernel.stack,
            "spill_stores": kernel.spill_stores,
            "spill_loads": kernel.spill_loads,
            "shared": kernel.shared,
            "resident_warps": warps,
        }

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"a device that only compiles has no {name}")


def mp2(device: Compiled) -> None:
    """All programs of MP2, in each type."""
    for name, kind in itertools.product((*programs.ENERGIES, *programs.AMPLITUDES), ("f64", "f32")):
        device.build(programs.recipe(name, kind, programs.LANES), programs.LANES, accumulate="plain")
    for form in DEVICE_FORMATS.values():
        device.build(packing.pack_recipe(form, programs.LANES), programs.LANES)
    device.build(packing.split_recipe(programs.LANES), programs.LANES)


def cg(device: Compiled) -> None:
    """All passes of two models, and of the symmetric contractions of two, in each precision."""
    for label, dtype in itertools.product(LABELS, (np.float32, np.float64)):
        engine = CudaEngine(configuration(label), dtype, device)
        for name in DIRECTIONS:
            engine.build(name)
            device.rows[-1] |= {"case": label, "dtype": np.dtype(dtype).name}
    for label, dtype in itertools.product(CONTRACTIONS, (np.float32, np.float64)):
        contracts = CudaContractionEngine(contraction(label), dtype, device)
        for kind, directions in itertools.product(KINDS, (0, 1)):
            for form in contracts.forms(kind, directions):
                contracts.build(form)
                device.rows[-1] |= {"case": label, "dtype": np.dtype(dtype).name}


def eri(device: Compiled) -> None:
    """The programs of all classes: each form that is tried, and which one a GPU takes."""
    for n, bra in enumerate(PAIRS):
        for ket in PAIRS[: n + 1]:
            before, batch = len(device.rows), Batch(QuartetClass(*bra, *ket))
            chosen, _ = first_sound(device, batch)
            if batch.cls.digits in APART and not chosen.tier.split:
                first_sound(device, batch, ("split",))
                # The screening program is there already.
                device.rows.pop()
            names = [built.signature.name for built in (chosen.screen, chosen.work, chosen.targets) if built]
            form = chosen.tier.accumulate, chosen.tier.min_blocks
            for row in device.rows[before:]:
                fits = row["kernel"].startswith("screen_") or form == (row["accumulate"], row["min_blocks"])
                row["class"], row["chosen"] = batch.cls.digits, row["kernel"] in names and fits


ROOMS: Mapping[str, Callable[[Compiled], None]] = {"mp2": mp2, "cg": cg, "eri": eri}


def rows(asked: argparse.Namespace) -> Rows:
    """The rows that the record has of other rooms, and the kernels of those that are asked for."""
    yield from [row for row in stored(asked.out).get("rows", []) if row["room"] not in asked.rooms]
    for room, arch in itertools.product(asked.rooms, asked.arch):
        device = Compiled(arch)
        ROOMS[room](device)
        yield from ({"room": room} | row for row in device.rows)


def text(row: Row) -> str:
    """A kernel; bytes are spill stores / loads of a thread."""
    name = " ".join(filter(None, (row.get("case"), row["kernel"])))
    return (
        f"{name} {row['arch']}, {row['lanes']} threads: {row['registers']} registers, "
        f"{row['spill_stores']}/{row['spill_loads']} B spilled, {row['shared']} B shared, "
        f"{row['resident_warps']} warps{'' if row.get('chosen', True) else ', not launched'}"
    )


BENCHMARK = Benchmark(
    "launched",
    __doc__,
    {"kernels": rows},
    {
        "--arch": several(["sm_80", "sm_90"], choices=MULTIPROCESSORS),
        "--rooms": several(list(ROOMS), choices=ROOMS),
    },
    place=("", "rows"),
    line=text,
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
