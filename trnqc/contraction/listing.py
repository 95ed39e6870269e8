"""Printed plans: as text for people, and in JSON's types for programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnqc.contraction.computation import Assignment, Computation, Part
from trnqc.contraction.cost.rates import cache_levels
from trnqc.contraction.distribute.distribution import Distribution
from trnqc.contraction.memory.fusion_graph import Fusion
from trnqc.contraction.memory.locality import Level, Locality, matrix_blocks
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import Schedule
from trnqc.contraction.run.lower import Packed, Product, Step
from trnqc.contraction.tree import Tree
from trnqc.expression.operand import Leaf

# Bytes of an fp64 element.
BYTES = 8
# Number of steps, those of most multiply-adds, whose cache blocks are shown.
SHOWN = 4
# Longest side of a matrix whose cache blocks are computed; the counts of longer ones do not fit into 64 bits.
LONGEST = 2**62


def text(plan: Computation, seconds: float, slowdown: float) -> str:
    """Return one line per step with its operation and multiply-adds, then totals, locality and loops.

    seconds: estimated time of a run. slowdown: estimated time relative to a run without a memory limit.
    """
    rows: list[tuple[str, ...]] = [("step", "as", "multiply-adds", "", "elements")]
    for assignment in plan.assignments:
        rows += [_row(part, step) for part in assignment.parts for step in part.steps]
        if total := _sum_of_parts(assignment):
            rows.append((total, "", "", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]
    extents = ", ".join(f"{symbol} = {extent}" for symbol, extent in plan.extents.items())
    loops = [line for part in plan.parts if part.in_loops for line in ("", *str(part.in_loops).splitlines())]
    totals = [*_totals(plan), *_limits(plan, slowdown), *_locality(plan), *_run(plan, seconds)]
    return "\n".join([plan.title, extents, "", *lines, "", *totals, *loops])


def _row(part: Part, step: Step) -> tuple[str, ...]:
    """Return the cells of one step."""
    node, tree = step.node, part.tree
    return (
        str(node),
        "in loops, below" if part.in_loops else operation_text(tree, step),
        str(tree.count(node.loops)),
        f"{tree.size(node.loops):.4g}",
        f"{tree.size(node.indices):.4g}",
    )


def operation_text(tree: Tree, step: Step) -> str:
    """Return a step's operation: "gemm 3 x 100 x 20 x 50" is a stack of 3 products of [100, 50] and [50, 20]."""
    operation = step.operation
    if isinstance(operation, Packed):
        pairs = dict.fromkeys(name for side in (*operation.sides, operation.result) for name, _ in side.pairs)
        return f"{operation_text(operation.tree, operation.step)} over {', '.join(pairs)}"
    if not isinstance(operation, Product) or operation.kind == "multiply":
        return operation.kind
    groups = [operation.rows, operation.columns, operation.inner]
    if operation.batch:
        groups.insert(0, operation.batch)
    return f"{operation.kind} " + " x ".join(str(tree.size(group)) for group in groups)


def _sum_of_parts(assignment: Assignment) -> str:
    """Return the statement that adds up the parts; empty for a single part that is the target itself."""
    (first, *others) = assignment.parts
    if not others and first.coefficient == 1 and not assignment.accumulate:
        return ""
    terms = [_scaled(part) for part in assignment.parts]
    total = "".join(f" {'-' if t.startswith('-') else '+'} {t.removeprefix('-')}" for t in terms)
    sign = "+=" if assignment.accumulate else "="
    return f"{assignment.target}[{','.join(assignment.labels)}] {sign}{total.removeprefix(' +')}"


def _scaled(part: Part) -> str:
    name = part.tree.root.name
    if abs(part.coefficient) == 1:
        return name if part.coefficient > 0 else f"-{name}"
    return f"{part.coefficient} {name}"


def _totals(plan: Computation) -> list[str]:
    """Return operations, temporaries and memory."""
    count, direct = plan.operations, plan.direct
    number, before = count.at(plan.extents), direct.at(plan.extents)
    saved = f", {before / number:.4g} times as many" if number else ""
    temporaries = [(tree, node) for tree in plan.trees for node in tree.temporaries]
    lines = [
        f"operations   {count} = {float(number):.4g}; in one loop nest a term {direct} = {float(before):.4g}{saved}",
        f"multiply-adds  {plan.multiply_adds:.4g}",
    ]
    if plan.unique_multiply_adds < plan.multiply_adds:
        lines.append(f"of these run  {plan.unique_multiply_adds:.4g}, pairs in which operands are (anti)symmetric once")
    if plan.function_cost:
        lines.append(f"functions    {plan.function_cost:.4g} multiply-adds, every element computed once a step")
    if temporaries:
        tree, node = max(temporaries, key=lambda pair: pair[0].size(pair[1].indices))
        largest = f"the largest {node.name} with {tree.count(node.indices)} = {tree.size(node.indices):.4g} elements"
        lines.append(f"temporaries  {len(temporaries)}, {largest}")
    held = f"{plan.peak:.4g} elements, {_bytes(plan.peak * BYTES)} in fp64"
    lines.append(f"peak memory  {held}, beside operands and results, with copies of operands")
    return lines


