"""Tensor products on a GPU, checked and then timed against e3nn (compiled), cuEquivariance and OpenEquivariance.

    python -m scripts.device.bench_cg [mace-large nequip-lips ...] [--dtypes float32 float64] [--out FILE]
    python -m scripts.device.bench_cg uvu-5 --simulate --batch 8 --contractions tiny      rehearsal: no figure counts

Batches are 50 000, of second derivatives 20 000, of roofline points 200 000. The gate: results of some rows agree with
dense sums in fp64 to 1e-6 (fp32) or 1e-14 of the largest. Peers that are not installed, or fail, are named with the
reason. Figures are medians of wall seconds, contestants in turns; a convolution has the nodes and edges of a protein, a
symmetric contraction (contractions.py) 2000 nodes.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from scripts import registry
from scripts.cg.peers import CONVOLUTIONS, PEERS, Peer
from scripts.device import contractions
from scripts.measuring import clocked, in_turns
from scripts.registry import Benchmark, number, several
from scripts.workloads.contractions import CONTRACTIONS, contraction
from scripts.workloads.contractions import operands as contraction_operands
from scripts.workloads.tensor_products import CHANNELWISE, ROOFLINE, awkward, configuration
from trnqc.cg.cuda.contraction_engine import CudaContractionEngine
from trnqc.cg.cuda.device_graph import DeviceGraph
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.jit.device import Device, cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice

CASES = (*CHANNELWISE, "DiffDock-L=1", "DiffDock-L=2", *ROOFLINE)
GATE = {"float32": 1e-6, "float64": 1e-14}
BATCHES = {"forward": 50_000, "backward": 50_000, "double_backward": 20_000}
# Nodes and edges: DHFR 1DRF within 3.5 Angstrom, and a carbon lattice.
GRAPHS = {"protein": (1_800, 56_000), "lattice": (1_000, 158_000)}
CHECKED = 16
PARTS = ("products", "convolutions", "contractions")


def problem_of(label: str) -> TPProblem:
    return configuration(label) if label in (*CHANNELWISE, *ROOFLINE) or "-L=" in label else awkward(label)


def operands(problem: TPProblem, batch: int, dtype: str, nodes: int | None = None) -> dict[str, np.ndarray]:
    """What passes read; of a convolution x and gz have a row a node. Rows repeat, since drawing them all takes long."""
    from scripts.workloads import tensor_product_oracle as oracle

    inputs: dict[str, np.ndarray] = {}
    for seed, prefix in enumerate(("", "gg")):
        x, y, w, gz = oracle.arrays(problem, min(batch, 997), seed, np.dtype(dtype))
        by_node = batch if nodes is None else nodes
        named = {"x": (x, by_node), "y": (y, batch), "w": (w, batch), "gz": (gz, by_node)}
        for name, (array, rows) in named.items():
            if not (prefix and name == "gz"):
                shared = name == "w" and problem.shared_weights
                inputs[prefix + name] = array if shared else np.resize(array, (rows, array.shape[1]))
    return inputs


def case(label: str, dtype: str, device: Device, rounds: int, batch: int | None, tensors: bool) -> list[dict[str, Any]]:
    """Raises AssertionError when the gate is not passed."""
    problem, rows = problem_of(label), []
    engine = CudaEngine(problem, dtype, device)
    for name, usual in BATCHES.items():
        count = batch or (200_000 if label in ROOFLINE else usual)
        inputs = {n: a for n, a in operands(problem, count, dtype).items() if n in DIRECTIONS[name].reads}
        checked(engine, problem, name, inputs, dtype)
        held = moved(inputs, tensors)
        contestants: dict[str, Callable[[], Any]] = {"ours": lambda: getattr(engine, name)(*held.values())}  # noqa: B023
        peers, reasons = ready(problem, name, held) if tensors else ({}, {})
        seconds = in_turns(rounds, {n: clocked(waiting(work, tensors)) for n, work in (contestants | peers).items()})
        record = row(label, dtype, name, count, seconds, reasons)
        record["gigabytes_s"] = engine.plan(name).moved * count / 1e9 / record["seconds"]["ours"]
        rows.append(record)
    return rows


def convolutions(
    label: str, dtype: str, device: Device, rounds: int, small: bool, tensors: bool
) -> list[dict[str, Any]]:
    """Forward and backward over graphs, with sums in order and by hardware, and beside peers."""
    problem, rows = problem_of(label), []
    engine, atomic = (CudaEngine(problem, dtype, device, atomic=atomic) for atomic in (False, True))
    for title, (nodes, edges) in {"small": (9, 40)}.items() if small else GRAPHS.items():
        rng = np.random.default_rng(0)
        ends = moved({"rows": rng.integers(0, nodes, edges), "cols": rng.integers(0, nodes, edges)}, tensors)
        graph = (DeviceGraph if tensors else EdgeGraph)(**ends, n_nodes=nodes)
        all_inputs = operands(problem, edges, dtype, nodes)
        for name in ("conv_forward", "conv_backward"):
            inputs = moved({n: a for n, a in all_inputs.items() if n in DIRECTIONS[name].reads}, tensors)
            contestants: dict[str, Callable[[], Any]] = {
                word: partial(getattr(e, name), *inputs.values(), graph)
                for word, e in (("ours", engine), ("ours, atomic", atomic))
            }
            pass_name = name.removeprefix("conv_")
            peers, reasons = ready(problem, pass_name, inputs, CONVOLUTIONS, *ends.values()) if tensors else ({}, {})
            seconds = in_turns(
                rounds, {n: clocked(waiting(work, tensors)) for n, work in (contestants | peers).items()}
            )
            rows.append(row(f"{problem.label} on {title}", dtype, name, edges, seconds, reasons))
    return rows


def contracted(
    label: str, dtype: str, device: Device, rounds: int, nodes: int, tensors: bool
) -> Iterator[dict[str, Any]]:
    """Symmetric contractions with sums of gradients in order and by hardware, and MACE's own."""
    problem, reasons = contraction(label), {}
    contractions.check(label, dtype, device)
    _, given = contraction_operands(problem, dtype, nodes, contractions.ELEMENTS)
    held, peer = moved(given, tensors), {}
    ours, atomic = (
        contractions.passes(CudaContractionEngine(problem, dtype, device, atomic=atomic), held)
        for atomic in (False, True)
    )
    try:
        peer = contractions.mace(problem, held) if tensors else {}
    except ImportError as reason:
        reasons["mace"] = str(reason)
    for title, work in ours.items():
        contestants = {"ours": work} | ({"ours, atomic": atomic[title]} if title in ("gradients", "second") else {})
        contestants |= {"mace": peer[title]} if title in peer else {}
        seconds = in_turns(rounds, {n: clocked(waiting(w, tensors)) for n, w in contestants.items()})
        yield row(f"contraction of {label}", dtype, title, nodes, seconds, reasons)


