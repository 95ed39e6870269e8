"""Does the emulator of GPUs see what is wrong with CUDA text? Every kernel with one thing changed at a time.

    python -m scripts.device.mutants [--workloads mp2 cg eri split] [--out profiles/counted/cuda_mutants.json]

A mutant is the CUDA text of a kernel without one barrier, with one atomic addition as a plain one, or with one bound
off by one: `<` becomes `<=` in loops and conditions. Its workload runs on a simulated device in ascending, descending
and random order. A mutant is seen if one of the orders raises an error, never ends, or changes a result by more than
rounding. Those that are not seen need a reason in REASONS, where the text with and without the change does the same.
The record keeps the rows of workloads that are not asked for.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import multiprocessing
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from pyscf import gto, lib, scf
from rich.console import Console
from rich.progress import track
from rich.table import Table

from scripts import ROOT
from scripts.device.bench_cg import operands
from scripts.device.shapes import factors
from scripts.measuring import heading, machine, write_json
from scripts.workloads.tensor_products import awkward
from trnqc.backends.cuda.gamma import CudaGamma
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.cuda.products import Gpu, SimulatedProducts
from trnqc.backends.cuda.share import DeviceFactors
from trnqc.backends.cuda.solvers import SimulatedSolvers
from trnqc.backends.gamma import GammaOptions
from trnqc.backends.pair_step import PairOptions
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.cuda.segments import segments
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda import forms, launches
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.tiers import Tier, candidates
from trnqc.errors import SimulationError
from trnqc.gen import emit_cuda
from trnqc.jit import Recipe, emulator
from trnqc.jit.device import BuiltKernel
from trnqc.jit.simulated_device import SimulatedDevice

Arrays = Sequence[np.ndarray]
# Relative to the largest number of a result: atomic additions in another order differ by rounding.
ROUNDING = 1e-9
# Seconds after which a mutant counts as endless. The workloads take one or two.
ENDLESS = 20.0
# Elements of the tiles of integral programs, so few that some sums have no place there.
TILE = 30

# What a change does, its pattern in a line of text, and its replacement.
CHANGES = {
    "barrier removed": (re.compile(r"__syncthreads\(\);"), ";"),
    "atomic made plain": (re.compile(r"atomicAdd\((?:\(unsigned long long \*\))?&(.+), (.+?)\);"), r"\1 += \2;"),
    "bound off by one": (re.compile(r"(?<=[\w\])]) < (?=[\w(])"), " <= "),
}
# The smaller of two numbers, which is the same with `<=`.
SMALLER = re.compile(r"(?P<a>[^?:=]+) < (?P<b>[^?:=]+) \? (?P=a) : (?P=b)")
# Bounds that are numbers: of lanes, and of loops with a step.
BY_LANE = re.compile(r"lane_number \+ (\d+) \+ (\d+) < (\d+)")
STEPS = re.compile(r"= (\d+); \w+ < (\d+); \w+ \+= (\d+)")
# Mutants that do what their original does: kernel, change and a part of the line -> why.
BEYOND = "a tile beyond the matrix adds nothing to sums, and is not stored"
REASONS = {
    (r"(same|opposite)_spin", "bound off by one", "tile_1 < tiles_1"): BEYOND,
    ("pack", "bound off by one", "chunk_1 < width"): "lanes beyond the end write the last number again",
    (
        r"cg_(conv_)?backward",
        "bound off by one",
        "(long long l_",
    ): "lanes beyond the channels of a path have added zeros",
    (r"cg_(conv_)?backward", "bound off by one", "(long long from_u_"): "rows beyond the channels of a path are zeros",
    ("cg_", "bound off by one", "n_1 < 128"): "the last element is cleared again",
    ("cg_", "barrier removed", ""): "another barrier orders the same accesses, or no lane uses what others have used",
    ("work|targets", "bound off by one", "ket_bound"): "behind the bounds of primitive pairs stands one of zero",
    (
        "work|targets",
        "bound off by one",
        "full_small = full_T",
    ): "no quartet lies on the border of two ways to one function",
    ("screen", "bound off by one", "while (k < stop"): "no lane has a pair behind the last one",
    ("screen", "bound off by one", "0 < count"): "an empty queue is not read",
    (
        "work|targets",
        "bound off by one",
        "while (first < end)",
    ): "a vector of pairs of weight zero stands behind the queue",
    ("work", "bound off by one", "turn < turn_end"): "in one more turn no lane has an element",
    ("work", "bound off by one", f"lane < {TILE}"): "the last element of the tile is cleared again",
    ("work", "bound off by one", "piece < piece_end"): "one more piece has no elements",
    ("work", "bound off by one", "bool live = first"): "behind the queue stands a ket pair of weight zero",
    ("work", "barrier removed", ""): "after the last piece, another barrier stands before the next use of the tile",
    ("work", "atomic made plain", "&tile[(long long)place_cd"): "the lanes of a row have different ket pairs",
    ("work", "atomic made plain", "&tile[i]"): "of a block of one warp, one lane adds",
    ("work", "bound off by one", "bool inside_j"): "a part of the digestion that adds no J does not use it",
    ("work", "bound off by one", "s < densities"): "what follows in the tile is zero, because it was added before",
    # The emulator does not see these, which would harm.
    ("work", "bound off by one", "row__ < "): "the size of a local array is not known in a function that is given it",
    ("work", "bound off by one", "i < 3"): "the size of a local array is not known in a function that is given it",
    ("pack|split", "bound off by one", "whole_"): "only zero is on the bound, and its word overflows to the same",
    ("pack|split", "bound off by one", "half_"): "only zero is on the bound, and its word is the same",
}


@dataclass(frozen=True)
class Mutant:
    """One change of one line of a kernel's text.

    Parameters
    ----------
    workload, kernel, change, line
        The workload that launches the kernel, its name, a key of CHANGES, and the number of the line from 1.
    place
        Which match of the pattern in this line, from 0.
    text
        The line.
    """

    workload: str
    kernel: str
    change: str
    line: int
    place: int
    text: str

    def of(self, text: str) -> str:
        """Return the changed text."""
        lines, (pattern, new) = text.splitlines(), CHANGES[self.change]
        match = list(pattern.finditer(lines[self.line - 1]))[self.place]
        old = lines[self.line - 1]
        lines[self.line - 1] = old[: match.start()] + match.expand(new) + old[match.end() :]
        return "\n".join(lines) + "\n"

    @property
    def reason(self) -> str:
        """Why it need not be seen, or an empty string."""
        if self.change == "bound off by one" and self._is_beyond():
            return "no lane and no step of the loop lies on the bound"
        known = ((kernel, change, part) for kernel, change, part in REASONS)
        matches = (key for key in known if re.match(key[0], self.kernel) and key[1] == self.change)
        return next((REASONS[key] for key in matches if key[2] in self.text), "")

    def _is_beyond(self) -> bool:
        """Whether the bounds of the line are numbers that no lane, and no step of a loop, comes to."""
        lanes = WORKLOADS[self.workload][1]
        by_lane = [tuple(map(int, match)) for match in BY_LANE.findall(self.text)]
        steps = [tuple(map(int, match)) for match in STEPS.findall(self.text)]
        numbers = [0 <= bound - a - b < lanes for a, b, bound in by_lane]
        numbers += [(bound - begin) % step == 0 for begin, bound, step in steps]
        return bool(numbers) and not any(numbers) and self.text.count(" < ") == len(numbers)


class Edited(SimulatedDevice):
    """A simulated device that keeps the texts of kernels, and builds one of them from a changed text."""

    def __init__(self, mutant: Mutant | None = None, **options: Any) -> None:
        super().__init__(**options)
        self.mutant, self.texts = mutant, dict[str, str]()

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        options: dict[str, Any] = {"accumulate": accumulate, "min_blocks": min_blocks}
        text = emit_cuda(*recipe.functions(), lanes=lanes, **options)
        # Kernels of two problems may have the same name.
        name = f"{recipe.signatures[0].name} {hashlib.sha256(text.encode()).hexdigest()[:6]}"
        self.texts[name] = text
        if self.mutant is None or self.mutant.kernel != name:
            return super().build(recipe, lanes, **options)
        kernel = emulator.build(replace(recipe, module="", text=self.mutant.of(text)), lanes, **options)
        return BuiltKernel(kernel.signature, lanes, kernel)


def mp2(device: Edited) -> Arrays:
    """Pair energies and Γ in fp64 and bf16x3, of one spin and of two."""
    gpus = (Gpu(device, SimulatedProducts(device), SimulatedSolvers(device)),)
    results: list[np.ndarray] = []
    for precision, naux in (("fp64", 9), ("bf16x3", 9), ("bf16x3", 10)):
        B, eps_occ, eps_vir = factors(3, 37, naux)
        step = CudaPairStep(gpus, PairOptions(precision))
        triangle = step.triangle(B, eps_occ, eps_vir, None)
        opposite = step.opposite_spin(B, B[:2], (eps_occ, eps_occ[:2]), (eps_vir, eps_vir))
        results += [triangle.os, triangle.ss, opposite.os]
        for other in (None, DeviceFactors(B[:2], eps_occ[:2], eps_vir)):
            options = GammaOptions(2.0, 1.0 if other is None else 0.0, precision)
            gamma = CudaGamma(gpus, DeviceFactors(B, eps_occ, eps_vir), other, options)
            gamma.run(partial(_keep, results))
    return results


def _keep(results: list[np.ndarray], side: int, rows: slice, values: np.ndarray) -> None:
    results.append(values.copy())


def cg(device: Edited) -> Arrays:
    """Products and convolutions of small problems in all passes, with sums in order and by atomics."""
    results: list[np.ndarray] = []
    rng = np.random.default_rng(0)
    graph = EdgeGraph(np.sort(rng.integers(1, 5, 60)), rng.integers(0, 5, 60), 5)
    for label in ("uvu-y3", "uvw-shared"):
        problem = awkward(label)
        # Segments of two edges, so that several blocks add to a node.
        short = mock.patch("trnqc.cg.cuda.operands.segments", partial(segments, longest=2))
        for atomic in (False, True):
            engine = CudaEngine(problem, np.float64, device, atomic=atomic)
            for name in ("forward", "backward") if not atomic else ():
                results += _outputs(engine, name, problem, 5)
            with short:
                for name in ("conv_forward", "conv_backward"):
                    results += _outputs(engine, name, problem, 60, graph)
    return results


def eri(device: Edited, tiers: Sequence[str] = ()) -> Arrays:
    """J and K of s and p functions, with screening that drops quartets, and with tiles that hold a part of the sums."""
    mol = gto.M(
        atom="He 0 0 0; He 0.4 0.3 1.5; He 1.1 -0.8 0.7; He 0 1 30",
        basis={"He": [[0, [1.1, 1.0]], [1, [0.9, 1.0]]]},
        verbose=0,
    )

    def small(cls: QuartetClass) -> Iterator[Tier]:
        return (replace(tier, tile=TILE) for tier in candidates(cls))

    with mock.patch.object(forms, "candidates", small):
        vj, vk = CudaJKBuilder(mol, devices=[device], tiers=tiers).get_jk(scf.hf.init_guess_by_1e(mol) + 0.1)
    assert vj is not None and vk is not None
    return [vj, vk]


def split(device: Edited) -> Arrays:
    """The same by two programs, with launches that are cut."""
    with mock.patch.object(launches, "TARGET_BYTES", 1 << 17):
        return eri(device, ("split",))


# Workloads with the threads of a block.
WORKLOADS: dict[str, tuple[Callable[[Edited], Arrays], int]] = {
    "mp2": (mp2, 64),
    "cg": (cg, 32),
    "eri": (eri, 32),
    "split": (split, 32),
}
# Kernels whose loops, barriers and additions are those of the kernels of all classes.
LIKE_OTHERS = re.compile(r"(work_jk|screen_jk|targets)_eri_(?!1010)")


def _outputs(
    engine: CudaEngine, name: str, problem: Any, edges: int, graph: EdgeGraph | None = None
) -> list[np.ndarray]:
    inputs = operands(problem, edges, "float64", None if graph is None else graph.n_nodes)
    reads = DIRECTIONS.get(name, DIRECTIONS["double_backward"]).reads
    result = getattr(engine, name)(*(inputs[n] for n in reads), *([] if graph is None else [graph]))
    return list(result) if isinstance(result, tuple) else [result]


def mutants(workload: str, texts: dict[str, str]) -> Iterator[Mutant]:
    """Yield all mutants of a workload's kernels; helper functions belong to the kernels that call them."""
    for kernel, text in texts.items():
        if LIKE_OTHERS.match(kernel):
            continue
        for number, line in enumerate(text.splitlines(), 1):
            for change, (pattern, _) in CHANGES.items():
                same = [match.span() for match in SMALLER.finditer(line)]
                for place, match in enumerate(pattern.finditer(line)):
                    if change != "bound off by one" or not any(a <= match.start() < b for a, b in same):
                        yield Mutant(workload, kernel, change, number, place, line.strip())