def _limits(plan: Computation, slowdown: float) -> list[str]:
    """Return what the limits of memory and of planning time changed."""
    lines = []
    if slowdown > 1:
        lines.append(f"limit        {plan.memory} bytes: about {slowdown:.2g} times the time without a limit")
    if plan.omitted:
        lines.append(f"planning     stopped at the time limit of {plan.time_limit:g} s; the best plan so far")
        lines.append(f"             not searched to the end: {', '.join(plan.omitted)}")
    return lines


def largest_products(plan: Computation) -> list[tuple[str, tuple[int, int, int], Locality]]:
    """Return (name of a step, (m, n, k) of its matrices, their cache blocks) of the steps with most multiply-adds."""
    largest: dict[tuple[int, int, int], tuple[int, str]] = {}
    for part in (part for part in plan.parts if not part.in_loops):
        for step in part.steps:
            if isinstance(step.operation, Product) and step.operation.inner:
                groups = (step.operation.rows, step.operation.columns, step.operation.inner)
                m, n, k = (part.tree.size(labels) for labels in groups)
                work = part.tree.size(step.node.loops), step.node.name
                largest[m, n, k] = max(largest.get((m, n, k), (0, "")), work)
    levels = tuple(Level(name, capacity) for name, capacity in cache_levels())
    shown = [entry for entry in sorted(largest.items(), key=lambda entry: -entry[1][0])[:SHOWN] if min(entry[0]) > 0]
    return [(name, shape, matrix_blocks(*shape, levels)) for shape, (_, name) in shown if max(shape) < LONGEST]


def _locality(plan: Computation) -> list[str]:
    """Return the cache blocks of the largest products, and the distribution over processors."""
    lines = []
    for name, (m, n, k), blocks in largest_products(plan):
        rows = str(blocks).splitlines()
        lines.append(f"locality     {name}, matrices of m = {m}, n = {n}, k = {k}: {rows[0]}")
        lines += [" " * 13 + row for row in rows[1:]]
    if not any(part.in_loops for part in plan.parts):
        lines.append("loops        no two steps share any")
    for distribution in plan.distributions:
        grid = " x ".join(map(str, plan.grid))
        lines += [f"distribution of {distribution.tree.root.name} on {grid} processors"]
        lines += [" " * 13 + row for row in str(distribution).splitlines()]
    return lines


def _run(plan: Computation, seconds: float) -> list[str]:
    """Return which kernels run and how long a run is expected to take."""
    lines = [f"recognised   {form}" for form in plan.pairs]
    if plan.pairs and plan.kernels.pairs:
        lines.append(
            f"fused        one kernel of {plan.kernels.pairs_name} in place of the steps, for fp64 arrays whose "
            "denominators are sums of orbital energies"
        )
    lines.append(f"products     by {plan.kernels.name}")
    lines.append(f"time         {seconds:.3g} s, an estimate from rates measured on this machine")
    return lines


def _bytes(number: int) -> str:
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}"


def data(plan: Computation, seconds: float, slowdown: float) -> dict[str, Any]:
    """Return what `text` shows, and what is needed to repeat the computation, in JSON's types."""
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
    return str(part.schedule.nest if part.schedule else nest_of(Fusion(part.tree)))


def _level(level: Level, blocks: Mapping[str, int], loaded: int) -> dict[str, Any]:
    return {"name": level.name, "elements": level.capacity, "blocks": dict(blocks), "loaded": loaded}


def _distribution(distribution: Distribution) -> dict[str, Any]:
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


def _schedule(schedule: Schedule) -> dict[str, Any]:
    fusion = schedule.fusion
    return {
        "fused": {name: sorted(labels) for name, labels in fusion.fused.items()},
        "tiles": dict(fusion.tiles),
        "loops": str(schedule.nest),
        "elements": schedule.memory,
        "multiply_adds": schedule.work,
    }


def _step(tree: Tree, step: Step) -> dict[str, Any]:
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
