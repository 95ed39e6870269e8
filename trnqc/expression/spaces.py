"""Index spaces and labels: the ranges of the indices of tensors."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from operator import index

from trnqc.errors import ExpressionError


@dataclass(frozen=True)
class Index:
    """A label that runs over 0 .. extent - 1, with the symbol of the extent in symbolic operation counts."""

    label: str
    extent: int
    symbol: str


@dataclass(frozen=True)
class Space:
    """A range that several indices share, such as the occupied orbitals.

    Attributes
    ----------
    name : str
        Name of the space.
    extent : int or None
        Number of elements; None until it is known.
    blocks : tuple of int
        Extents of the parts of the space, such as alpha and beta orbitals; empty if it is not divided.

    Raises
    ------
    ExpressionError
        If the extent is negative or the blocks do not sum to it.
    """

    name: str
    extent: int | None = None
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.extent is not None and self.extent < 0:
            raise ExpressionError(f"the extent of space {self.name} must be at least 0; found {self.extent}")
        if self.blocks and (min(self.blocks) < 0 or sum(self.blocks) != self.extent):
            raise ExpressionError(f"the blocks of space {self.name} must sum to {self.extent}; found {self.blocks}")

    def sized(self, extent: int | tuple[int, ...]) -> Space:
        """Return the space with this extent, or with these extents of its blocks."""
        parts = extent if isinstance(extent, tuple) else (extent,)
        try:
            counts = tuple(map(index, parts))  # NumPy's integers become Python's, which do not overflow.
        except TypeError:
            raise ExpressionError(f"the extent of space {self.name} must be an integer; found {extent!r}") from None
        if self.extent not in (None, sum(counts)):
            raise ExpressionError(f"space {self.name} has extent {self.extent}; found {sum(counts)}")
        return Space(self.name, sum(counts), counts if isinstance(extent, tuple) else self.blocks)


def split_labels(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    """Return the labels of "abij", "a,b,i,j" or a tuple of labels.

    >>> split_labels("abij")
    ('a', 'b', 'i', 'j')
    >>> split_labels("a1, b1")
    ('a1', 'b1')
    """
    if not isinstance(labels, str):
        return tuple(labels)
    return tuple(part.strip() for part in labels.split(",")) if "," in labels else tuple(labels)


def fresh_label(labels: dict[str, str], like: str, taken: Collection[str]) -> str:
    """Return a label over the space of `like` that is not in `taken`.

    If all labels of the space are taken, a new label is added to `labels`.
    """
    for label, space in labels.items():
        if space == labels[like] and label not in taken:
            return label
    label = like
    while label in labels:
        label += "′"
    labels[label] = labels[like]
    return label