def outcome(mutant: Mutant, expected: Arrays) -> str:
    """Return how the mutant was seen, or an empty string."""
    context = multiprocessing.get_context("fork")
    receiving, sending = context.Pipe(duplex=False)
    child = context.Process(target=_try, args=(mutant, expected, sending))
    child.start()
    sending.close()
    words = "never ends"
    if receiving.poll(ENDLESS):
        try:
            words = receiving.recv()
        except EOFError:
            words = "crashes"
    child.kill()
    child.join()
    return words


def _try(mutant: Mutant, expected: Arrays, connection: Any) -> None:
    function, lanes = WORKLOADS[mutant.workload]
    for order in emulator.ORDERS:
        try:
            results = function(Edited(mutant, lanes=lanes, order=order))
        except Exception as error:
            connection.send(f"{order}: {type(error).__name__}: {str(error)[:200]}")
            return
        if differs := difference(results, expected):
            connection.send(f"{order}: results differ by {differs:.1e}")
            return
    connection.send("")


def difference(results: Arrays, expected: Arrays) -> float:
    """Return the largest relative difference if it is more than rounding, else 0."""
    errors = [
        float(np.abs(a - b).max() / max(float(np.abs(b).max()), 1e-30)) for a, b in zip(results, expected) if b.size
    ]
    worst = float(np.max(errors))  # NaN if any is.
    return worst if not worst <= ROUNDING else 0.0