def checked(engine: CudaEngine, problem: TPProblem, name: str, inputs: dict[str, np.ndarray], dtype: str) -> None:
    """The first rows against dense sums."""
    from scripts.workloads import tensor_product_oracle as oracle

    part = {n: a if n.endswith("w") and problem.shared_weights else a[:CHECKED] for n, a in inputs.items()}
    result = getattr(engine, name)(*part.values())
    wanted = getattr(oracle, name)(problem, *part.values())
    pairs = zip(result, wanted) if isinstance(wanted, tuple) else [(result, wanted)]
    worst = max(oracle.error(ours, theirs) for ours, theirs in pairs)
    assert worst <= GATE[dtype], f"{problem.label}: {name} is off by {worst:.1e}, allowed {GATE[dtype]}"


def moved(inputs: dict[str, np.ndarray], tensors: bool) -> dict[str, Any]:
    if not tensors:
        return dict(inputs)
    import torch

    return {name: torch.as_tensor(array).cuda() for name, array in inputs.items()}


def waiting(work: Callable[[], Any], tensors: bool) -> Callable[[], Any]:
    """The work until the GPU has come to rest."""
    if not tensors:
        return work
    import torch

    def run() -> None:
        work()
        torch.cuda.synchronize()

    return run


def ready(
    problem: TPProblem, name: str, held: dict[str, Any], peers: Mapping[str, Callable[..., Any]] = PEERS, *ends: Any
) -> tuple[dict[str, Callable[[], Any]], dict[str, str]]:
    """Peers that run the pass, and why others do not. Peers of convolutions also take the ends of edges."""
    engines, reasons = {}, {}
    for title, make in peers.items():
        try:
            work = Peer(make(problem, held["x"], *ends)).work(name, held)
            work()
            engines[title] = work
        except Exception as reason:  # peers fail in ways of their own, and each is to be named
            reasons[title] = f"{type(reason).__name__}: {str(reason).splitlines()[0] if str(reason) else ''}"
    return engines, reasons


