"""Estimated times of steps on whole arrays, and of fused loop nests, from the rates of a machine.

A step is what `run.product_plan` (in loops) or `run.lower` (else) decides: a stack of matrix products, copies of
operands, and a buffer that is added to the result. Nothing here is fitted to contractions.
"""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from trnqc.contraction.computation import Computation, Part
from trnqc.contraction.cost.rates import OperationRates
from trnqc.contraction.lower.axis_orders import nest_layout
from trnqc.contraction.lower.steps import LoweredStep, MatrixProduct, Packed, PairLoop
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest
from trnqc.contraction.order.symmetric_pairs import passes
from trnqc.contraction.products.product_plan import LabelStrides, ProductPlan, product_plan, row_major
from trnqc.contraction.tree import Tree, union
from trnqc.expression.operand import Leaf

# Ratio of estimated times with and without the memory limit above which a plan warns before it runs.
SLOW = 20.0
# Time of functions of elements relative to a copy, measured with NumPy on one EPYC core with AVX-512, in fp64.
COPIES = {"exp": 4, "log": 4, "sqrt": 5, "abs": 1, "sign": 2, "tanh": 7, "sin": 36, "cos": 36}
# Number of steps of a nest above which this warning uses a lower bound of the time, since searching the orders of axes
# takes long.
MANY = 16


def plan_seconds(plan: Computation, rates: OperationRates) -> float:
    """Return the estimated time of one run; functions count as their stated multiply-adds."""
    total = 0.0
    for assignment in plan.assignments:
        for number, part in enumerate(assignment.parts):
            total += part_seconds(part, rates)
            if number or part.coefficient != 1 or assignment.accumulate:
                size = part.tree.size(assignment.labels)
                total += rates.copy(size, 2 * size, turned=False)
        if assignment.function:
            size = assignment.parts[0].tree.size(assignment.labels)
            total += COPIES[assignment.function] * rates.copy(size, size, turned=False)
    return total


def part_seconds(part: Part, rates: OperationRates) -> float:
    """Return the estimated time of a part without its coefficient."""
    if part.loops:
        return part.loops.seconds(rates)
    if part.schedule:
        return nest_seconds(part.schedule.nest, part.schedule.scratch, rates)
    steps = sum(step_seconds(part.tree, step, rates) for step in part.steps)
    return steps + part.tree.function_cost * rates.multiply_add


def slowdown(plan: Computation, rates: OperationRates) -> float:
    """Return the estimated time relative to a run without fused loops; 1.0 if there are none."""
    if not any(part.schedule for part in plan.parts):
        return 1.0
    free = [sum(step_seconds(part.tree, step, rates) for step in part.steps) for part in plan.parts]
    limited = [
        quick_seconds(part.schedule.nest, part.schedule.scratch, rates) if part.schedule else seconds
        for part, seconds in zip(plan.parts, free)
    ]
    return max(1.0, sum(limited) / (sum(free) + plan.function_cost * rates.multiply_add))


