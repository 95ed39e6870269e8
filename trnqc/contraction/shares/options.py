"""The ways to compute a part on ranks, with their costs: by all ranks, or divided over each of its labels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from trnqc.contraction.computation import Part
from trnqc.contraction.cost.rates import OperationRates
from trnqc.contraction.estimate import part_seconds
from trnqc.contraction.shares.local_parts import LocalRead, labels_of, local_part

# A shorter part is estimated by its multiply-adds instead of by its lowered steps, which takes longer to plan.
SHORT = 1e-3


@dataclass(frozen=True)
class Link:
    """What it takes to move elements between ranks: seconds for each element that a rank receives, and to begin."""

    element: float = 8e-9
    start: float = 2e-4


@dataclass(frozen=True)
class Option:
    """One way to compute a part: `local` is the share of the rank that has most to do, in `seconds`."""

    label: str | None
    seconds: float
    part: Part
    reads: tuple[LocalRead, ...]
    axis: int | None
    partial: bool


def options(part: Part, ranks: int, rates: OperationRates) -> Iterator[Option]:
    """Yield the ways to compute a part; the first is by all ranks."""
    whole = part_seconds(part, rates)
    for label in (None, *labels_of(part, ranks)):
        local = local_part(part, label, ranks, ranks - 1)
        if label is None:
            seconds = whole
        elif part.loops:
            seconds = whole / ranks
        elif part.schedule or whole < SHORT:
            seconds = whole * local.part.tree.multiply_adds / max(part.tree.multiply_adds, 1)
        else:
            seconds = part_seconds(local.part, rates)
        yield Option(label, seconds, local.part, local.reads, local.axis, local.partial)


def elements(shape: tuple[int, ...], axis: int | None, ranks: int) -> int:
    """Return the most elements that a rank holds of an array, whole or along an axis."""
    return prod(shape) if axis is None else prod(shape) // max(shape[axis], 1) * -(-shape[axis] // ranks)
