"""Abelian quantum numbers of the blocks of a tensor, and the rule that they state about which blocks may be stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import OperandError

# A charge is an integer, or a tuple of integers if there are several quantum numbers.
Charge = int | tuple[int, ...]


@dataclass(frozen=True)
class BlockCharges:
    """Quantum numbers of the blocks of each mode.

    A block may be stored only if the sum over its modes of direction times charge is the total charge.

    Attributes
    ----------
    modes
        For each mode the charge of each of its blocks: an integer, or a tuple of integers for several quantum numbers.
    directions
        +1 or -1 for each mode. A contracted index has opposite directions in its two operands.
    total
        The charge of the whole tensor.
    modulus
        None for integers, n for integers modulo n; a tuple with one of these for each of several quantum numbers.

    Raises
    ------
    OperandError
        If lengths differ, a direction is not +1 or -1, or a modulus is not at least 2.
    """

    modes: tuple[tuple[Charge, ...], ...]
    directions: tuple[int, ...]
    total: Charge = 0
    modulus: int | tuple[int | None, ...] | None = None

    def __post_init__(self) -> None:
        width = len(self.total) if isinstance(self.total, Sequence) else 0
        moduli = (self.modulus,) * max(width, 1) if not isinstance(self.modulus, Sequence) else tuple(self.modulus)
        if len(moduli) != max(width, 1) or any(n is not None and (not _is_integer(n) or n < 2) for n in moduli):
            raise OperandError(
                f"modulus is None or an integer of at least 2, for each of {max(width, 1)} quantum numbers; found "
                f"{self.modulus!r}"
            )
        if len(self.directions) != len(self.modes) or any(sign not in (1, -1) for sign in self.directions):
            raise OperandError(f"directions are +1 or -1 for each of {len(self.modes)} modes; found {self.directions}")
        modes = tuple(tuple(_reduced(charge, width, moduli) for charge in mode) for mode in self.modes)
        object.__setattr__(self, "modes", modes)
        object.__setattr__(self, "directions", tuple(int(sign) for sign in self.directions))
        object.__setattr__(self, "total", _reduced(self.total, width, moduli))
        object.__setattr__(self, "modulus", moduli if width else moduli[0])

    @property
    def moduli(self) -> tuple[int | None, ...]:
        """The modulus of each quantum number."""
        return self.modulus if isinstance(self.modulus, tuple) else (self.modulus,)

    def sums(self, coordinates: np.ndarray) -> np.ndarray:
        """Return the directed sums of charges, int64 [blocks, quantum numbers], of blocks at these coordinates."""
        total = np.zeros((len(coordinates), len(self.moduli)), np.int64)
        for axis, (mode, sign) in enumerate(zip(self.modes, self.directions)):
            total += sign * np.array(mode, np.int64).reshape(len(mode), -1)[coordinates[:, axis]]
        return self._wrapped(total)

    def _wrapped(self, sums: np.ndarray) -> np.ndarray:
        for column, n in enumerate(self.moduli):
            if n is not None:
                sums[:, column] %= n
        return sums

    def allowed(self, coordinates: np.ndarray) -> np.ndarray:
        """Return which of the blocks at these coordinates keep the rule, bool [blocks]."""
        return np.asarray((self.sums(coordinates) == np.array(self.total).reshape(1, -1)).all(axis=1))

    def conj(self) -> BlockCharges:
        """Return the quantum numbers of the conjugate: all directions are reversed, and so is the total charge."""
        return BlockCharges(self.modes, tuple(-sign for sign in self.directions), self._times(-1), self.modulus)

    def _times(self, factor: int) -> Charge:
        return tuple(factor * x for x in self.total) if isinstance(self.total, tuple) else factor * self.total

    def check(self, sizes: Sequence[Sequence[int]], coordinates: np.ndarray) -> None:
        """Raise OperandError if charges do not fit the blocks of the modes, or a block breaks the rule."""
        counts, found = [len(mode) for mode in sizes], [len(mode) for mode in self.modes]
        if counts != found:
            raise OperandError(f"each block of a mode has a charge: expected {counts} charges; found {found}")
        wrong = np.flatnonzero(~self.allowed(coordinates))
        if len(wrong):
            block = coordinates[wrong[0]]
            total = self.sums(block[None])[0].tolist()
            raise OperandError(
                f"the directed charges of a block must sum to {self.total}; those of block {tuple(block.tolist())} sum "
                f"to {tuple(total) if isinstance(self.total, tuple) else total[0]}"
            )

    def __str__(self) -> str:
        directions = "".join("+" if sign > 0 else "-" for sign in self.directions)
        return f"charges ({directions}), total {self.total}" + (f", modulo {self.modulus}" if any(self.moduli) else "")


def of_product(
    inputs: Sequence[Sequence[str]], output: Sequence[str], charges: Sequence[BlockCharges | None]
) -> BlockCharges | None:
    """Return the quantum numbers of a product from those of its operands; None if no operand has any.

    Raises OperandError if only some operands have them, moduli differ, or an index has other charges or the same
    direction in its two operands, or is summed in one or kept in two.
    """
    known = [own for own in charges if own is not None]
    if not known:
        return None
    if len(known) < len(charges):
        bare = next(t for t, own in enumerate(charges) if own is None)
        raise OperandError(
            f"operand {bare} has no quantum numbers, but others have: give it some by BlockTensor.from_dense, or take "
            "the others .without_charges()"
        )
    if any(own.moduli != known[0].moduli for own in known):
        raise OperandError(f"operands have different moduli of quantum numbers: {[own.modulus for own in known]}")
    places: dict[str, list[tuple[int, int]]] = {}
    for t, labels in enumerate(inputs):
        for axis, label in enumerate(labels):
            places.setdefault(label, []).append((t, axis))
    for label, where in places.items():
        ends = [(t, known[t].modes[axis], known[t].directions[axis]) for t, axis in where]
        _check_index(label, ends, label in output)
    modes = [places[label][0] for label in output]
    totals = np.array([np.reshape(own.total, -1) for own in known]).sum(axis=0).tolist()
    return BlockCharges(
        tuple(known[t].modes[axis] for t, axis in modes),
        tuple(known[t].directions[axis] for t, axis in modes),
        tuple(totals) if isinstance(known[0].total, tuple) else totals[0],
        known[0].modulus,
    )


def _check_index(label: str, places: list[tuple[int, tuple[Charge, ...], int]], kept: bool) -> None:
    if len(places) != (1 if kept else 2):
        raise OperandError(
            f"with quantum numbers an index is in one operand and the result, or in two operands and summed; index "
            f"{label} is in {len(places)} and {'kept' if kept else 'summed'}"
        )
    if not kept:
        (first, charges, sign), (second, others, other) = places
        if charges != others:
            raise OperandError(
                f"index {label} has the charges {charges} in operand {first} and {others} in operand {second}"
            )
        if sign == other:
            raise OperandError(
                f"index {label} must have opposite directions in operands {first} and {second}; found {sign:+d} in "
                "both: take one operand's .conj()"
            )


def _is_integer(value: object) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool)


def _reduced(charge: Charge, width: int, moduli: Sequence[int | None]) -> Charge:
    parts = tuple(charge) if isinstance(charge, Sequence) else (charge,)
    if isinstance(charge, Sequence) != bool(width) or len(parts) != len(moduli) or not all(map(_is_integer, parts)):
        expected = f"a tuple of {width} integers" if width else "an integer"
        raise OperandError(f"a charge is {expected}, as the total charge is; found {charge!r}")
    whole = tuple(int(x) if n is None else int(x) % n for x, n in zip(parts, moduli))
    return whole if width else whole[0]
