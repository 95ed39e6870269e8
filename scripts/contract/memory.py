"""What memory limits cost contractions: predicted multiply-adds and times, and how the prediction orders real runs."""

from __future__ import annotations

from functools import partial
from itertools import product
from statistics import median
from typing import Any

import numpy as np
from scipy.stats import spearmanr

from scripts.measuring import clocked, in_turns
from trnqc.contraction.memory.fusion import fusion_front, least_memory
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.schedule import TreeSchedule, schedule
from trnqc.contraction.memory.tiled_loops import TiledLoops
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index


def leaf(name: str, labels: str, operand: int, cost: int = 0) -> Leaf:
    return Leaf(name, tuple(labels), operand, cost)


def indices(**spaces: tuple[str, int]) -> dict[str, Index]:
    return {label: Index(label, extent, symbol) for symbol, (labels, extent) in spaces.items() for label in labels}


def a3a_tree(virtual: int = 3000, occupied: int = 100, cost: int = 1000) -> Tree:
    x = TreeNode("X", tuple("aecf"), (leaf("t", "ijae", 0), leaf("u", "ijcf", 1)))
    y = TreeNode("Y", tuple("ceaf"), (leaf("T1", "cebk", 2, cost), leaf("T2", "afbk", 3, cost)))
    return Tree(TreeNode("E", (), (x, y)), indices(V=("aecfb", virtual), O=("ijk", occupied)))


def ladder_tree(occupied: int, virtual: int, auxiliary: int) -> Tree:
    w = TreeNode("W", tuple("aebf"), (leaf("B", "Qae", 0), leaf("B", "Qbf", 0)))
    spaces = indices(O=("ij", occupied), V=("abef", virtual), K=("Q", auxiliary))
    return Tree(TreeNode("R", tuple("abij"), (w, leaf("t", "efij", 1))), spaces)


def a3a() -> dict[str, Any]:
    tree = a3a_tree()
    plain = FusedTree(tree).work
    full = fusion_front(tree, recompute=True).fusions[0]
    record: dict[str, Any] = {"without_repetition_elements": least_memory(tree).memory, "rows": []}
    print(
        f"A3A, V = 3000, O = 100, an integral costs 1000: {record['without_repetition_elements']:.4g} elements at least"
    )
    print("without repeated work; with it, multiply-adds over those without a limit:")
    for tile in (1, 10, 20, 32, 50, 64, 100):
        equal = FusedTree(tree, full.fused, dict.fromkeys("aecf", tile))
        least_work = schedule(tree, equal.memory, goal="work")
        row = {"limit": equal.memory, "equal_tiles": equal.work / plain, "ours": least_work.work / plain}
        record["rows"].append(row)
        print(f"    {equal.memory:12.4g} elements   equal tiles {row['equal_tiles']:9.3f}   ours {row['ours']:9.3f}")
    return record


def tiles(occupied: int = 8, virtual: int = 64, auxiliary: int = 128, rounds: int = 3) -> dict[str, Any]:
    tree = ladder_tree(occupied, virtual, auxiliary)
    form = TiledLoops(FusedTree(tree, {"W": frozenset("be")}))
    rng = np.random.default_rng(1)
    operands = {x.name: rng.standard_normal([tree.extent(i) for i in x.indices]) for x in tree.leaves}
    out = np.empty([tree.extent(i) for i in tree.root.indices])
    sizes = [size for size in (2, 4, 8, 16, 32, 64) if size <= virtual]
    trials = [{"b": b, "e": e} for b, e in product(sizes, repeat=2)]
    plans = {str(t): TreeSchedule(form.tiled(t), 2**17) for t in trials}
    times = in_turns(
        rounds, {name: clocked(partial(run_schedule, plan, operands, out)) for name, plan in plans.items()}
    )
    measured = [median(cpu for _, cpu in times[str(t)]) for t in trials]
    predicted = form.time(np.array([[t[label] for label in form.extents] for t in trials])).tolist()
    correlation = float(spearmanr(predicted, measured).statistic)
    chosen = measured[int(np.argmin(predicted))]
    print(f"fitted ladder, {len(trials)} pairs of tiles: rank correlation of predicted and measured {correlation:.3f}")
    print(f"    predicted best {chosen:.4f} s, best {min(measured):.4f} s, worst {max(measured):.4f} s")
    rows = [t | {"predicted": p, "cpu_s": m} for t, p, m in zip(trials, predicted, measured)]
    return {"rank_correlation": correlation, "chosen_cpu_s": chosen, "best_cpu_s": min(measured), "rows": rows}
