"""A product of tensors over named indices, as einsum writes it: "Kmn,mi,nu,Ki->Kiu"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from trnqc.errors import ExpressionError

Indices = tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """result[output] = sum over all other indices of the product of the operands.

    inputs: the indices of each operand; output: those of the result; sizes: (index, extent) of every index in order of
    appearance; same: for each operand the first one that is the same tensor, which is its own number for most.
    """

    inputs: tuple[Indices, ...]
    output: Indices
    sizes: tuple[tuple[str, int], ...]
    same: tuple[int, ...]

    @cached_property
    def extents(self) -> dict[str, int]:
        return dict(self.sizes)

    @property
    def summed(self) -> Indices:
        """Indices that the result has not."""
        return tuple(index for index, _ in self.sizes if index not in self.output)

    def shape(self, indices: Indices) -> tuple[int, ...]:
        return tuple(self.extents[index] for index in indices)

    def __str__(self) -> str:
        return ",".join(map("".join, self.inputs)) + "->" + "".join(self.output)


def network(subscripts: str, shapes: Sequence[tuple[int, ...]], same: Sequence[int] | None = None) -> Network:
    """The network that einsum's `subscripts` mean over operands of these shapes.

    Errors: ExpressionError for letters that are none, twice in one operand or only in the result, for a number of
    operands or axes that differs, and for extents that disagree; it names index and operand.
    """
    sides = subscripts.replace(" ", "").split("->")
    if len(sides) > 2:
        raise ExpressionError(f"one arrow '->' leads to the result; found {len(sides) - 1} in {subscripts!r}")
    parts = sides[0].split(",")
    if len(parts) != len(shapes):
        raise ExpressionError(f"{subscripts!r} has subscripts for {len(parts)} operands; found {len(shapes)} operands")
    sizes: dict[str, int] = {}
    for number, (part, shape) in enumerate(zip(parts, shapes, strict=True)):
        where = f"operand {number} ({part!r} of {subscripts!r})"
        _check_letters(part, where)
        if len(part) != len(shape):
            raise ExpressionError(f"{where} has {len(part)} indices; found a tensor of {len(shape)} axes")
        for index, extent in zip(part, shape, strict=True):
            if sizes.setdefault(index, extent) != extent:
                raise ExpressionError(f"index {index!r} has extent {extent} in {where} and {sizes[index]} before")
    output = sides[1] if len(sides) == 2 else _implicit("".join(parts))
    _check_letters(output, f"the result of {subscripts!r}")
    if unknown := [index for index in output if index not in sizes]:
        raise ExpressionError(f"index {unknown[0]!r} of the result stands in no operand of {subscripts!r}")
    own = tuple(same) if same is not None else tuple(range(len(parts)))
    return Network(tuple(map(tuple, parts)), tuple(output), tuple(sizes.items()), own)


def _check_letters(part: str, where: str) -> None:
    for index in part:
        if not index.isalpha():
            raise ExpressionError(f"{where}: an index is a letter; found {index!r}")
        if part.count(index) > 1:
            raise ExpressionError(f"{where}: index {index!r} stands twice; take the diagonal before")


def _implicit(letters: str) -> str:
    """NumPy's rule where no arrow is given: what stands once, in the order of the alphabet."""
    return "".join(sorted(index for index in set(letters) if letters.count(index) == 1))
