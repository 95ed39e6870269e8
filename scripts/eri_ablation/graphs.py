"""The vertical recurrence's graph by axis rule and scheduler: nodes, flops, values that live at once, slots."""

from __future__ import annotations

import hashlib
import random
from typing import Any

from scripts.eri.remembered import remembered
from trnqc.eri.kernels.recurrence import RULES, fewest_flops, recurrence
from trnqc.gen.cost import cost_of_values
from trnqc.gen.graph import Graph
from trnqc.gen.liveness import allocate, peak_live
from trnqc.gen.schedule import METHODS, first

SOURCES = ("trnqc/gen/schedule.py", "trnqc/gen/liveness.py")
# Beyond this many nodes list scheduling in Python, which looks at every ready node in every step, takes too long, and
# completing targets takes minutes: it is then done once, for the rules that GPUs want.
LISTED = 9000
GPU_RULES = ("interleaved", "mirrored")


def shells(digits: str) -> tuple[int, int, int, int]:
    la, lb, lc, ld = map(int, digits)
    return la, lb, lc, ld


def rules(digits: str) -> tuple[str, ...]:
    """The fixed orders of axes, and the CPU's: the side of lower l first, and of its axes the cheapest."""
    return (*RULES, fewest_flops(*shells(digits)))


def graph_row(digits: str, rule: str) -> dict[str, Any]:
    """Counts of one graph; by scheduler `peaks`, and `slots` before and after values share them."""
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
    results = remembered("ablation-graph", compute, digest(graph), LISTED, sources=SOURCES)
    return {"class": digits, "rule": rule, **counts, **results}


def digest(graph: Graph) -> str:
    words = repr((graph.operands, graph.targets, graph.inputs)).encode()
    return hashlib.sha256(words).hexdigest()


def draws_for(graph: Graph) -> int:
    """Ties drawn."""
    return 16 if len(graph) < 1000 else 8 if len(graph) < 4000 else 2 if len(graph) <= LISTED else 1


def fewest_live(digits: str) -> dict[str, Any]:
    """The best of several draws over the rules made for GPUs, completing targets; `all` by rule and draw."""
    peaks = {}
    for rule in GPU_RULES:
        graph = recurrence(*shells(digits), rule=rule).graph

        def compute(graph: Graph = graph, rule: str = rule) -> list[int]:
            if len(graph) > LISTED:
                return [graph_row(digits, rule)["peaks"]["target"]]
            ties = [first, *(random.Random(f"0/{n}").random for n in range(1, draws_for(graph)))]
            return [peak_live(graph, METHODS["target"](graph, draw)) for draw in ties]

        peaks[rule] = remembered("ablation-draws", compute, digest(graph), draws_for(graph), sources=SOURCES)
    best = min(peaks, key=lambda rule: min(peaks[rule]))
    return {"class": digits, "peak": min(peaks[best]), "rule": best, "all": peaks}
