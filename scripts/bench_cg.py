"""How fast are the tensor products of irreps beside e3nn: batches, convolutions, real models, and threads?

    python -m scripts.bench_cg [--parts batch tuned uvw half conv cue mace training threads build] [--quick]
                               [--rounds 10] [--python PATH] [--vectors avx2] [--out FILE]

    batch    uvu products of published models, every direction alone, one thread, by CPU time; and their accuracy
    tuned    the same of mace-large with an allocator that gives no memory back, on both sides
    uvw      fully connected products, by CPU time, against the smallest of e3nn's times
    half     uvu products stored in half precision, by CPU time, against e3nn's and against ours in float32
    conv     fused convolution against gather, e3nn's product and index_add, and against our own unfused one
    cue      uvu products beside cuEquivariance's on a CPU; asks for cuequivariance-torch
    mace     energies and forces of a MACE model with random weights; asks for mace-torch,
             here or in the environment whose python --python or MACE_PYTHON names
    training the gradients of a loss of energy and forces with respect to the weights of the same model
    threads  one thread over two, by wall time
    build    CPU seconds to make and compile a batch's directions with an empty cache

The contestants take turns in one run; ratios are of medians where nothing else is said. A target is the least speedup
that is wished for. A part takes the place of what the file holds of it, and leaves the others.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator
from typing import Any

from scripts.measuring import process
from scripts.registry import PYTHON, SWITCH, Benchmark, Rows, main, named, number, speedup_table, speedups
from scripts.workloads.tensor_products import CHANNELWISE, FULL
from trnqc.bench import Figure
from trnqc.host.files import DIRECTORY_VARIABLE

UVU, UVW = tuple(CHANNELWISE), tuple(FULL)
DTYPES = ("float32", "float64")
TARGETS = {
    "float32": {"forward": 10.0, "backward": 10.0, "double_backward": 5.0},
    "float64": {"forward": 6.0, "backward": 8.0, "double_backward": 5.0},
}
UVW_TARGETS = {"DiffDock-L=2": {"forward": 2.0, "backward": 5.0}}
CONV_TARGETS = {
    "float32": {"forward over e3nn": 20.0, "forward over unfused": 2.0},
    "float64": {"forward over e3nn": 15.0, "forward over unfused": 2.0},
}
# glibc: blocks of any size from the heap, which is never trimmed.
TUNED = {"GLIBC_TUNABLES": "glibc.malloc.mmap_threshold=4294967296:glibc.malloc.trim_threshold=8589934592"}
ALLOCATOR = ("GLIBC_TUNABLES", "THP_MEM_ALLOC_ENABLE", "LD_PRELOAD")
# Parts that ask for packages beyond the tests'.
ELSEWHERE = ("cue", "mace", "training")


def batch(asked: argparse.Namespace) -> Rows:
    from scripts.cg.batch import accuracy, case

    for label in ("nequip-water",) if asked.quick else UVU:
        for dtype in DTYPES:
            targets = TARGETS[dtype] | ({"double_backward": 15.0} if label == "mace-large" else {})
            yield case(label, dtype, rounds=asked.rounds) | {"target": targets, "error": accuracy(label, dtype)}


def tuned(asked: argparse.Namespace) -> Rows:
    for dtype in DTYPES:
        row = process("scripts.cg.batch", "mace-large", dtype, environment=TUNED)
        yield row | {"environment": TUNED, "target": {"forward, fresh output": 8.0}}


def uvw(asked: argparse.Namespace) -> Rows:
    from scripts.cg.uvw import case

    for label in UVW[:1] if asked.quick else UVW:
        for dtype in DTYPES:
            yield case(label, dtype, rounds=asked.rounds) | {"target": UVW_TARGETS.get(label, {})}


def half(asked: argparse.Namespace) -> Rows:
    from scripts.cg.storage import case

    for label in ("nequip-water",) if asked.quick else UVU[:2]:
        for dtype in ("bfloat16", "float16"):
            yield case(label, dtype, rounds=asked.rounds) | {"target": {}}


def conv(asked: argparse.Namespace) -> Rows:
    from scripts.cg.conv import case

    for label in ("nequip-water",) if asked.quick else ("mace-large",):
        for dtype in DTYPES:
            row = case(label, dtype, nodes=64, edges=4096, rounds=asked.rounds, threads=2)
            yield row | {"error": row.pop("errors"), "target": CONV_TARGETS[dtype]}


def cue(asked: argparse.Namespace) -> Rows:
    from scripts.cg.batch import beside_cuequivariance

    for label in UVU[:1] if asked.quick else UVU[:3]:
        targets = {"forward": 5.0, "backward": 5.0} if label == "mace-large" else {}
        for dtype in DTYPES:
            yield beside_cuequivariance(label, dtype, rounds=asked.rounds) | {"target": targets}


def mace(asked: argparse.Namespace) -> Rows:
    from scripts.cg.mace import case

    for dtype in DTYPES:
        for tuned, target in ((False, 4.0), (True, 2.5)):
            yield case(asked.python, dtype, asked.rounds, tuned=tuned) | {"target": {"energy and forces": target}}


def training(asked: argparse.Namespace) -> Rows:
    from scripts.cg.mace import case

    for dtype in DTYPES:
        yield case(asked.python, dtype, min(asked.rounds, 5), training=True, cells=1 if asked.quick else 2) | {
            "target": {"training step": 4.0}
        }


def threads(asked: argparse.Namespace) -> Rows:
    from scripts.cg.batch import threads

    for label in ("mace-large",) if asked.quick else ("mace-large", "nequip-lips"):
        for dtype in DTYPES:
            row = threads(label, dtype, 2, rounds=asked.rounds)
            yield row | {"target": dict.fromkeys(row["speedup"], 1.7)}


def build(asked: argparse.Namespace) -> Rows:
    """In a process and a cache of its own."""
    allowed = {"mace-large": 5.0} | ({} if asked.quick else {"nequip-revmd17-benzene": 30.0})
    for label, seconds in allowed.items():
        with tempfile.TemporaryDirectory() as cache:
            row = process("scripts.cg.cold_build", label, "float32", environment={DIRECTORY_VARIABLE: cache})
        yield row | {
            "allowed seconds": seconds,
            "speedup": {"allowed over needed": seconds / row["cpu seconds"]},
            "target": {"allowed over needed": 1.0},
        }


def allocator(asked: argparse.Namespace) -> dict[str, Any]:
    """The variables that choose an allocator."""
    return {"allocator": {name: os.environ[name] for name in ALLOCATOR if name in os.environ} or "default"}


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Batches of tensor products and their derivatives, CPU seconds."""
    for direction in ("forward", "backward", "double_backward"):
        theirs, ours = (1e-3 * row["milliseconds"][f"{who} {direction}"] for who in ("e3nn", "trnqc"))
        what = f"{direction.replace('_', ' ')} of {row['case']}, {row['batch']} rows, {row['dtype']}, {row['layout']}"
        yield Figure(what, "e3nn", theirs, ours, row["speedup"][direction])


BENCHMARK = Benchmark(
    "cg",
    __doc__,
    named(batch, tuned, uvw, half, conv, cue, mace, training, threads, build),
    {"--rounds": number(10), "--quick": SWITCH | {"help": "a few cases of a few seconds"}, "--python": PYTHON},
    apart=ELSEWHERE,
    line=speedups,
    table=speedup_table,
    facts=allocator,
    shown={"batch": ("Tensor products of irreps", figures)},
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