def row(
    label: str, dtype: str, name: str, count: int, seconds: dict[str, Any], reasons: dict[str, str]
) -> dict[str, Any]:
    walls = {title: median(wall for wall, _ in rounds) for title, rounds in seconds.items()}
    ratios = {title: wall / walls["ours"] for title, wall in walls.items() if title != "ours"}
    return {
        "case": label,
        "dtype": dtype,
        "pass": name,
        "batch": count,
        "seconds": walls,
        "ratios": ratios,
        "absent": reasons,
    }


def opened(asked: argparse.Namespace) -> str:
    """Open the first GPU, or a simulated one."""
    asked.device = SimulatedDevice(lanes=8) if asked.simulate else cuda_devices()[0]
    return str(asked.device.name)


def rows(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rows of every precision."""
    for dtype in asked.dtypes:
        yield from measured(asked, dtype, asked.device)


def measured(asked: argparse.Namespace, dtype: str, device: Device) -> Iterator[dict[str, Any]]:
    tensors = not asked.simulate
    for label in asked.cases if "products" in asked.parts else ():
        yield from case(label, dtype, device, asked.rounds, asked.batch, tensors)
    for label in asked.contractions if "contractions" in asked.parts else ():
        nodes = asked.batch or contractions.NODES
        yield from contracted(label, dtype, device, asked.rounds, nodes, tensors)
    small = ["uvu-5"] if asked.simulate else ["mace-large"]
    for label in (asked.convolutions or small) if "convolutions" in asked.parts else ():
        yield from convolutions(label, dtype, device, asked.rounds, asked.simulate, tensors)


def line(row: dict[str, Any]) -> str:
    """Milliseconds of ours, and how many times as long the others take."""
    beside = ", ".join(f"{title} {ratio:.2f}x" for title, ratio in row["ratios"].items())
    return f"{row['case']} {row['dtype']} {row['pass']}: {row['seconds']['ours'] * 1e3:.3f} ms {beside}"


BENCHMARK = Benchmark(
    "cg",
    __doc__,
    {"tensor products": rows},
    {
        "cases": {"nargs": "*", "default": list(CASES)},
        "--dtypes": several(["float32", "float64"], choices=GATE),
        "--parts": several(PARTS, choices=PARTS),
        "--convolutions": {"nargs": "+", "metavar": "case", "help": "of these cases (default: mace-large)"},
        "--contractions": several(["mace-large"], choices=CONTRACTIONS),
        "--rounds": number(20),
        "--batch": {"type": int, "help": "rows of a batch, instead of the usual ones"},
    },
    place=("", "rows"),
    line=line,
    facts=lambda asked: {"device": asked.device.name},
    device=opened,
)
main = partial(registry.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
