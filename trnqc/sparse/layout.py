"""Storage of every tensor for given loops: levels in the order of the loops, each dense where it is full enough.

loops -> shared loops, formats of operands and result, workspaces -> nest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trnqc.sparse.nest import Assignment, Format, Kind, Nest, Space, Workspace
from trnqc.sparse.network import Indices
from trnqc.sparse.statistics import Statistics, product

Out = Literal["auto", "sparse", "dense"]

# Of the coordinates under the level above, how many must be stored for a level to be dense: pointers to empty rows cost
# little, empty elements as much as others.
ROWS, ELEMENTS = 0.1, 0.4
# An operand this full may be stored dense throughout, one twice as empty as ELEMENTS allows never is by levels alone.
WHOLE = 0.08
# Elements of the largest tensor that is stored dense though it is not full.
LARGEST = 2**25


@dataclass(frozen=True)
class Choices:
    """dense: operands stored dense throughout; out: the result's storage; dense_workspace: elements of the largest
    workspace that is an array: beyond it one is a hash table."""

    dense: frozenset[int] = frozenset()
    out: Out = "auto"
    dense_workspace: int = 2**22


def may_be_dense(statistics: Statistics, operand: int) -> bool:
    """Whether storing an operand dense throughout is worth an estimate: maps prune, so only full ones."""
    labels = statistics.network.inputs[operand]
    least = 0.9 if statistics.ones[operand] else WHOLE
    return product(statistics.extents, labels) <= LARGEST and statistics.fill((operand,), labels) >= least


def operand_format(statistics: Statistics, operand: int, loops: Sequence[str], dense: bool) -> Format:
    """Levels in the order of the loops of the assignment that reads it."""
    order = tuple(index for index in loops if index in statistics.network.inputs[operand])
    kinds = ("dense",) * len(order) if dense else _kinds(statistics, (operand,), order)
    return Format(order, kinds, statistics.ones[operand] and "compressed" in kinds)


def result_format(statistics: Statistics, loops: Sequence[str], out: Out) -> Format:
    """Levels in the order of the last assignment's loops; "auto": sparse where the result is less full than ROWS."""
    output, everything = statistics.network.output, tuple(range(len(statistics.network.inputs)))
    order = tuple(index for index in loops if index in output)
    if out == "dense" or (out == "auto" and statistics.fill(everything, output) >= ROWS):
        return Format(output, ("dense",) * len(output))
    return Format(order, _kinds(statistics, everything, order, last=out == "sparse"))


def _kinds(statistics: Statistics, operands: tuple[int, ...], order: Indices, last: bool = False) -> tuple[Kind, ...]:
    """last: the last level is compressed however full it is."""
    kinds: list[Kind] = []
    positions = 1.0
    for depth, index in enumerate(order, start=1):
        room = positions * statistics.extents[index]
        stored = statistics.count(operands, frozenset(order[:depth]))
        least = ROWS if depth < len(order) else 2.0 if last else ELEMENTS
        kinds.append("dense" if stored >= least * room else "compressed")
        positions = room if kinds[-1] == "dense" else stored
    return tuple(kinds)


def lay_out(nest: Nest, statistics: Statistics, choices: Choices) -> Nest:
    """The nest of its assignments that shares as many loops as it can, with formats and workspaces chosen."""
    nest = replace(nest, shared=tuple(shared_loops(nest, k) for k in range(len(nest.assignments) - 1)))
    formats = [
        operand_format(statistics, t, nest.assignments[nest.reader(t)].loops, t in choices.dense)
        for t in range(len(nest.network.inputs))
    ]
    formats.append(result_format(statistics, nest.assignments[-1].loops, choices.out))
    workspaces = tuple(_workspace(nest, a.target, choices) for a in nest.assignments[:-1])
    return replace(nest, formats=tuple(formats), workspaces=workspaces)


def shared_loops(nest: Nest, k: int) -> int:
    """The most outermost loops that assignment k can share with the next: all that is held across has their indices."""
    n = len(nest.network.inputs)
    held = [nest.indices[n + m] for m in range(k + 1) if nest.reader(n + m) > k]
    depth = 0
    for mine, theirs in zip(nest.assignments[k].loops, nest.assignments[k + 1].loops):
        if mine != theirs or any(mine not in labels for labels in held):
            break
        depth += 1
    return depth


def _workspace(nest: Nest, tensor: int, choices: Choices) -> Workspace:
    """Over what is not shared, in the order in which its reader runs over it."""
    reader: Assignment = nest.assignments[nest.reader(tensor)]
    order = tuple(index for index in reader.loops[nest.fused(tensor) :] if index in nest.indices[tensor])
    large = product(nest.network.extents, order) > choices.dense_workspace
    space: Space = "hashed" if large else "dense"
    return Workspace(order, space)
