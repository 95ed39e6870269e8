"""An operand of a product: which array it is, and the label of each of its axes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Leaf:
    """Operand number `operand`, one label per axis; a label that repeats takes the diagonal.

    cost: multiply-adds for one element of a function; 0 for an array that is stored. reciprocal: 1/x of each element.
    """

    name: str
    indices: tuple[str, ...]
    operand: int
    cost: int = 0
    reciprocal: bool = False

    def __str__(self) -> str:
        return f"{'1/' if self.reciprocal else ''}{self.name}[{','.join(self.indices)}]"
