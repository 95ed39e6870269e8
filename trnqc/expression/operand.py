"""An operand of a product: a reference to an array with one label per axis."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaf:
    """One operand as it stands in a product; a label that repeats means the diagonal.

    `operand` is the number of the array, negative if an earlier assignment computes it; `cost` the multiply-adds for
    one element of a function, 0 for a stored array; `reciprocal` takes 1/x of each element.
    """

    name: str
    indices: tuple[str, ...]
    operand: int
    cost: int = 0
    reciprocal: bool = False

    def __str__(self) -> str:
        return f"{'1/' if self.reciprocal else ''}{self.name}[{','.join(self.indices)}]"
