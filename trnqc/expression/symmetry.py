"""Permutational symmetry of tensors: exchanges of axes that leave a tensor unchanged or change its sign."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations

from trnqc.errors import ExpressionError

Permutations = list[tuple[int, dict[str, str]]]
"""Signs and permutations of labels, label -> new label."""


def permutations_of(groups: Sequence[Sequence[str]]) -> Permutations:
    """Return the distributions of labels over the groups but for the identity, with the signs of the permutations.

    Labels that stay in their group keep their places, and the others take the places that are left in their order:
    P(ij/kl) = 1 - P(ik) - P(il) - P(jk) - P(jl) + P(ik) P(jl).
    """
    home = [number for number, group in enumerate(groups) for _ in group]
    labels = [label for group in groups for label in group]
    signed: Permutations = []
    for owner in sorted(set(permutations(home)), reverse=True):
        # owner[k] is the group that gets label k.
        order = [k if owner[k] == home[k] else -1 for k in range(len(labels))]
        for number in range(len(groups)):
            coming = iter(k for k in range(len(labels)) if owner[k] == number != home[k])
            for place in range(len(labels)):
                if home[place] == number and order[place] < 0:
                    order[place] = next(coming)
        inversions = sum(x > y for k, x in enumerate(order) for y in order[k + 1 :])
        if inversions:
            signed.append(((-1) ** inversions, {label: labels[place] for label, place in zip(labels, order)}))
    return signed


@dataclass(frozen=True)
class Symmetry:
    """A symmetry under which exchanging any two of some axes multiplies the tensor by a sign.

    Attributes
    ----------
    axes : tuple of int
        Two or more different axes.
    sign : int
        1 (symmetric) or -1 (antisymmetric).
    """

    axes: tuple[int, ...]
    sign: int = 1

    def __post_init__(self) -> None:
        if self.sign not in (1, -1) or len(set(self.axes)) != len(self.axes) or len(self.axes) < 2:
            raise ExpressionError(f"a symmetry must have two or more different axes and sign 1 or -1; found {self}")


@dataclass(frozen=True)
class Exchange:
    """A symmetry under which exchanging the two axes of every pair at once multiplies the tensor by a sign, 1 or -1.

    Pairs are disjoint: ((0, 1), (2, 3)) with sign 1 states t_efij = t_feji.
    """

    pairs: tuple[tuple[int, int], ...]
    sign: int = 1

    def __post_init__(self) -> None:
        axes = [axis for pair in self.pairs for axis in pair]
        if self.sign not in (1, -1) or len(set(axes)) != len(axes) or any(len(pair) != 2 for pair in self.pairs):
            raise ExpressionError(f"an exchange must have pairs of different axes and sign 1 or -1; found {self}")

    def order(self, rank: int) -> tuple[int, ...]:
        """Return the permutation of the axes of a tensor of this rank.

        >>> Exchange(((0, 1), (2, 3))).order(5)
        (1, 0, 3, 2, 4)
        """
        other = {x: y for pair in self.pairs for x, y in (pair, pair[::-1])}
        return tuple(other.get(axis, axis) for axis in range(rank))


def single_exchanges(symmetries: Iterable[Symmetry]) -> tuple[Exchange, ...]:
    """Return the exchanges of one pair of axes that the symmetries allow."""
    return tuple(Exchange((pair,), s.sign) for s in symmetries for pair in combinations(s.axes, 2))


def signed_orders(exchanges: Sequence[Exchange], rank: int) -> dict[tuple[int, ...], int]:
    """Return all permutations of the axes of a tensor that exchanges generate, with their signs.

    Raises ExpressionError if a permutation has both signs, so that only a tensor of zeros has the symmetry.

    >>> signed_orders([Exchange(((0, 2),), -1)], 3)
    {(0, 1, 2): 1, (2, 1, 0): -1}
    """
    signs = {tuple(range(rank)): 1}
    waiting = list(signs)
    while waiting:
        order = waiting.pop()
        for exchange in exchanges:
            new, sign = tuple(order[axis] for axis in exchange.order(rank)), signs[order] * exchange.sign
            if new not in signs:
                waiting.append(new)
            if signs.setdefault(new, sign) != sign:
                raise ExpressionError(f"exchanges contradict each other: {new} has both signs")
    return signs


def parse_symmetries(
    symmetries: Mapping[int, str | Sequence[str]], shapes: Sequence[tuple[int, ...]]
) -> tuple[tuple[Exchange, ...], ...]:
    """Parse equations between permuted operands to exchanges of axes.

    Parameters
    ----------
    symmetries : mapping
        Number of an operand -> one equation or several, in any letters:
        ``{2: "efij = feji", 0: ["abij = -baij", "abij = -abji"]}``.
    shapes : sequence of tuple of int
        Shapes of all operands.

    Returns
    -------
    tuple of tuple of Exchange
        For each operand, in order.

    Raises
    ------
    ExpressionError
        If an equation states anything but exchanges of pairs of axes, or pairs axes of different extents.

    Examples
    --------
    >>> parse_symmetries({1: "ab = -ba"}, [(3,), (4, 4)])
    ((), (Exchange(pairs=((0, 1),), sign=-1),))
    """
    if unknown := [k for k in symmetries if not (isinstance(k, int) and 0 <= k < len(shapes))]:
        raise ExpressionError(f"symmetries name operands by number, 0 to {len(shapes) - 1}; found {unknown[0]!r}")
    exchanges: list[tuple[Exchange, ...]] = []
    for k, shape in enumerate(shapes):
        equations = symmetries.get(k, ())
        texts = [equations] if isinstance(equations, str) else list(equations)
        exchanges.append(tuple(exchange for text in texts for exchange in _exchanges(text, k, shape)))
    return tuple(exchanges)


def _exchanges(text: str, operand: int, shape: tuple[int, ...]) -> Iterator[Exchange]:
    """Yield one exchange for every right-hand side of "abij = -baij = -abji"."""
    first, *others = (part.strip() for part in text.split("="))
    what = f"the symmetry {text!r} of operand {operand}"
    if len(set(first)) != len(first) or len(first) != len(shape) or not others:
        raise ExpressionError(f"{what} has one letter for each of {len(shape)} axes, as in 'abij = baji'")
    for other in others:
        sign, order = (-1, other[1:].strip()) if other.startswith("-") else (1, other)
        if sorted(order) != sorted(first):
            raise ExpressionError(f"{what} has the same letters on both sides; found {first!r} and {order!r}")
        axes = [first.index(letter) for letter in order]
        pairs = tuple((axis, axes[axis]) for axis in range(len(axes)) if axis < axes[axis])
        if any(axes[axes[axis]] != axis for axis in axes) or not pairs:
            raise ExpressionError(f"{what} exchanges pairs of axes; {first!r} to {order!r} does not")
        if unequal := [pair for pair in pairs if shape[pair[0]] != shape[pair[1]]]:
            raise ExpressionError(f"{what} exchanges axes of unequal extents: {unequal[0]} of shape {shape}")
        yield Exchange(pairs, sign)
