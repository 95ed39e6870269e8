"""Irreducible representations of O(3) with multiplicities, written as e3nn writes them: ``128x0e + 128x1o``.

This module does not import e3nn; it reads e3nn's objects by their attributes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, overload

from trnqc.errors import IrrepsError

_TERM = re.compile(r"\s*(?:(\d+)\s*x\s*)?(\d+)\s*([eoy])\s*")
_HELP = "an irrep is written like 128x1o or 1o: multiplicity, l, and parity e, o or y for (-1)^l; + joins several"


@dataclass(frozen=True, order=True)
class Irrep:
    """The representation of degree l and parity p (1 even, -1 odd), of dimension 2l + 1."""

    l: int
    p: int

    def __post_init__(self) -> None:
        if self.l < 0 or self.p not in (1, -1):
            raise IrrepsError(f"an irrep has l >= 0 and parity 1 or -1; found l = {self.l}, parity = {self.p}")

    @property
    def dim(self) -> int:
        return 2 * self.l + 1

    def __str__(self) -> str:
        return f"{self.l}{'e' if self.p == 1 else 'o'}"


@dataclass(frozen=True)
class MulIrrep:
    """A slot: `mul` copies (channels) of one irrep."""

    mul: int
    ir: Irrep

    def __post_init__(self) -> None:
        if self.mul < 0:
            raise IrrepsError(f"a multiplicity is at least 0; found {self.mul} of {self.ir}")

    @property
    def dim(self) -> int:
        return self.mul * self.ir.dim

    def __str__(self) -> str:
        return f"{self.mul}x{self.ir}"


@dataclass(frozen=True)
class Irreps:
    """A sequence of slots, which a feature vector contains one after another."""

    slots: tuple[MulIrrep, ...]

    @classmethod
    def of(cls, source: Any) -> Irreps:
        """Convert an object to irreps.

        Parameters
        ----------
        source : object
            Text, an Irreps or Irrep of this package or of e3nn, or an iterable of (multiplicity, (l, parity)) pairs.

        Raises
        ------
        IrrepsError
            If the object does not represent irreps.
        """
        if isinstance(source, cls):
            return source
        if isinstance(source, str):
            return cls(tuple(_parse(source)))
        if hasattr(source, "l") and hasattr(source, "p"):
            return cls((MulIrrep(1, Irrep(int(source.l), int(source.p))),))
        try:
            return cls(tuple(_slot(item) for item in source))
        except TypeError as error:
            raise IrrepsError(f"expected irreps, found {source!r}; {_HELP}") from error

    @cached_property
    def dim(self) -> int:
        """Length of a feature vector."""
        return sum(slot.dim for slot in self.slots)

    @cached_property
    def slices(self) -> tuple[slice, ...]:
        """Slice of each slot in a feature vector."""
        slices, start = [], 0
        for slot in self.slots:
            slices.append(slice(start, start + slot.dim))
            start += slot.dim
        return tuple(slices)

    def simplify(self) -> Irreps:
        """Join neighbouring slots of the same irrep and remove empty slots."""
        joined: list[MulIrrep] = []
        for slot in self.slots:
            if joined and slot.mul and joined[-1].ir == slot.ir:
                joined[-1] = MulIrrep(joined[-1].mul + slot.mul, slot.ir)
            elif slot.mul:
                joined.append(slot)
        return Irreps(tuple(joined))

    def __len__(self) -> int:
        return len(self.slots)

    def __iter__(self) -> Iterator[MulIrrep]:
        return iter(self.slots)

    @overload
    def __getitem__(self, which: int) -> MulIrrep: ...
    @overload
    def __getitem__(self, which: slice) -> Irreps: ...
    def __getitem__(self, which: int | slice) -> MulIrrep | Irreps:
        return Irreps(self.slots[which]) if isinstance(which, slice) else self.slots[which]

    def __str__(self) -> str:
        return "+".join(map(str, self.slots))


def products(one: Irrep, two: Irrep) -> tuple[Irrep, ...]:
    """Return the irreps in the tensor product of two irreps, sorted by degree."""
    return tuple(Irrep(l, one.p * two.p) for l in range(abs(one.l - two.l), one.l + two.l + 1))


def _parse(text: str) -> Iterator[MulIrrep]:
    if not text.strip():
        return
    for term in text.split("+"):
        match = _TERM.fullmatch(term)
        if match is None:
            raise IrrepsError(f"cannot read {term.strip()!r} in irreps {text!r}; {_HELP}")
        mul, l, parity = match.groups()
        p = {"e": 1, "o": -1, "y": (-1) ** int(l)}[parity]
        yield MulIrrep(int(mul or 1), Irrep(int(l), p))


def _slot(item: Any) -> MulIrrep:
    """Convert a slot of e3nn, a pair (mul, irrep), or text to a slot."""
    if isinstance(item, MulIrrep):
        return item
    if isinstance(item, str) or hasattr(item, "l"):
        slots = Irreps.of(item).slots
    else:
        mul, ir = item
        if isinstance(ir, tuple) and not hasattr(ir, "l"):
            ir = Irrep(*map(int, ir))
        slots = tuple(MulIrrep(int(mul) * slot.mul, slot.ir) for slot in Irreps.of(ir).slots)
    if len(slots) != 1:
        raise IrrepsError(f"expected one irrep, found {item!r}; {_HELP}")
    return slots[0]
