"""Modelled time of the MP2 kernels and the GEMM kernels, beside the original request's design and published times.

    python -m scripts.model.mp2 [--shapes small medium large] [--targets trn1 trn2] [--out FILE]

Everything printed is modelled on one NeuronCore by ``trnqc.sim.timeline``, except the lines called published,
which are device times of earlier implementations on trn1. Launches are counted apart, at the table's overhead for each.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from itertools import product

import numpy as np
from rich.table import Table

from nki_kernels import mp2_gamma_plan as gamma_plan
from nki_kernels import mp2_plan as plan
from nki_kernels.batched_contraction import batched_contraction
from nki_kernels.gemm import gemm
from nki_kernels.mp2_energy import mp2_energy
from nki_kernels.mp2_gamma import mp2_gamma
from scripts.model.kernels.rfc_pair import rfc_pair
from scripts.registry import Benchmark, Row, Rows, main, several
from trnqc.sim import Spec, Timeline, timeline
from trnqc.sim.timeline.costs import TABLE, constants_for

# nocc, nvir, naux; the small shape is about that of benzene/cc-pVDZ
SHAPES = {"small": (16, 100, 420), "medium": (64, 448, 1536), "large": (96, 672, 2304)}
PUBLISHED = (
    ("medium", "the request's fused reduction, energy step", 5.43),
    ("medium", "two GEMMs a tile, one launch a pair", 9.17),
    ("medium", "one launch an i, warm", 1.536),
    ("large", "the request's fused reduction, energy step", 30.27),
)


@dataclass(frozen=True)
class Line:
    """One modelled run of ``launches`` equal programs; times in seconds."""

    kernel: str
    shape: str
    target: str
    precision: str
    seconds: float
    launches: int
    seconds_with_launches: float
    tensor_busy_percent: float
    tensor_active_percent: float
    vector_busy_percent: float
    scalar_busy_percent: float
    dma_active_percent: float
    overlap_percent: float
    mfu_percent: float
    binding: str
    tensor_waits_percent: dict[str, float]
    extrapolation: str
    modelling_seconds: float


def line(kernel: str, shape: str, precision: str, modelled: Timeline, launches: int, times: int, began: float) -> Line:
    """times: how often the modelled program runs; launches: how often the host starts one."""
    s = modelled.summary()
    seconds = times * modelled.total_ns * 1e-9
    waits = {
        k: 100 * v / modelled.total_ns
        for k, v in modelled.waits.get("tensor", {}).items()
        if v > 1e-3 * modelled.total_ns
    }
    return Line(
        kernel,
        shape,
        modelled.target,
        precision,
        seconds,
        launches,
        seconds + launches * float(s["launch_overhead"]),
        float(s["tensor_engine_busy_time_percent"]),
        float(s["tensor_engine_active_time_percent"]),
        float(s["vector_engine_busy_time_percent"]),
        float(s["scalar_engine_busy_time_percent"]),
        float(s["dma_active_time_percent"]),
        float(s["overlap_time_percent"]),
        float(s["mfu_estimated_percent"]),
        str(s["binding_engine"]),
        waits,
        modelled.extrapolation,
        time.perf_counter() - began,
    )


def pair_energies(shape: str, target: str, precision: str, constants: dict[str, float] | None = None) -> Line:
    """mp2_energy over all pairs in one launch, with its default tiles."""
    began = time.perf_counter()
    nocc, nvir, naux = SHAPES[shape]
    parts, dtype = (2, "bfloat16") if precision == "bf16x3" else (1, "float32")
    tiles = plan.choose_tiles(nvir, naux, 4)
    ((_, work),) = plan.launches(nocc, np.linspace(-1.0, -0.3, nocc), tiles, 1, nocc * nocc)
    modelled = timeline(mp2_energy, target=target, constants=constants, event_limit=0)(
        Spec((parts, nocc * tiles.nblk, plan.P, tiles.nk, tiles.block), dtype),
        Spec((tiles.nblk, tiles.block), "float32"),
        Spec((tiles.nblk, plan.P, -(-tiles.block // plan.P)), "float32"),
        work.e_pair,
        work.rows,
        work.bounds,
        nvir,
        naux,
        tiles.kchunk,
    )
    return line("mp2_energy", shape, precision, modelled, 1, 1, began)


def gamma(shape: str, target: str, precision: str) -> list[Line]:
    """mp2_gamma over all pairs: one line for the launches of each size that its planner makes of the orbitals."""
    nocc, nvir, naux = SHAPES[shape]
    tiles = gamma_plan.choose_tiles(nvir, naux, 4)
    most = min(gamma_plan.MOST_ELEMENTS, gamma_plan.THETA_BYTES // 4)
    sizes = Counter(sides for sides, _, _ in gamma_plan.blocks(gamma_plan.Sides(nocc, nvir), most))
    lines = []
    for sides, launches in sizes.items():
        began = time.perf_counter()
        args, constants = gamma_plan.shapes(sides, naux, tiles, precision, 1, Spec)
        found = timeline(mp2_gamma, target=target, event_limit=0)(*args, **constants)
        orbitals = f"{sides.nocc_left} x {sides.nocc_right}" if sides.nocc_right else str(sides.nocc_left)
        what = f"mp2_gamma, {orbitals} orbitals"
        lines.append(line(what, shape, precision, found, launches, launches, began))
    return lines


def request_design(shape: str, target: str) -> Line:
    """The original request's kernel, launched for each of the nocc^2 ordered pairs."""
    began = time.perf_counter()
    nocc, nvir, naux = SHAPES[shape]
    rows, cols = -(-naux // plan.P) * plan.P, -(-nvir // plan.P) * plan.P
    factor = Spec((rows, cols), "float32")
    energies = Spec((plan.P, cols // plan.P), "float32"), Spec((plan.P, cols), "float32")
    modelled = timeline(rfc_pair, target=target, event_limit=0)(factor, factor, *energies)
    return line("request's design", shape, "fp32", modelled, nocc * nocc, nocc * nocc, began)


def products(target: str, precision: str) -> list[Line]:
    """gemm at 4096^3 and a batch of 64 pair products of the medium shape."""
    began = time.perf_counter()
    parts = 2 if precision == "bf16x3" else 1
    dtype = "float32" if precision == "fp32" else "bfloat16"
    square, (_, nvir, naux) = Spec((parts, 4096, 4096), dtype), SHAPES["medium"]
    batch = Spec((parts, 64, naux, nvir), dtype)
    one = timeline(gemm, target=target, event_limit=0)(square, square)
    first = line("gemm", "4096 x 4096 x 4096", precision, one, 1, 1, began)
    began = time.perf_counter()
    many = timeline(batched_contraction, target=target, event_limit=0)(batch, batch)
    return [first, line("batched_contraction", f"64 x {nvir} x {nvir} x {naux}", precision, many, 1, 1, began)]


@cache
def sensitivity(shape: str = "medium", target: str = "trn1") -> list[Row]:
    """What each assumed constant is worth: it is doubled, or turned over if it is a flag; fp32."""
    base, rows = pair_energies(shape, target, "fp32"), []
    for c in TABLE:
        if c.assumed and c.name != "launch_ns":
            before = constants_for(target)[c.name]
            after = 1.0 - before if c.unit == "flag" else 2.0 * before
            changed = pair_energies(shape, target, "fp32", {c.name: after})
            rows.append(
                {
                    "constant": c.name,
                    "value": before,
                    "changed_to": after,
                    "time_change_percent": 100 * (changed.seconds / base.seconds - 1),
                    "tensor_active_percent": changed.tensor_active_percent,
                }
            )
    print(f"mp2_energy {shape} {target} fp32, modelled, if an assumed constant were another:")
    for x in rows:
        change = f"{x['value']:>8g} -> {x['changed_to']:<8g} time {x['time_change_percent']:+6.2f} %"
        print(f"  {x['constant']:24} {change}, TensorE active {x['tensor_active_percent']:.1f} %")
    return rows


def table(part: str, lines: list[Row]) -> Table:
    """One line for each run, and the published times below."""
    table = Table("kernel", "shape", "target", "precision", "time", "+ launches", title="modelled, one NeuronCore")
    for name in ("TensorE busy", "active", "VectorE", "ScalarE", "DMA", "overlap", "binds", "TensorE waits"):
        table.add_column(name)
    table.width, shares = 190, ("tensor_busy", "tensor_active", "vector_busy", "scalar_busy", "dma_active", "overlap")
    for x in lines:
        table.add_row(
            *(x[name] for name in ("kernel", "shape", "target", "precision")),
            f"{1e3 * x['seconds']:.2f} ms",
            f"{1e3 * x['seconds_with_launches']:.1f} ms / {x['launches']}",
            *(f"{x[f'{name}_percent']:.1f} %" for name in shares),
            x["binding"],
            ", ".join(f"{name} {share:.1f}" for name, share in x["tensor_waits_percent"].items()),
        )
    for shape, what, seconds in PUBLISHED:
        table.add_row(f"published: {what}", shape, "trn1", "fp32", f"{1e3 * seconds:g} ms")
    return table


def lines(asked: argparse.Namespace) -> Rows:
    """The kernels of each shape, and products."""
    for shape, target in product(asked.shapes, asked.targets):
        runs = [pair_energies(shape, target, precision) for precision in ("fp32", "bf16x3")]
        runs += [request_design(shape, target), *gamma(shape, target, "fp32"), *gamma(shape, target, "bf16x3")]
        yield from map(asdict, runs)
    for target, precision in product(asked.targets, ("fp32", "bf16x3", "bf16")):
        yield from map(asdict, products(target, precision))


BENCHMARK = Benchmark(
    "mp2",
    __doc__,
    {"mp2": lines},
    {
        "--shapes": several(list(SHAPES), choices=SHAPES),
        "--targets": several(["trn1", "trn2"], choices=("trn1", "trn2", "trn3")),
    },
    place=("", "lines"),
    line=lambda row: f"{row['kernel']}, {row['shape']}, {row['target']} {row['precision']}: {row['seconds']:.4g} s",
    table=table,
    facts=lambda asked: {
        "published": [{"shape": s, "what": w, "seconds": t, "target": "trn1"} for s, w, t in PUBLISHED],
        "sensitivity": sensitivity(),
    },
    folder="modelled",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
