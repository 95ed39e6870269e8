"""Does the model of times predict the order of real runs? Fused loops over many tiles, predicted before they run.

The rates of the model (trnqc.contraction.cost.rates) are measured on small matrix products and copies, never on loops,
so all of it is out of sample. What counts are pairs of tiles that the model says differ by CLEAR or more: on how many
of them the measured order is the predicted one; and the same among tiles within CLOSE of the predicted best, without
those so short that starting products is nearly all that they cost.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from itertools import combinations, product
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from scripts.contract.memory import indices, ladder_tree, leaf
from trnqc.contraction.cost.rates import OperationRates, measured_rates
from trnqc.contraction.estimate import nest_seconds
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf

CLEAR, CLOSE = 1.3, 2.0
SCRATCH = 2**17
ROUNDS = 3


def four_factors(long: int, short: int) -> Tree:
    t1 = TreeNode("T1", tuple("bcdf"), (leaf("B", "befl", 1), leaf("D", "cdel", 3)))
    t2 = TreeNode("T2", tuple("bcjk"), (t1, leaf("C", "dfjk", 2)))
    return Tree(
        TreeNode("S", tuple("abij"), (t2, leaf("A", "acik", 0))), indices(V=("abcdef", long), O=("ijkl", short))
    )


def four_index(extent: int) -> Tree:
    step: Leaf | TreeNode = leaf("A", "pqrs", 0)
    labels = "pqrs"
    for k, (old, new) in enumerate(zip("pqrs", "abcd")):
        labels = labels.replace(old, new)
        step = TreeNode(("T1", "T2", "T3", "B")[k], tuple(labels), (step, leaf(f"C{new}", old + new, 1 + k)))
    assert isinstance(step, TreeNode)
    return Tree(step, indices(N=("pqrsabcd", extent)))


Case = tuple[Tree, Mapping[str, str], tuple[int, ...]]


def cases() -> dict[str, Case]:
    """Tree, labels that each temporary shares with its consumer, and the tiles of these labels."""
    ladder = ladder_tree(8, 48, 96)
    return {
        "ladder, be": (ladder, {"W": "be"}, (1, 2, 4, 8, 16, 48)),
        "ladder, ae": (ladder, {"W": "ae"}, (2, 8, 24, 48)),
        "ladder, ab": (ladder_tree(6, 40, 80), {"W": "ab"}, (1, 2, 5, 10, 20, 40)),
        "ladder, abe": (ladder_tree(6, 40, 80), {"W": "abe"}, (4, 10, 20, 40)),
        "four factors, bc": (four_factors(20, 6), {"T1": "bc", "T2": "bc"}, (1, 2, 5, 10, 20)),
        "transformation, a": (four_index(28), {"T1": "a", "T2": "a", "T3": "a"}, (1, 2, 4, 7, 14, 28)),
    }


def order() -> dict[str, Any]:
    rates = measured_rates()
    rows = {name: _case(rates, *case) for name, case in cases().items()}
    total = {
        key: sum(row[key] for row in rows.values())
        for key in ("clear_pairs", "agreeing", "close_pairs", "close_agreeing")
    }
    for name, row in rows.items():
        print(
            f"{name:20} {row['trials']:3} tiles: {row['agreeing']} of {row['clear_pairs']} clear pairs in order, rank "
            f"correlation {row['rank_correlation']:.2f}, predicted over measured {row['median_ratio']:.2f}, predicted "
            f"best costs {row['chosen_over_best']:.2f} of the best"
        )
    print(
        f"{total['agreeing']} of {total['clear_pairs']} pairs that should differ by {CLEAR} or more are in the "
        f"predicted order; {total['close_agreeing']} of {total['close_pairs']} among tiles within {CLOSE} of "
        "the predicted best"
    )
    return {"rates": vars(rates), "clear": CLEAR, "close": CLOSE, **total, "cases": rows}


def _case(rates: OperationRates, tree: Tree, fused: Mapping[str, str], sizes: tuple[int, ...]) -> dict[str, Any]:
    labels = sorted(set("".join(fused.values())))
    tiles = [dict(zip(labels, chosen)) for chosen in product(sizes, repeat=len(labels))]
    shared = {name: frozenset(chosen) for name, chosen in fused.items()}
    schedules = [TreeSchedule(nest_of(FusedTree(tree, shared, trial)), SCRATCH) for trial in tiles]
    predicted = [nest_seconds(schedule.nest, SCRATCH, rates) for schedule in schedules]
    measured = _measured(tree, schedules)
    every = _agreement(predicted, measured, range(len(tiles)))
    near = [k for k, seconds in enumerate(predicted) if seconds <= CLOSE * min(predicted)]
    close = _agreement(predicted, measured, near)
    return {
        "trials": len(tiles),
        "clear_pairs": len(every),
        "agreeing": sum(every),
        "close_pairs": len(close),
        "close_agreeing": sum(close),
        "rank_correlation": float(spearmanr(predicted, measured).statistic),
        "median_ratio": float(np.median(np.array(predicted) / measured)),
        "chosen_over_best": measured[int(np.argmin(predicted))] / min(measured),
        "rows": [t | {"predicted_s": p, "cpu_s": m} for t, p, m in zip(tiles, predicted, measured)],
    }


def _agreement(predicted: list[float], measured: list[float], chosen: Iterable[int]) -> list[bool]:
    """Of each pair that should differ clearly, whether it differs in that direction."""
    return [
        (predicted[i] < predicted[j]) == (measured[i] < measured[j])
        for i, j in combinations(chosen, 2)
        if max(predicted[i] / predicted[j], predicted[j] / predicted[i]) >= CLEAR
    ]


def _measured(tree: Tree, schedules: list[TreeSchedule]) -> list[float]:
    """CPU seconds, medians of rounds in which the schedules take turns."""
    rng = np.random.default_rng(1)
    operands = {x.name: rng.standard_normal([tree.extent(i) for i in x.indices]) for x in tree.leaves}
    out = np.empty([tree.extent(i) for i in tree.root.indices])
    seconds: list[list[float]] = [[] for _ in schedules]
    for _ in range(ROUNDS):
        for times, schedule in zip(seconds, schedules):
            start = time.process_time()
            run_schedule(schedule, operands, out)
            times.append(time.process_time() - start)
    return [float(np.median(times)) for times in seconds]
