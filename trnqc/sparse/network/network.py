"""A product of tensors over named indices, in the notation of einsum: "Kmn,mi,nu,Ki->Kiu"."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

from trnqc.expression.subscripts import parse_subscripts

Indices = tuple[str, ...]


@dataclass(frozen=True)
class Network:
    """A product of operands, summed over all indices that the result does not have.

    `sizes` has (index, extent) in order of appearance, `same` for each operand the number of the first operand that is
    the same tensor.
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
        """The indices that the result does not have."""
        return tuple(index for index, _ in self.sizes if index not in self.output)

    def shape(self, indices: Indices) -> tuple[int, ...]:
        """Return the extents of some indices."""
        return tuple(self.extents[index] for index in indices)

    def __str__(self) -> str:
        return ",".join(map("".join, self.inputs)) + "->" + "".join(self.output)


def network(subscripts: str, shapes: Sequence[tuple[int, ...]], same: Sequence[int] | None = None) -> Network:
    """Return the network of einsum's subscripts over operands of these shapes.

    Parameters
    ----------
    subscripts
        Subscripts of einsum, with or without the result.
    shapes
        The shape of each operand.
    same
        See `Network`; by default all operands are different tensors.

    Raises
    ------
    ExpressionError
        If the subscripts do not fit the shapes, or an operand has an index twice or an ellipsis.

    Examples
    --------
    >>> print(network("Kmn,mi", [(7, 5, 4), (5, 3)]))
    Kmn,mi->Kin
    """
    return _network(subscripts, tuple(shapes), None if same is None else tuple(same))


@lru_cache(maxsize=256)
def _network(subscripts: str, shapes: tuple[tuple[int, ...], ...], same: tuple[int, ...] | None) -> Network:
    parsed = parse_subscripts(subscripts, shapes, strict=True)
    own = range(len(parsed.inputs)) if same is None else same
    return Network(parsed.inputs, parsed.output, tuple(parsed.extents.items()), tuple(own))