def step_seconds(tree: Tree, step: LoweredStep, rates: OperationRates) -> float:
    """Return the time of one step on whole arrays."""
    operation, touched = step.operation, _touched(tree, step)
    if isinstance(operation, Packed):
        moved = rates.copy(step.copies(tree), touched, turned=False)
        return step_seconds(operation.tree, operation.step, rates) + moved
    if isinstance(operation, PairLoop):
        extent = tree.extent(operation.pair.first)
        turns = passes(extent, operation.pair.sign) / extent
        moved = rates.copy(tree.size(step.node.indices), touched, turned=False)
        return turns * step_seconds(operation.tree, operation.step, rates) + moved + _from_memory(touched // 2, rates)
    if not isinstance(operation, MatrixProduct):
        return rates.step + rates.copy(touched, touched, turned=operation.kind == "copy")
    seconds = rates.step + rates.copy(step.copies(tree), touched)
    if operation.kind == "multiply":
        return seconds + rates.copy(tree.size(step.node.loops), touched, turned=False)
    m, n, k, stack = (
        tree.size(labels) for labels in (operation.rows, operation.columns, operation.inner, operation.batch)
    )
    return seconds + stack * rates.product(m, n, k) + _from_memory(touched, rates)


def _touched(tree: Tree, step: LoweredStep) -> int:
    """Return the elements of the operands and the result."""
    return tree.size(step.node.indices) + sum(tree.size(union(operand.indices)) for operand in step.operands)


def _from_memory(touched: int, rates: OperationRates) -> float:
    """Return the additional time to read operands from memory once if they exceed the caches."""
    return 0.0 if touched <= rates.cached else touched * max(rates.far - rates.near, 0.0)


def nest_seconds(nest: FusedNest, scratch: int, rates: OperationRates) -> float:
    """Return the time of a loop nest; `scratch` is the number of elements for copies of operands."""
    fusion, layout = nest.fusion, nest_layout(nest)
    total = 0.0
    for step, around in nest.steps:
        turns = prod(fusion.turns(label) for label in around)
        total += turns * _turn_seconds(fusion, step.name, around, step.accumulate, layout, scratch, rates)
    return total


def quick_seconds(nest: FusedNest, scratch: int, rates: OperationRates) -> float:
    """Return `nest_seconds`, or for nests of many steps a lower bound from starts and multiply-adds."""
    if len(nest.steps) <= MANY:
        return nest_seconds(nest, scratch, rates)
    fusion, total = nest.fusion, 0.0
    for step, around in nest.steps:
        array = fusion.arrays[step.name]
        turns = prod(fusion.turns(label) for label in around)
        work = prod(fusion.tile(x) if x in around else fusion.tree.extent(x) for x in array.loops)
        total += turns * (rates.step + array.cost * work * rates.multiply_add)
    return total


def _turn_seconds(
    fusion: FusedTree,
    name: str,
    around: tuple[str, ...],
    accumulate: bool,
    layout: Callable[[str], LabelStrides],
    scratch: int,
    rates: OperationRates,
) -> float:
    """Return the time of one turn of a step; `around` are the labels of the loops around it."""
    array, tree = fusion.arrays[name], fusion.tree
    length = {x: fusion.tile(x) if x in around else tree.extent(x) for x in array.loops}
    if isinstance(array.source, Leaf):
        return rates.step + array.cost * rates.multiply_add * prod(length.values())
    computed = iter(array.inputs)
    layouts = []
    for operand in array.source.operands:
        if isinstance(operand, Leaf) and not operand.cost:
            labels = union(operand.indices)
            strides = row_major(labels, {x: tree.extent(x) for x in labels}).strides
            layouts.append(LabelStrides(strides, operand.reciprocal))
        else:
            layouts.append(layout(next(computed)))
    product = product_plan(tuple(length.items()), layout(name), tuple(layouts), accumulate, scratch)
    touched = sum(prod(length[x] for x in labels) for labels in (array.indices, *(o.labels for o in layouts)))
    return _slices_seconds(product, length, [o.labels for o in layouts], array.indices, touched, scratch, rates)


def _slices_seconds(
    product: ProductPlan,
    length: dict[str, int],
    operands: list[tuple[str, ...]],
    result: tuple[str, ...],
    touched: int,
    scratch: int,
    rates: OperationRates,
) -> float:
    """Return the time of one product of slices."""

    def size(labels: tuple[str, ...]) -> int:
        return prod(length[x] for x in labels)

    # A product whose copies exceed the scratch is divided until they fit.
    cuts = max(1, -(-product.scratch // max(scratch, 1)))
    seconds = cuts * rates.step
    touched //= cuts
    seconds += sum(rates.copy(size(labels), touched) for labels, packed in zip(operands, product.packed) if packed)
    if product.buffered:
        seconds += rates.copy(size(result), touched)
    if not product.inner:
        return seconds + rates.copy(prod(length.values()), touched, turned=False)
    m, n, k, many = (size(labels) for labels in (product.rows, product.columns, product.inner, product.loops))
    return seconds + many * rates.product(m, n, k) + cuts * _from_memory(touched, rates)
