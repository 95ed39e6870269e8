"""The order of the axes of every temporary of a loop nest, for which its steps copy least."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import permutations

from trnqc.contraction.memory.fusion_graph import ComputedArray
from trnqc.contraction.memory.loop_nest import FusedNest
from trnqc.contraction.products.product_plan import LabelStrides, product_plan, row_major
from trnqc.contraction.products.slices import LEAST_SCRATCH
from trnqc.contraction.tree import union
from trnqc.expression.operand import Leaf


def inside_order(nest: FusedNest) -> tuple[str, ...]:
    """Return the labels of the operand in the result's memory, axis by axis of the result."""
    assert nest.inside is not None
    root, mine = nest.fusion.tree.root.indices, nest.fusion.arrays[nest.inside].indices
    (gone,) = set(mine) - set(root)
    return tuple(label if label in mine else gone for label in root)


def axis_orders(nest: FusedNest) -> dict[str, tuple[str, ...]]:
    """Return for each temporary the order of its axes, slowest first, for which its two steps are estimated fastest."""
    fusion = nest.fusion
    around = {step.name: labels for step, labels in nest.steps}
    accumulate = {step.name: step.accumulate for step, _ in nest.steps}
    orders = {name: fusion.arrays[name].indices for name in fusion.arrays}
    consumer = {child: name for name, array in fusion.arrays.items() for child in array.inputs}

    def cost(name: str) -> float:
        array = fusion.arrays[name]
        if isinstance(array.source, Leaf):
            return 0.0
        extents = tuple((i, fusion.tile(i) if i in around[name] else fusion.tree.extent(i)) for i in array.loops)
        return product_plan(
            extents,
            layout(name),
            tuple(_operand_layouts(fusion.arrays[name], fusion.tree.extent, layout)),
            accumulate[name],
        ).cost

    def layout(name: str) -> LabelStrides:
        return row_major(orders[name], dict(zip(fusion.arrays[name].indices, fusion.shape(name))))

    if nest.inside:
        orders[nest.inside] = inside_order(nest)
    for name in nest.temporaries:
        best = None
        for order in _orders_worth_trying(fusion.arrays[name], fusion.arrays[consumer[name]]):
            orders[name] = order
            value = cost(name) + cost(consumer[name])
            if best is None or value < best[0]:
                best = (value, order)
        assert best is not None
        orders[name] = best[1]
    del orders[fusion.tree.root.name]
    return orders


def nest_layout(nest: FusedNest) -> Callable[[str], LabelStrides]:
    """Return the function that gives the strides of the labels of a temporary, or of the result, by name."""
    fusion = nest.fusion
    orders = {**axis_orders(nest), fusion.tree.root.name: fusion.tree.root.indices}

    def layout(name: str) -> LabelStrides:
        return row_major(orders[name], dict(zip(fusion.arrays[name].indices, fusion.shape(name))))

    return layout


def nest_scratch(nest: FusedNest) -> int:
    """Return the elements for copies of operands with which no step of the nest is divided."""
    fusion, layout = nest.fusion, nest_layout(nest)
    most = 0
    for step, around in nest.steps:
        array = fusion.arrays[step.name]
        if isinstance(array.source, Leaf):
            continue
        extents = tuple((i, fusion.tile(i) if i in around else fusion.tree.extent(i)) for i in array.loops)
        operands = tuple(_operand_layouts(array, fusion.tree.extent, layout))
        most = max(most, product_plan(extents, layout(step.name), operands, step.accumulate).scratch)
    return max(most, LEAST_SCRATCH)


def _operand_layouts(
    array: ComputedArray, extent: Callable[[str], int], layout: Callable[[str], LabelStrides]
) -> Iterator[LabelStrides]:
    """Yield the layouts of a step's operands."""
    computed = iter(array.inputs)
    assert not isinstance(array.source, Leaf)
    for operand in array.source.operands:
        if isinstance(operand, Leaf) and not operand.cost:
            labels = union(operand.indices)
            yield LabelStrides(row_major(labels, {i: extent(i) for i in labels}).strides, operand.reciprocal)
        else:
            yield layout(next(computed))


def _orders_worth_trying(array: ComputedArray, consumer: ComputedArray) -> Iterator[tuple[str, ...]]:
    """Yield all orders of a few axes; of many axes, the orders that keep axes of one matrix dimension together."""
    yield array.indices
    if len(array.indices) <= 4:
        yield from permutations(array.indices)
        return
    for step in (array, consumer):
        if isinstance(step.source, Leaf):
            continue
        sides = [set(operand.indices) for operand in step.source.operands] + [set(step.indices)]
        groups: dict[tuple[bool, ...], list[str]] = {}
        for label in array.indices:
            groups.setdefault(tuple(label in side for side in sides), []).append(label)
        for order in permutations(groups.values()):
            yield tuple(label for group in order for label in group)
