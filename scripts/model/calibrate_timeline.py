"""How much does the modelled timeline differ from published device figures?

    python -m scripts.model.calibrate_timeline [--out FILE]

Every row runs one of our own kernels (scripts/timeline) at the published size and compares one figure. The constants
of ``trnqc.sim.timeline.costs`` are the same for all rows; those marked "published profile" there were read off profiles
that some of the rows come from. Rows marked "bound" are upper limits of regression tests
and do not enter the statistics. Left out: Mamba without tiling at 8192 steps, which spilled on the device; kernels
whose source or generation is not published (attention, average pooling, RMSNorm with projection).
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

from rich.table import Table

from scripts import registry
from scripts.model.kernels import mamba, matmul
from scripts.registry import Benchmark, Rows, main
from trnqc.sim import Spec, Timeline, timeline
from trnqc.sim.timeline.costs import constants_for

GUIDE = "kernel-optimization guide"
FIGURE = "profile shown in the kernel-optimization guide"
RATIO = "rate and time shown there, against hoisted"
MAMBA = "fused-Mamba tutorial"
ACTIVE = "tensor_engine_active_time_percent"


@dataclass(frozen=True)
class Row:
    """One published figure and ours. error: modelled against published, as a fraction; bound: published is a limit."""

    workload: str
    figure: str
    unit: str
    published: float
    modelled: float
    source: str
    bound: bool = False

    @property
    def error(self) -> float:
        return self.modelled / self.published - 1


def fp32(*shape: int) -> Spec:
    return Spec(shape, "float32")


def run(kernel: Callable[..., Any], *args: Spec, target: str = "trn2", **kwargs: Any) -> Timeline:
    return timeline(kernel, target=target, event_limit=500)(*args, **kwargs)


@dataclass(frozen=True)
class Published:
    """What the guide shows for one matmul: ms, activities in percent, DMA packet time in ms over all DMA engines, and
    estimated use of the HBM rate in percent."""

    ms: float
    tensor: float
    dma: float
    packets: float
    mbu: float


MATMULS = {
    "tiled": Published(39.89, 87.28, 99.93, 519.58, 38.06),
    "hoisted": Published(28.20, 99.85, 99.73, 402.07, 43.87),
    "blocked": Published(28.41, 99.52, 95.70, 390.69, 42.55),
    "k_blocked": Published(28.30, 99.50, 21.54, 81.73, 8.96),
}


def traffic(name: str) -> float:
    """Published HBM bytes of a matmul as multiples of those of ``hoisted``: the use of the rate times the time."""
    return MATMULS[name].mbu * MATMULS[name].ms / (MATMULS["hoisted"].mbu * MATMULS["hoisted"].ms)


def matmuls() -> Iterator[Row]:
    """(4096 x 8192) (8192 x 8192) in fp32 on trn2; activities in percent, times in ms.

    The traffic published for ``blocked`` says how many columns of B its compiler kept, and is no row.
    """
    moved: dict[str, float] = {}
    for name, published in MATMULS.items():
        options: dict[str, Any] = {}
        if name == "blocked":
            options["kept"] = round((1 - traffic(name)) * moved["hoisted"] / (8192 * matmul.RUN * 4))
        timeline = run(getattr(matmul, name), fp32(8192, 4096), fp32(8192, 8192), **options)
        s: dict[str, Any] = timeline.summary()
        title = f"matmul {name}"
        moved[name] = s["hbm_read_bytes"] + s["hbm_write_bytes"]
        yield Row(title, "time", "ms", published.ms, timeline.total_ns / 1e6, FIGURE)
        yield Row(title, "TensorE active", "%", published.tensor, s[ACTIVE], GUIDE)
        yield Row(title, "DMA active", "%", published.dma, s["dma_active_time_percent"], GUIDE)
        yield Row(title, "DMA packet time", "ms", published.packets, 1e3 * s["dma_packet_time"], FIGURE)
        if name == "k_blocked":
            yield Row(title, "VectorE active", "%", 10.55, s["vector_engine_active_time_percent"], GUIDE)
    for name in ("tiled", "k_blocked"):
        yield Row(f"matmul {name}", "traffic", "x", traffic(name), moved[name] / moved["hoisted"], RATIO)


def scans() -> Iterator[Row]:
    """One Mamba layer of 16 states in fp32 on trn2."""

    def scan(channels: int, steps: int, **kwargs: Any) -> Timeline:
        inputs = (fp32(channels, steps), fp32(channels, steps), fp32(channels, 16), fp32(16, steps), fp32(16, steps))
        return run(mamba.scan, *inputs, **kwargs)

    def vector(timeline: Timeline) -> float:
        return float(timeline.summary()["vector_engine_active_time_percent"])

    c = constants_for("trn2")
    toy = scan(256, 512, reload=True)
    whole = (toy.total_ns + c["program_start_ns"] + c["program_stop_ns"]) / 1e3
    yield Row("Mamba v1, 256 channels, 512 steps", "time with set-up", "us", 172.93, whole, MAMBA)
    yield Row("Mamba v1, 256 channels, 512 steps", "VectorE active", "%", 98.71, vector(toy), MAMBA)
    first = scan(4096, 512, reload=True)
    yield Row("Mamba v1, 4096 channels, 512 steps", "time", "ms", 2.34, first.total_ns / 1e6, MAMBA)
    yield Row("Mamba v1, 4096 channels, 512 steps", "VectorE active", "%", 92.16, vector(first), MAMBA)
    for steps, ms in ((512, 1.61), (1024, 4.4), (2048, 8.9), (3072, 13.1), (4096, 17.6)):
        timeline = scan(4096, steps)
        yield Row(f"Mamba v2, 4096 channels, {steps} steps", "time", "ms", ms, timeline.total_ns / 1e6, MAMBA)
        if steps == 512:
            yield Row(f"Mamba v2, 4096 channels, {steps} steps", "VectorE active", "%", 99.63, vector(timeline), MAMBA)
    for steps, ms in ((512, 1.6), (1024, 3.3), (2048, 6.6), (3072, 10.1), (4096, 13.3), (8192, 27.8)):
        timeline = scan(4096, steps, length=512)
        yield Row(f"Mamba v3, 4096 channels, {steps} steps", "time", "ms", ms, timeline.total_ns / 1e6, MAMBA)
        if steps == 8192:
            yield Row(f"Mamba v3, 4096 channels, {steps} steps", "VectorE active", "%", 94.85, vector(timeline), MAMBA)


def pieces() -> Iterator[Row]:
    """Single instructions."""
    rows = run(mamba.load_rows, Spec((4, 4096), "bfloat16"))
    yield Row("32 KiB load by one DMA engine", "time", "ns", 1416, _first(rows, "dma0"), "DMA overview, example 1")
    tile = run(mamba.load_rows, Spec((128, 128), "bfloat16"))
    yield Row("2 KiB share of a 128 x 128 bf16 load", "time", "ns", 97, _first(tile, "dma0"), "DMA overview, example 2")
    chain = [e for e in run(mamba.scalar_chain, fp32(128, 1), target="trn1").events if e.engine == "scalar"]
    step = (chain[-1].start_ns - chain[1].start_ns) / (len(chain) - 2)
    yield Row("dependent 1-element ScalarE instructions, trn1", "interval", "ns", 189, step, "performance guide")
    c = constants_for("trn2")
    late = c["matmul_latency_cycles"] / c["tensor_ghz"]
    small = run(matmul.hoisted, Spec((1024, 128), "bfloat16"), Spec((1024, 512), "bfloat16"))
    note = "sample instruction table; taken as bf16, 512 columns, trn2"
    multiplies = [e.end_ns - e.start_ns for e in small.events if e.queue == "tensor"]
    weights = [e.end_ns - e.start_ns for e in small.events if e.queue == "weights"]
    yield Row("multiply, issue to result", "time", "ns", 348, statistics.mean(multiplies) + late, note)
    yield Row("weight load, issue to result", "time", "ns", 169, statistics.mean(weights) + late, note)
    fp8 = run(matmul.double_row, Spec((2, 8192, 512), "float8_e4m3"), Spec((2, 8192, 1024), "float8_e4m3"))
    test = "samples' regression bound"
    yield Row("fp8 double-row matmul 512 x 16384 x 1024", "time", "us", 320, fp8.total_ns / 1e3, test, bound=True)


def _first(timeline: Timeline, engine: str) -> float:
    event = next(e for e in timeline.events if e.engine == engine)
    return event.end_ns - event.start_ns


def orderings(rows: list[Row]) -> list[tuple[str, bool]]:
    """Pairs of variants at one size whose published figures differ by more than 1 %, and whether ours agree in sign."""
    groups: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        if row.workload.startswith("matmul"):
            groups.setdefault(("matmul", row.figure), []).append(row)
        elif row.workload.startswith("Mamba") and row.figure == "time":
            groups.setdefault(("Mamba", row.workload.split(",", 1)[1]), []).append(row)
    collected = []
    for (kind, what), group in groups.items():
        for n, a in enumerate(group):
            for b in group[n + 1 :]:
                if abs(a.published / b.published - 1) > 0.01:
                    sign = ">" if a.published > b.published else "<"
                    right = (a.published > b.published) == (a.modelled > b.modelled)
                    collected.append(
                        (f"{kind} {what.strip()}: {a.workload.split(',')[0]} {sign} {b.workload.split(',')[0]}", right)
                    )
    return collected


def table(part: str, rows: list[registry.Row]) -> Table:
    """One line for each figure."""
    headings = ("workload", "figure", "published", "modelled", "error", "source")
    shown = Table(*headings, title="modelled timeline against devices", width=170)
    for row in rows:
        error = ("within" if row["error"] <= 0 else "above") if row["bound"] else f"{100 * row['error']:+.1f} %"
        published = f"{row['published']:g} {row['unit']}" + " bound" * row["bound"]
        ours = f"{row['modelled']:.4g} {row['unit']}"
        shown.add_row(row["workload"], row["figure"], published, ours, error, row["source"])
    return shown


def statistics_of(record: registry.Row) -> dict[str, Any]:
    """Errors, and which variants are not ordered as published."""
    rows = [Row(**{name: row[name] for name in Row.__dataclass_fields__}) for row in record["rows"]]
    counted = [row for row in rows if not row.bound]
    worst, order = max(counted, key=lambda row: abs(row.error)), orderings(rows)
    errors = {
        "median_error": statistics.median(abs(row.error) for row in counted),
        "worst_error": abs(worst.error),
        "worst_row": f"{worst.workload}, {worst.figure}",
        "orderings": len(order),
        "orderings_wrong": [name for name, right in order if not right],
    }
    return {"statistics": errors}


def rows(asked: argparse.Namespace) -> Rows:
    """All figures with their errors."""
    for row in itertools.chain(matmuls(), scans(), pieces()):
        yield asdict(row) | {"error": row.error}


BENCHMARK = Benchmark(
    "timeline_calibration",
    __doc__,
    {"timeline": rows},
    place=("", "rows"),
    line=lambda row: f"{row['workload']}, {row['figure']}: {100 * row['error']:+.1f} %",
    table=table,
    facts=lambda asked: {"constants": {name: constants_for(name) for name in ("trn1", "trn2", "trn3")}},
    folder="modelled",
    summary=statistics_of,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
