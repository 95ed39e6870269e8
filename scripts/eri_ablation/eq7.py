"""The score of FusionRCG's scheduler (arXiv 2605.10312, Eq. 7) in several readings, beside the scheduler `target`.

Of the ready nodes R the paper takes v* = argmax over v in R of the sum over w in Reach(v) of (out(w) - in(w)), and does
not define Reach. Nodes are values of the recurrence, out counts users and in counts operands. The paper has no table of
live values by class, but claims about 50 at most for the sum of l up to 6.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from scripts.eri_ablation.graphs import digest, remembered, shells
from trnqc.eri.kernels.recurrence import recurrence
from trnqc.gen.graph import Graph
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import State, by_score, target

RULES = ("interleaved", "ket first", "bra first")
# Nodes up to which all readings are scheduled: a score visits every ready node in every step.
LISTED = 3000

Reach = Callable[[State, int], set[int]]


def dependants(graph: Graph) -> list[set[int]]:
    """Return all direct and indirect users of each node."""
    above: list[set[int]] = [set() for _ in range(len(graph))]
    for v in reversed(range(len(graph))):
        above[v] = set(graph.users[v]).union(*(above[w] for w in graph.users[v]))
    return above


def readings(graph: Graph) -> dict[str, Reach]:
    """Return Reach(v) by the words that define it."""
    above = dependants(graph)
    return {
        "all dependants": lambda state, v: above[v],
        "v and all dependants": lambda state, v: above[v] | {v},
        "users": lambda state, v: set(graph.users[v]),
        "v and its users": lambda state, v: {v, *graph.users[v]},
        "users that become ready": lambda state, v: {w for w in graph.users[v] if state.missing[w] == 1},
        "v": lambda state, v: {v},
    }


def peaks(graph: Graph) -> dict[str, int]:
    """Return the values that live at once by reading, with the largest and with the smallest sum, and of `target`."""
    change = [len(users) - len(operands) for users, operands in zip(graph.users, graph.operands)]
    result = {"target": peak_live(graph, target(graph))}
    for name, reach in readings(graph).items():
        for word, sign in (("argmax", 1), ("argmin", -1)):

            def score(state: State, v: int, reach: Reach = reach, sign: int = sign) -> float:
                return sign * sum(change[w] for w in reach(state, v))

            result[f"{name}, {word}"] = peak_live(graph, by_score(graph, score))
    return result


def class_rows(digits: str) -> dict[str, Any]:
    """Return the peaks of a class by rule of axes; no rules for a graph that is too large."""
    rows = {}
    for rule in RULES:
        graph = recurrence(*shells(digits), rule=rule).graph
        if len(graph) <= LISTED:
            rows[rule] = remembered("ablation-eq7", lambda graph=graph: peaks(graph), digest(graph))  # type: ignore[misc]
    return {"class": digits, "rules": rows}
