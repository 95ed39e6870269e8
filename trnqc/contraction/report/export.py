"""Plans in JSON's types: what `listing` prints, and what is needed to repeat the computation."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnqc.contraction.computation import Computation, Part
from trnqc.contraction.distribute.distribution import TreeDistribution
from trnqc.contraction.lower.steps import LoweredStep
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.locality import MemoryLevel
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.report.listing import BYTES, largest_products, operation_text
from trnqc.contraction.tree import Tree
from trnqc.expression.operand import Leaf


def data(plan: Computation, seconds: float, slowdown: float) -> dict[str, Any]:
    """Return the content of `text`, and all that is needed to repeat the computation, in JSON's types."""
    return {
        "title": plan.title,
        "extents": plan.extents,
        "inputs": [{"name": name, "labels": list(labels)} for name, labels in plan.inputs],
        "outputs": list(plan.outputs),
        "assignments": [
            {
                "target": assignment.target,
                "labels": list(assignment.labels),
                "accumulate": assignment.accumulate,
                "function": assignment.function,
                "parts": [
                    {
                        "coefficient": str(part.coefficient),
                        "steps": [_step(part.tree, step) for step in part.steps],
                        "schedule": _schedule(part.schedule) if part.schedule else None,
                        "symmetric_loops": part.loops.data() if part.loops else None,
                        "loops": _loops(part),
                    }
                    for part in assignment.parts
                ],
            }
            for assignment in plan.assignments
        ],
        "multiply_adds": plan.multiply_adds,
        "unique_multiply_adds": plan.unique_multiply_adds,
        "executed_multiply_adds": plan.executed_multiply_adds,
        "symbolic_multiply_adds": str(plan.symbolic_multiply_adds),
        "operations": str(plan.operations),
        "direct_operations": str(plan.direct),
        "largest_temporary": max((tree.size(n.indices) for tree in plan.trees for n in tree.temporaries), default=0),
        "peak_elements": plan.peak,
        "peak_bytes": plan.peak * BYTES,
        "memory_limit_bytes": plan.memory,
        "slowdown_by_memory_limit": slowdown,
        "planning_time_limit_seconds": plan.time_limit,
        "not_searched": list(plan.omitted),
        "locality": [
            {"step": name, "matrices": list(shape), "levels": [_level(*row) for row in blocks.rows]}
            for name, shape, blocks in largest_products(plan)
        ],
        "distribution": [_distribution(distribution) for distribution in plan.distributions],
        "machine": plan.kernels.name,
        "recognised": [str(form) for form in plan.pairs],
        "fused_kernel": plan.kernels.pairs_name if plan.pairs and plan.kernels.pairs else None,
        "estimated_seconds": seconds,
    }


def _loops(part: Part) -> str:
    if part.loops:
        return str(part.loops)
    return str(part.schedule.nest if part.schedule else nest_of(FusedTree(part.tree)))


def _level(level: MemoryLevel, blocks: Mapping[str, int], loaded: int) -> dict[str, Any]:
    return {"name": level.name, "elements": level.capacity, "blocks": dict(blocks), "loaded": loaded}


def _distribution(distribution: TreeDistribution) -> dict[str, Any]:
    return {
        "result": distribution.tree.root.name,
        "grid": list(distribution.grid),
        "steps": [
            {
                "name": step.node.name,
                "computed": list(step.loops),
                "result": list(step.result),
                "operands": [list(where) for where in step.wanted],
                "begin": [None if source is None else list(source) for source in step.sources],
            }
            for step in distribution.steps
        ],
        "final": list(distribution.final),
        "elements_received": distribution.volume,
        "longest_multiply_adds": distribution.longest,
    }


def _schedule(schedule: TreeSchedule) -> dict[str, Any]:
    fusion = schedule.fusion
    return {
        "fused": {name: sorted(labels) for name, labels in fusion.fused.items()},
        "tiles": dict(fusion.tiles),
        "loops": str(schedule.nest),
        "elements": schedule.memory,
        "multiply_adds": schedule.work,
    }


def _step(tree: Tree, step: LoweredStep) -> dict[str, Any]:
    node = step.node
    return {
        "name": node.name,
        "indices": list(node.indices),
        "summed": list(node.summed),
        "operands": [_operand(operand) for operand in node.operands],
        "as": operation_text(tree, step),
        "multiply_adds": tree.size(node.loops),
        "symbolic_multiply_adds": str(tree.count(node.loops)),
        "elements": tree.size(node.indices),
    }


def _operand(operand: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"name": operand.name, "labels": list(operand.indices)}
    if isinstance(operand, Leaf):
        fields |= {"operand": operand.operand, "cost": operand.cost, "reciprocal": operand.reciprocal}
    return fields
