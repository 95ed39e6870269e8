"""The subscripts of einsum for operands with repeated indices, ellipses and axes of extent one that are broadcast.

subscripts, shapes -> subscripts in which the indices of an operand differ, and how each operand is viewed for them

A repeated index stands for a diagonal. An axis of extent one whose index has a larger extent elsewhere is dropped: the
network without this index of the operand has the same result.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from trnqc.expression.subscripts import is_index, parse_subscripts


@dataclass(frozen=True)
class OperandView:
    """How an operand of a shape is viewed.

    `modes` has the mode of the view for each axis of the operand: the same for the axes of a diagonal, None for an axis
    of extent 1 that is dropped.
    """

    shape: tuple[int, ...]
    modes: tuple[int | None, ...]

    @property
    def is_plain(self) -> bool:
        """Whether the view is the operand itself."""
        return self.modes == tuple(range(len(self.shape)))

    @property
    def axes(self) -> tuple[int, ...]:
        """The first axis of the operand for each mode of the view."""
        return tuple(self.modes.index(mode) for mode in range(len({*self.modes} - {None})))


@lru_cache(maxsize=256)
def views(subscripts: str, shapes: tuple[tuple[int, ...], ...]) -> tuple[str, tuple[OperandView, ...]]:
    """Return the subscripts and a view for each operand.

    Raises ExpressionError if the subscripts do not fit the shapes.

    Examples
    --------
    >>> views("...ii,ij->...j", ((7, 5, 5), (1, 4)))
    ('ai,j->aj', (OperandView(shape=(7, 5, 5), modes=(0, 1, 1)), OperandView(shape=(1, 4), modes=(None, 0))))
    """
    parsed = parse_subscripts(subscripts, shapes)
    free = _unused("".join(parsed.extents))
    letters = {label: label if len(label) == 1 else next(free) for label in parsed.extents}
    inputs = [tuple(dict.fromkeys(labels)) for labels in parsed.inputs]
    parts = ["".join(map(letters.__getitem__, labels)) for labels in (*inputs, parsed.output)]
    found = []
    for labels, distinct, dropped, shape in zip(parsed.inputs, inputs, parsed.squeezed, shapes):
        remaining = iter(labels)
        modes = (None if axis in dropped else distinct.index(next(remaining)) for axis in range(len(shape)))
        found.append(OperandView(tuple(shape), tuple(modes)))
    return ",".join(parts[:-1]) + "->" + parts[-1], tuple(found)


def _unused(used: str) -> Iterator[str]:
    return (x for x in map(chr, range(ord("a"), 0x110000)) if is_index(x) and x not in used)
