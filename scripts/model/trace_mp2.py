"""Instruction counts and on-chip memory of the MP2 kernels, traced without executing the arithmetic.

    python -m scripts.model.trace_mp2 [--out FILE]

One row a kernel, shape, target and precision: launches, instructions in the programs (static), instructions that run
(executed), products of the tensor engine against the number that the algorithm needs, high water of SBUF and PSUM in
bytes per partition. mp2_gamma is launched for blocks of orbitals whose amplitudes fit its planner's limit.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from itertools import product
from typing import Any

import ml_dtypes
import numpy as np

from nki_kernels import mp2_gamma_plan as gamma_plan
from nki_kernels import mp2_plan as plan
from nki_kernels.mp2_energy import mp2_energy
from nki_kernels.mp2_gamma import mp2_gamma
from scripts.registry import Benchmark, Rows, listing, main
from trnqc import sim

SHAPES = {
    "benzene/cc-pVTZ": (15, 243, 666),
    "medium": (64, 448, 1536),
    "large": (96, 672, 2304),
    "caffeine/cc-pVTZ": (37, 509, 1434),
    "4 occupied of medium": (4, 448, 1536),
    "several thousand": (8, 2800, 9000),
}
COLUMNS = (
    "kernel",
    "shape",
    "nocc/nvir/naux",
    "target",
    "precision",
    "block",
    "kchunk",
    "launches",
    "static",
    "executed",
    "products",
    "needed",
    "transposes",
    "SBUF",
    "PSUM",
    "seconds",
)


def arguments(nocc: int, nvir: int, naux: int, precision: str) -> tuple[Any, ...]:
    """Arguments of a launch over all pairs, factors by shape only."""
    tiles = plan.choose_tiles(nvir, naux, 4)
    work = plan.work_list(plan.star_pairs(nocc, tiles.group), -np.ones(nocc), tiles)
    parts, dtype = (1, np.float32) if precision == "fp32" else (2, ml_dtypes.bfloat16)
    bt = sim.Spec((parts, nocc * tiles.nblk, plan.P, tiles.nk, tiles.block), dtype)
    row, col = (sim.Spec(x.shape, np.float32) for x in plan.pack_virtuals(np.ones(nvir), tiles))
    e_pair = sim.Spec(work.e_pair.shape, np.float32)
    return (bt, row, col, e_pair, work.rows, work.bounds, nvir, naux, tiles.kchunk), tiles


def needed_products(nocc: int, tiles: plan.Mp2Tiles, products: int, at_once: int) -> int:
    """Matmul instructions if each tile is computed once: T and U right of the diagonal, T on it and for i = j.

    Several pairs with one first index, ``at_once`` of them, take one instruction for T where it has columns for them.
    """
    pairs = nocc * (nocc - 1) // 2
    grouped = len(plan.group_pairs(plan.star_pairs(nocc, tiles.group), tiles.group, 1)[0])
    batches = [min(at_once, tiles.group - first) for first in range(0, tiles.group, at_once)]
    needed = 0
    for kind, (rows, cols, same) in enumerate(plan.block_kinds(tiles.nvir, tiles.block)):
        for _, _, _, n, diagonal in plan.tile_list(rows, cols, same):
            of_group = sum(-(-batch // max(1, plan.RUN // n)) for batch in batches)
            of_tile = grouped * of_group + pairs - grouped * tiles.group + (0 if diagonal else pairs) + nocc
            needed += len(plan.block_pairs(tiles, kind)) * of_tile
    return tiles.nk * products * needed


def needed_gamma(sides: gamma_plan.Sides, tiles: gamma_plan.GammaTiles, products: int) -> int:
    """Those of the pair energies for each unordered pair, and the tiles of the second product."""
    n, m, pairs = sides.nocc_left, sides.nocc_right, tiles.pairs
    whole, *parts = (needed_products(count, pairs, products, 1) if count else 0 for count in (n + m, n, m))
    first = whole - sum(parts) if m else whole
    whole_columns, rest = divmod(pairs.naux, tiles.cols)
    runs = whole_columns * -(-tiles.cols // plan.RUN) + -(-rest // plan.RUN)
    return first + products * runs * -(-sides.left // plan.P) * -(-sides.right // plan.P) * (2 if m else 1)


def measure_energy(name: str, shape: tuple[int, int, int], target: str, precision: str) -> dict[str, object]:
    """The row of mp2_energy over all pairs."""
    args, tiles = arguments(*shape, precision)
    start = time.perf_counter()
    trace = sim.trace(mp2_energy)(*args)
    needed = needed_products(shape[0], tiles, 1 if precision == "fp32" else 3, tiles.at_once)
    return row("mp2_energy", name, shape, target, precision, tiles, [(1, trace)], needed, start)


def measure_gamma(name: str, shape: tuple[int, int, int], target: str, precision: str) -> dict[str, object]:
    """The row of mp2_gamma over all pairs."""
    nocc, nvir, naux = shape
    tiles = gamma_plan.choose_tiles(nvir, naux, 4)
    start, needed, traces = time.perf_counter(), 0, []
    most = min(gamma_plan.MOST_ELEMENTS, gamma_plan.THETA_BYTES // 4)
    sizes = Counter(sides for sides, _, _ in gamma_plan.blocks(gamma_plan.Sides(nocc, nvir), most))
    for sides, launches in sizes.items():
        args, constants = gamma_plan.shapes(sides, naux, tiles, precision, 1, sim.Spec)
        traces.append((launches, sim.trace(mp2_gamma)(*args, **constants)))
        needed += launches * needed_gamma(sides, tiles, 1 if precision == "fp32" else 3)
    return row("mp2_gamma", name, shape, target, precision, tiles.pairs, traces, needed, start)


def row(
    kernel: str,
    name: str,
    shape: tuple[int, int, int],
    target: str,
    precision: str,
    tiles: plan.Mp2Tiles,
    traces: list[tuple[int, Any]],
    needed: int,
    start: float,
) -> dict[str, object]:
    """A row over (launches, trace) of every program."""
    values = (
        kernel, name, "/".join(map(str, shape)), target, precision, tiles.block, tiles.kchunk,
        sum(launches for launches, _ in traces),
        sum(sum(trace.static.values()) for _, trace in traces),
        sum(launches * sum(trace.executed.values()) for launches, trace in traces),
        sum(launches * trace.executed["nc_matmul"] for launches, trace in traces), needed,
        sum(launches * trace.executed["nc_transpose"] for launches, trace in traces),
        max(trace.sbuf_high_water for _, trace in traces), max(trace.psum_high_water for _, trace in traces),
        round(time.perf_counter() - start, 2),
    )  # fmt: skip
    return dict(zip(COLUMNS, values))


def rows(asked: argparse.Namespace) -> Rows:
    """Both kernels in all shapes."""
    for measure, (name, shape), target in product((measure_energy, measure_gamma), SHAPES.items(), ("trn1", "trn2")):
        os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = target
        for precision in ("fp32", "bf16x3"):
            yield measure(name, shape, target, precision)


BENCHMARK = Benchmark(
    "mp2_instructions",
    __doc__,
    {"mp2": rows},
    place=("", "rows"),
    line=lambda row: f"{row['kernel']}, {row['shape']}, {row['target']} {row['precision']}",
    table=listing(dict.fromkeys(COLUMNS), width=200),
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
