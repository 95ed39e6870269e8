"""The vertical recurrence's graph by axis rule and scheduler: nodes, flops, values that live at once, slots."""

from __future__ import annotations

import hashlib
import json
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts import ROOT
from trnqc.eri.kernels.recurrence import RULES, fewest_flops, recurrence
from trnqc.gen.cost import cost_of_values
from trnqc.gen.graph import Graph
from trnqc.gen.liveness import allocate, peak_live
from trnqc.gen.schedule import METHODS, first
from trnqc.jit.cache import key_of, library_cache

SOURCES = ("trnqc/gen/schedule.py", "trnqc/gen/liveness.py")
# Number of nodes up to which list scheduling is done for all rules. It visits every ready node in every step. Beyond
# this, only the order "target" is computed, which takes minutes, and only for the rules that suit GPUs.
LISTED = 9000
GPU_RULES = ("interleaved", "mirrored")


def shells(digits: str) -> tuple[int, int, int, int]:
    la, lb, lc, ld = map(int, digits)
    return la, lb, lc, ld


def rules(digits: str) -> tuple[str, ...]:
    """Return the fixed rules of axes, and that of the CPU: first the side of lower l, and of its axes the cheapest."""
    return (*RULES, fewest_flops(*shells(digits)))


def graph_row(digits: str, rule: str) -> dict[str, Any]:
    """Return counts of one graph, and by scheduler `peaks`, and `slots` before and after values share them."""
    system = recurrence(*shells(digits), rule=rule)
    graph = system.graph

    def compute() -> dict[str, Any]:
        row: dict[str, Any] = {"peaks": {}, "slots": {}}
        slow = ("greedy", "reach") if rule in GPU_RULES else ("greedy", "reach", "target")
        for name in METHODS:
            if len(graph) <= LISTED or name not in slow:
                order = METHODS[name](graph, first)
                places = allocate(graph, order)
                row["peaks"][name], row["slots"][name] = peak_live(graph, order), [places.before, places.count]
        return row

    counts = {"nodes": len(graph), "edges": graph.edges, "targets": len(graph.targets)}
    counts["flops"] = cost_of_values(*system.targets).flops.at()
    figures = remembered("ablation-graph", compute, digest(graph), LISTED)
    return {"class": digits, "rule": rule, **counts, **figures}


def digest(graph: Graph) -> str:
    words = repr((graph.operands, graph.targets, graph.inputs)).encode()
    return hashlib.sha256(words).hexdigest()


def draws_for(graph: Graph) -> int:
    """Return the number of random draws among equally good nodes."""
    return 16 if len(graph) < 1000 else 8 if len(graph) < 4000 else 2 if len(graph) <= LISTED else 1


def fewest_live(digits: str) -> dict[str, Any]:
    """Return the fewest live values over the rules for GPUs and several draws; `all` has them by rule and draw."""
    peaks = {}
    for rule in GPU_RULES:
        graph = recurrence(*shells(digits), rule=rule).graph

        def compute(graph: Graph = graph, rule: str = rule) -> list[int]:
            if len(graph) > LISTED:
                return [graph_row(digits, rule)["peaks"]["target"]]
            ties = [first, *(random.Random(f"0/{n}").random for n in range(1, draws_for(graph)))]
            return [peak_live(graph, METHODS["target"](graph, draw)) for draw in ties]

        peaks[rule] = remembered("ablation-draws", compute, digest(graph), draws_for(graph))
    best = min(peaks, key=lambda rule: min(peaks[rule]))
    return {"class": digits, "peak": min(peaks[best]), "rule": best, "all": peaks}


def remembered(name: str, compute: Callable[[], Any], *parts: Any) -> Any:
    """Return what `compute` returns, from the cache of compiled files if no part and no file of SOURCES has changed."""
    key = key_of(*(repr(part) for part in parts), *((ROOT / source).read_text() for source in SOURCES))
    entry = library_cache().get(f"{name}-{key}", lambda out: _write(out, compute()), ".json")
    return json.loads(entry.read_text())


def _write(out: Path, result: Any) -> None:
    out.write_text(json.dumps(result))
