"""A product of tensors as bit sets, and the cost of contracting two parts of it; the searches for orders use it.

A part is a set of operands (bit k is operand k). The labels of its result are those that other operands or the output
need, so they do not depend on the order in which the part is contracted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import comb, log2, prod

import numpy as np

from trnqc.errors import InputError
from trnqc.expression.symmetry import Symmetry

# An order of contractions: part -> the two parts whose results are multiplied.
Splits = dict[int, tuple[int, int]]


def bits(mask: int) -> Iterator[int]:
    """Yield the numbers of the bits that are set, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


def flags(sets: Sequence[int], length: int) -> np.ndarray:
    """Return sets of numbers below `length`, given as bits, as float64 0 and 1, [sets, length]."""
    size = -(-length // 8)
    read = np.frombuffer(b"".join(one.to_bytes(size, "little") for one in sets), np.uint8)
    return np.unpackbits(read.reshape(len(sets), size), axis=1, bitorder="little")[:, :length].astype(float)


@dataclass(frozen=True)
class LabelExchange:
    """The exchange of two labels, all as bits.

    `broken` are operands that are not (anti)symmetric in the two, `odd` operands that change their sign.
    """

    labels: int
    broken: int
    odd: int


@dataclass(frozen=True)
class LabelNetwork:
    """Operands and output as sets of labels (bits).

    An extent may be the product of extents of labels that always occur together; `exchanges` are pairs of labels in
    which some operand is (anti)symmetric.
    """

    operands: tuple[int, ...]
    output: int
    extents: tuple[int, ...]
    exchanges: tuple[LabelExchange, ...] = ()
    _sizes: dict[int, int] = field(default_factory=dict, compare=False, repr=False)
    _kept: dict[int, int] = field(default_factory=dict, compare=False, repr=False)

    @staticmethod
    def of(
        inputs: Sequence[Sequence[str]],
        output: Iterable[str],
        extents: Mapping[str, int],
        symmetries: Sequence[Sequence[Symmetry]] = (),
    ) -> LabelNetwork:
        """Return the network of labelled operands and the symmetries of their axes.

        Without symmetries, labels that occur in the same operands are merged into one.
        """
        labels = tuple(dict.fromkeys(label for operand in inputs for label in operand))
        where = dict.fromkeys(labels, 0)
        for k, operand in enumerate(inputs):
            for label in operand:
                where[label] |= 1 << k
        wanted = set(output)
        if not wanted <= set(labels):
            raise InputError(f"the output has labels that no operand has: {sorted(wanted - set(labels))}")
        groups: dict[tuple[object, ...], list[str]] = {}
        for label in labels:
            key = (label,) if any(symmetries) else (where[label], label in wanted)
            groups.setdefault(key, []).append(label)
        chosen = list(groups.values())
        operands = [0] * len(inputs)
        for bit, group in enumerate(chosen):
            for k in bits(where[group[0]]):
                operands[k] |= 1 << bit
        number = {label: bit for bit, group in enumerate(chosen) for label in group}
        return LabelNetwork(
            tuple(operands),
            sum({1 << number[label] for label in wanted}),
            tuple(prod(extents[label] for label in group) for group in chosen),
            tuple(_exchanges(inputs, symmetries, number)),
        )

    @property
    def everything(self) -> int:
        """The part of all operands."""
        return (1 << len(self.operands)) - 1

    def size(self, labels: int) -> int:
        """Return the product of the extents of labels."""
        size = self._sizes.get(labels)
        if size is None:
            size = self._sizes[labels] = prod(e ** (labels & having).bit_count() for e, having in self._having)
        return size

    @cached_property
    def log_size(self) -> Callable[[int], float]:
        """The function that returns the logarithm, to base 2, of the product of the extents of labels.

        No extent may be zero.
        """
        having = [(log2(extent), labels) for extent, labels in self._having]
        if len(having) == 1:
            ((weight, all_labels),) = having
            return lambda labels: weight * (labels & all_labels).bit_count()

        def log_size(labels: int) -> float:
            total = 0.0
            for weight, of_extent in having:
                total += weight * (labels & of_extent).bit_count()
            return total

        return log_size

    @cached_property
    def summed_in_pairs(self) -> int:
        """The labels of at most two operands that the output lacks: a product of both sums over them."""
        pairs = (k for k, holder in enumerate(self.holders) if holder.bit_count() <= 2)
        return sum(1 << k for k in pairs) & ~self.output

    @cached_property
    def _having(self) -> tuple[tuple[int, int], ...]:
        """The extents above one and the labels that have each, since most labels share theirs with others."""
        having: dict[int, int] = {}
        for label, extent in enumerate(self.extents):
            having[extent] = having.get(extent, 0) | 1 << label
        return tuple((extent, labels) for extent, labels in having.items() if extent != 1)

    def union(self, part: int) -> int:
        """Return the labels of all operands of a part."""
        total = 0
        for k in bits(part):
            total |= self.operands[k]
        return total

    def kept(self, part: int) -> int:
        """Return the labels of the result of a part."""
        labels = self._kept.get(part)
        if labels is None:
            labels = self._kept[part] = self.needed(self.union(part), part)
        return labels

    def joined(self, left: int, right: int) -> int:
        """Return the labels of the result of two parts together."""
        part = left | right
        labels = self._kept.get(part)
        if labels is None:
            one, two = self.kept(left), self.kept(right)
            # What one of them alone has is needed outside of the other too.
            labels = self._kept[part] = one ^ two | self.needed(one & two, part)
        return labels

    def needed(self, labels: int, part: int) -> int:
        """Return the labels that the output or an operand outside of the part has."""
        needed = labels & self.output
        for k in bits(labels & ~self.output):
            if self.holders[k] & ~part:
                needed |= 1 << k
        return needed

    @cached_property
    def holders(self) -> tuple[int, ...]:
        """For every label the operands that have it."""
        holders = [0] * len(self.extents)
        for k, operand in enumerate(self.operands):
            for label in bits(operand):
                holders[label] |= 1 << k
        return tuple(holders)

    def with_extents(self, extents: Sequence[int]) -> LabelNetwork:
        """Return the network with other extents. It shares what is known of the labels of parts with this one."""
        other = LabelNetwork(self.operands, self.output, tuple(extents), self.exchanges, _kept=self._kept)
        other.__dict__.update(holders=self.holders, neighbours=self.neighbours)
        return other

    def without_common(self) -> LabelNetwork:
        """Return the network without labels that all operands have: they multiply the cost of every order alike."""
        common = sum(1 << k for k, holder in enumerate(self.holders) if holder == self.everything)
        if not common or self.exchanges:
            return self
        return LabelNetwork(tuple(labels & ~common for labels in self.operands), self.output & ~common, self.extents)

    def loops(self, labels: int, part: int) -> int:
        """Return the iterations of the loops over `labels` in a step that computes `part`, equivalent elements once.

        Two labels may be exchanged in the step if every operand of the part is (anti)symmetric in them or lacks both.
        """
        if not self.exchanges:
            return self.size(labels)
        passes, left = 1, labels
        for first in bits(labels):
            if not left >> first & 1:
                continue
            group, odd = 1 << first, False
            for exchange in self.exchanges:
                inside = exchange.labels & ~labels == 0 and exchange.labels >> first & 1
                if inside and not exchange.broken & part:
                    group |= exchange.labels
                    odd |= bool(exchange.odd & part)
            members, extent = group.bit_count(), self.extents[first]
            passes *= comb(extent, members) if odd else comb(extent + members - 1, members)
            left &= ~group
        return passes

    @cached_property
    def bare(self) -> tuple[tuple[tuple[int, int], ...], ...]:
        """For every operand the (labels, cost) with which it may enter a step: whole, or summed over its own labels."""
        ways = []
        for k, labels in enumerate(self.operands):
            kept = self.kept(1 << k)
            ways.append(((labels, 0),) if kept == labels else ((labels, 0), (kept, self.loops(labels, 1 << k))))
        return tuple(ways)

    def ways(self, part: int) -> tuple[tuple[int, int], ...]:
        """Return the (labels, cost) with which the result of a part may enter a step."""
        if part.bit_count() == 1:
            return self.bare[part.bit_length() - 1]
        return ((self.kept(part), 0),)

    def merge(self, left: int, right: int) -> int:
        """Return the multiply-adds of multiplying the results of two parts, including sums over single operands."""
        if left.bit_count() > 1 and right.bit_count() > 1:
            return self.loops(self.kept(left) | self.kept(right), left | right)
        return min(x + y + self.loops(a | b, left | right) for a, x in self.ways(left) for b, y in self.ways(right))

    def cost(self, splits: Splits, part: int) -> int:
        """Return the multiply-adds of a part in this order."""
        total, todo = 0, [part]
        while todo:
            chosen = todo.pop()
            if chosen.bit_count() > 1:
                left, right = splits[chosen]
                total += self.merge(left, right)
                todo += (left, right)
        return total

    @cached_property
    def neighbours(self) -> tuple[int, ...]:
        """For every operand the others that share a label with it."""
        return tuple(_any(self.holders, labels) & ~(1 << k) for k, labels in enumerate(self.operands))

    def components(self) -> list[int]:
        """Return the connected parts, which share no label with each other."""
        components, left = [], self.everything
        while left:
            part = left & -left
            while more := part | _any(self.neighbours, part):
                if more == part:
                    break
                part = more
            components.append(part)
            left &= ~part
        return components


def _any(masks: Sequence[int], chosen: int) -> int:
    """Return the union of the chosen masks."""
    total = 0
    for k in bits(chosen):
        total |= masks[k]
    return total


def _exchanges(
    inputs: Sequence[Sequence[str]], symmetries: Sequence[Sequence[Symmetry]], number: Mapping[str, int]
) -> Iterator[LabelExchange]:
    """Yield the exchanges of labels that symmetries of the operands imply."""
    signs: dict[tuple[int, frozenset[str]], int] = {}
    for k, of_operand in enumerate(symmetries):
        for symmetry in of_operand:
            for x, y in combinations(symmetry.axes, 2):
                if inputs[k][x] != inputs[k][y]:
                    signs[k, frozenset((inputs[k][x], inputs[k][y]))] = symmetry.sign
    for pair in dict.fromkeys(pair for _, pair in signs):
        touched = sum(1 << k for k, operand in enumerate(inputs) if pair & set(operand))
        kept = sum(1 << k for k, other in signs if other == pair)
        odd = sum(1 << k for (k, other), sign in signs.items() if other == pair and sign == -1)
        yield LabelExchange(sum(1 << number[label] for label in pair), touched & ~kept, odd)
