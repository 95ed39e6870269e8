"""Printed plans: one line for each step, then totals, memory, cache blocks and loops."""

from __future__ import annotations

from trnqc.contraction.computation import Computation, Part, SumAssignment
from trnqc.contraction.cost.rates import cache_levels
from trnqc.contraction.lower.steps import LoweredStep, MatrixProduct, Packed, PairLoop
from trnqc.contraction.memory.locality import Locality, MemoryLevel, matrix_blocks
from trnqc.contraction.tree import Tree

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
    lines = steps(plan)
    extents = ", ".join(f"{symbol} = {extent}" for symbol, extent in plan.extents.items())
    loops = [line for part in plan.parts if part.in_loops for line in ("", *str(part.in_loops).splitlines())]
    totals = [*_totals(plan), *_limits(plan, slowdown), *_locality(plan), *_run(plan, seconds)]
    return "\n".join([plan.title, extents, "", *lines, "", *totals, *loops])


def steps(plan: Computation) -> list[str]:
    """Return a heading and one line for each step, with its operation and multiply-adds."""
    rows: list[tuple[str, ...]] = [("step", "as", "multiply-adds", "", "elements")]
    for assignment in plan.assignments:
        rows += [_row(part, step) for part in assignment.parts for step in part.steps]
        if total := _sum_of_parts(assignment):
            rows.append((total, "", "", "", ""))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows]


def _row(part: Part, step: LoweredStep) -> tuple[str, ...]:
    """Return the cells of one step."""
    node, tree = step.node, part.tree
    return (
        str(node),
        "in loops, below" if part.in_loops else operation_text(tree, step),
        str(tree.count(node.loops)),
        f"{tree.size(node.loops):.4g}",
        f"{tree.size(node.indices):.4g}",
    )


def operation_text(tree: Tree, step: LoweredStep) -> str:
    """Return a step's operation: "gemm 3 x 100 x 20 x 50" is a stack of 3 products of [100, 50] and [50, 20]."""
    operation = step.operation
    if isinstance(operation, Packed):
        pairs = dict.fromkeys(name for side in (*operation.sides, operation.result) for name, _ in side.pairs)
        return f"{operation_text(operation.tree, operation.step)} over {', '.join(pairs)}"
    if isinstance(operation, PairLoop):
        return f"{operation_text(operation.tree, operation.step)} in turns over {operation.name}"
    if not isinstance(operation, MatrixProduct) or operation.kind == "multiply":
        return operation.kind
    groups = [operation.rows, operation.columns, operation.inner]
    if operation.batch:
        groups.insert(0, operation.batch)
    return f"{operation.kind} " + " x ".join(str(tree.size(group)) for group in groups)


def _sum_of_parts(assignment: SumAssignment) -> str:
    """Return the statement that adds up the parts; empty for a single part that is the target itself."""
    (first, *others) = assignment.parts
    if not others and first.coefficient == 1 and not assignment.accumulate and not assignment.function:
        return ""
    terms = [_scaled(part) for part in assignment.parts]
    total = "".join(f" {'-' if t.startswith('-') else '+'} {t.removeprefix('-')}" for t in terms)
    sign = "+=" if assignment.accumulate else "="
    value = total.removeprefix(" +")
    if assignment.function:
        value = f" {assignment.function}({value.strip()})"
    return f"{assignment.target}[{','.join(assignment.labels)}] {sign}{value}"


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
    if plan.executed_multiply_adds > plan.multiply_adds:
        again = plan.executed_multiply_adds / plan.multiply_adds
        lines.append(f"executed       {plan.executed_multiply_adds:.4g}, {again:.4g} times as many, repeated in loops")
    if plan.function_cost:
        lines.append(f"functions    {plan.function_cost:.4g} multiply-adds, every element computed once a step")
    if plan.applied:
        lines.append(f"elements     {plan.applied:.4g} of which functions are taken")
    if temporaries:
        tree, node = max(temporaries, key=lambda pair: pair[0].size(pair[1].indices))
        largest = f"the largest {node.name} with {tree.count(node.indices)} = {tree.size(node.indices):.4g} elements"
        lines.append(f"temporaries  {len(temporaries)}, {largest}")
    held = f"{plan.peak:.4g} elements, {bytes_text(plan.peak * BYTES)} in fp64"
    lines.append(f"peak memory  {held}, beside operands and results, with copies of operands")
    return lines


def _limits(plan: Computation, slowdown: float) -> list[str]:
    """Return the changes that the limits of memory and of planning time made."""
    lines = []
    if slowdown > 1 and plan.memory is not None:
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
            if isinstance(step.operation, MatrixProduct) and step.operation.inner:
                groups = (step.operation.rows, step.operation.columns, step.operation.inner)
                m, n, k = (part.tree.size(labels) for labels in groups)
                work = part.tree.size(step.node.loops), step.node.name
                largest[m, n, k] = max(largest.get((m, n, k), (0, "")), work)
    levels = tuple(MemoryLevel(name, capacity) for name, capacity in cache_levels())
    shown = [entry for entry in sorted(largest.items(), key=lambda entry: -entry[1][0])[:SHOWN] if min(entry[0]) > 0]
    return [(name, shape, matrix_blocks(*shape, levels)) for shape, (_, name) in shown if max(shape) < LONGEST]


def _locality(plan: Computation) -> list[str]:
    """Return the cache blocks of the largest products, and the distribution over processors."""
    lines = []
    for name, (m, n, k), blocks in largest_products(plan):
        rows = str(blocks).splitlines()
        lines.append(f"locality     {name}, matrices of m = {m}, n = {n}, k = {k}: {rows[0]}")
        lines += [" " * 13 + row for row in rows[1:]]
    chains = [chain for part in plan.parts if not part.in_loops for chain in part.chains]
    lines += [f"loops        {chain}, for NumPy arrays" for chain in chains]
    if not chains and not any(part.in_loops for part in plan.parts):
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


def bytes_text(number: int) -> str:
    """Return a number of bytes in a unit that suits it."""
    value, unit = float(number), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 1000:
            break
        value, unit = value / 1000, larger
    return f"{value:.4g} {unit}"
