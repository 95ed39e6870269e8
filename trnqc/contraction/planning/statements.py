"""From subscripts or a program to a plan: the order of the products, then what a memory limit requires.

    subscripts, shapes ─ parse_subscripts ─► operands ─ best_tree ─► Plan ─ within_bytes ─► Plan
    program, outputs   ─ plan_program ─► Plan ─ within_bytes ─► Plan

Planners see shapes and limits only, neither arrays nor devices.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache

from trnqc.contraction.computation import Part, SumAssignment
from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.ladder.pattern import ladder_of
from trnqc.contraction.memory.schedule import MANY
from trnqc.contraction.order.expansion import expanded
from trnqc.contraction.order.paths import tree_of_path
from trnqc.contraction.order.symmetric_pairs import with_pairs
from trnqc.contraction.pair_energy import pair_forms
from trnqc.contraction.plan import Plan
from trnqc.contraction.planning.limit import scheduled_slices, within_bytes
from trnqc.contraction.planning.orders import SlicedPath
from trnqc.contraction.planning.program import best_tree, plan_program, unread
from trnqc.contraction.time_limit import ORDER, ORDER_OF_SLICES, planning
from trnqc.errors import MemoryLimit
from trnqc.expression.program import Program
from trnqc.expression.subscripts import Shape, Subscripts, parse_subscripts
from trnqc.expression.symmetry import Exchange, Symmetry

# Name of the result of subscripts.
RESULT = "result"
# For each operand the exchanges of its axes that leave it unchanged, or change its sign.
Exchanges = tuple[tuple[Exchange, ...], ...]
# No order of the caller.
SEARCHED = SlicedPath()


@lru_cache(maxsize=256)
def plan_subscripts(
    subscripts: str,
    shapes: tuple[Shape, ...],
    itemsize: int,
    memory_limit: int | None,
    time_limit: float | None,
    exchanges: Exchanges = (),
    same: tuple[int, ...] = (),
    order: SlicedPath = SEARCHED,
) -> tuple[Plan, Subscripts]:
    """Return the plan of one product, and its subscripts.

    Parameters
    ----------
    subscripts : str
        Subscripts as `numpy.einsum` takes them.
    shapes : tuple of tuples of int
        Shapes of the operands.
    itemsize : int
        Bytes of an element.
    memory_limit, time_limit : optional
        Bytes for temporaries, and seconds of processor time for planning; None for no limit.
    exchanges : tuple
        For each operand the exchanges of axes that leave it unchanged or change its sign.
    same : tuple of int
        For each operand the number of the first operand that is the same array.
    order : SlicedPath
        An order of the products to follow, with its slices; without a path one is searched for.
    """
    parsed = parse_subscripts(subscripts, shapes)
    many = memory_limit is not None and len(shapes) > MANY
    with planning(time_limit, ORDER_OF_SLICES if many else ORDER) as clock:
        plan = within_bytes(_product_plan(parsed, exchanges, same, order), memory_limit, itemsize)
    return replace(plan, omitted=clock.omitted, time_limit=time_limit, memory=memory_limit), parsed


def _product_plan(parsed: Subscripts, exchanges: Exchanges, same: tuple[int, ...], order: SlicedPath) -> Plan:
    # If axes of extent one are removed from some operands, operands that are the same array may differ afterwards.
    leaves, indices = parsed.leaves(() if any(parsed.squeezed) else same), parsed.indices()
    declared: dict[str, tuple[Exchange, ...]] = {}
    for leaf, of_operand, squeezed in zip(leaves, exchanges, parsed.squeezed):
        # Exchanges number the axes before any are removed.
        declared[leaf.name] = (*declared.get(leaf.name, ()), *(() if squeezed else of_operand))
    symmetries = {name: _single_pairs(of_operand) for name, of_operand in declared.items()}
    if order.path:
        tree = with_pairs(
            tree_of_path(order.path, leaves, parsed.output, indices, RESULT), symmetries, exchanges=declared
        )
    else:
        tree = best_tree(list(leaves), parsed.output, indices, RESULT, symmetries, exchanges=declared)
    used = [label for labels in parsed.inputs for label in labels]
    operations = len(leaves) - 1 + bool(set(used) - set(parsed.output))
    loops = scheduled_slices(tree, order.slices)
    part = Part(Fraction(1), tree, loops, None if loops else ladder_of(tree, declared))
    return Plan(
        title=parsed.text,
        assignments=(SumAssignment(RESULT, parsed.output, (part,)),),
        inputs=tuple((leaf.name, leaf.indices) for leaf in leaves),
        outputs=(RESULT,),
        direct=operations * MonomialSum.product(indices[label].symbol for label in dict.fromkeys(used)),
        exchanges=tuple(declared.items()),
    )


def _single_pairs(exchanges: Sequence[Exchange]) -> tuple[Symmetry, ...]:
    return tuple(Symmetry(e.pairs[0], e.sign) for e in exchanges if len(e.pairs) == 1)


def plan_statements(
    program: Program, outputs: Sequence[str], itemsize: int, memory_limit: int | None, time_limit: float | None
) -> Plan:
    """Return the plan of a program of known extents; by default targets that nothing reads are returned.

    For the other parameters see `plan_subscripts`.
    """
    outputs = tuple(outputs) or unread(program)
    # Shared products and targets of statements are held until their last use. Where that exceeds the limit, less is
    # shared, and then every intermediate is written out.
    attempts: tuple[Callable[[], Plan], ...] = (
        lambda: plan_program(program, outputs),
        lambda: plan_program(program, outputs, share=False, factor=False),
        lambda: plan_program(expanded(program, outputs), outputs, share=False, factor=False),
    )
    with planning(time_limit) as clock:
        for attempt in attempts:
            try:
                plan = within_bytes(attempt(), memory_limit, itemsize)
                break
            except MemoryLimit:
                if attempt is attempts[-1]:
                    raise
    pairs = pair_forms(program, plan.outputs)
    return replace(plan, omitted=clock.omitted, time_limit=time_limit, memory=memory_limit, pairs=pairs)