def tried(workload: str) -> Iterator[dict[str, Any]]:
    """Try all mutants of a workload, each in a process of its own."""
    function, lanes = WORKLOADS[workload]
    device = Edited(lanes=lanes)
    expected = [array.copy() for array in function(device)]
    if wrong := outcome(Mutant(workload, "", "", 0, 0, ""), expected):
        raise SimulationError(f"{workload} without any change: {wrong}")
    everything = list(mutants(workload, device.texts))
    for mutant in track(
        everything, f"{workload}: mutants", console=Console(stderr=True), disable=not sys.stderr.isatty()
    ):
        seen = outcome(mutant, expected)
        yield asdict(mutant) | {"seen": seen} | ({} if seen else {"reason": mutant.reason})


def table(rows: Sequence[dict[str, Any]]) -> Table:
    """Counts by workload and change."""
    printed = Table("workload", "change", "mutants", "seen", "equivalent", "missed")
    for workload in dict.fromkeys(row["workload"] for row in rows):
        for change in CHANGES:
            own = [row for row in rows if (row["workload"], row["change"]) == (workload, change)]
            seen = sum(bool(row["seen"]) for row in own)
            equivalent = sum(not row["seen"] and bool(row["reason"]) for row in own)
            printed.add_row(workload, change, *map(str, (len(own), seen, equivalent, len(own) - seen - equivalent)))
    return printed


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    parser.add_argument("--out", type=Path, default=ROOT / "profiles" / "counted" / "cuda_mutants.json")
    asked, console = parser.parse_args(argv), Console(soft_wrap=True)
    # A process that was forked beside threads of OpenMP waits for them for ever.
    lib.num_threads(1)
    before = json.loads(asked.out.read_text())["rows"] if asked.out.is_file() else []
    kept = [row for row in before if row["workload"] not in asked.workloads]
    record: dict[str, Any] = heading() | {"machine": machine(), "rows": kept}
    for workload in asked.workloads:
        for row in tried(workload):
            record["rows"].append(row)
            if not row["seen"] and not row["reason"]:
                console.print(
                    f"missed: {row['kernel']}, line {row['line']}, {row['change']}: {row['text']}", markup=False
                )
        write_json(record, asked.out)
    console.print(table(record["rows"]))
    missed = sum(not row["seen"] and not row["reason"] for row in record["rows"])
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
