"""e3nn's connection modes: which channels u of x and v of y are multiplied, and to which channel of z they are added.

The first part of a mode's name gives the pairs of channels: ``uv`` all pairs, ``uu`` pairs of equal number, ``u<v``
pairs with u < v. The rest gives the channel of z. Paths without weights have W = 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from trnqc.cg.problem.irreps import MulIrrep


@dataclass(frozen=True)
class Mode:
    """A connection mode: its pairs of channels (``uv``, ``uu`` or ``u<v``) and the channel of z.

    The latter is ``u``, ``v``, ``pair`` (one channel for each pair), or ``w`` (all pairs, mixed by weights).
    """

    pairs: str
    result: str

    def counts(self, mul1: int, mul2: int) -> tuple[int, ...]:
        """Return the extents of the array of pairs."""
        return {"uv": (mul1, mul2), "uu": (mul1,), "u<v": (mul1 * (mul2 - 1) // 2,)}[self.pairs]

    def shape(self, mul1: int, mul2: int, mul3: int) -> tuple[int, ...]:
        """Return the shape of the weights."""
        return (*self.counts(mul1, mul2), *[mul3] * (self.result == "w"))

    def summed(self, mul1: int, mul2: int) -> int:
        """Return the number of pairs that add to one channel of z, as in e3nn's normalisation."""
        return {"u": mul2, "v": mul1, "pair": 1, "w": prod(self.counts(mul1, mul2))}[self.result]

    def fault(self, one: MulIrrep, two: MulIrrep, three: MulIrrep, has_weight: bool) -> str:
        """Return the reason why the mode does not allow these slots, or an empty string if it does."""
        if self.pairs != "uv" and one.mul != two.mul:
            return f"needs equal multiplicities of its inputs; found {one} and {two}"
        if self.result == "w":
            if has_weight or (self.pairs == "uu" and three.mul == 1):
                return ""
            return "mixes channels by weights; expected has_weight, found none"
        wanted = {"u": one.mul, "v": two.mul, "pair": prod(self.counts(one.mul, two.mul))}[self.result]
        if three.mul == wanted:
            return ""
        which = {"u": "of its first input", "v": "of its second input", "pair": "of its pairs of channels"}
        slots = {"u": f"{one}", "v": f"{two}", "pair": f"{one} x {two}, which has {wanted}"}[self.result]
        return f"needs the multiplicity {which[self.result]} in its output; found {slots} and {three}"


MODES = {
    "uvw": Mode("uv", "w"),
    "uvu": Mode("uv", "u"),
    "uvv": Mode("uv", "v"),
    "uuw": Mode("uu", "w"),
    "uuu": Mode("uu", "pair"),
    "uvuv": Mode("uv", "pair"),
    "uvu<v": Mode("u<v", "pair"),
    "u<vw": Mode("u<v", "w"),
}
