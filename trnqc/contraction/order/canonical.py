"""A canonical form of products: equal products get equal keys, however they were written."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import permutations

from trnqc.contraction.time_limit import SHARING, out_of_time
from trnqc.expression.symmetry import Exchange, Symmetry

# (name, reciprocal, code of each label): 2 number + 1 for a kept label, 2 number for a summed one.
Encoded = tuple[str, bool, tuple[int, ...]]
Key = tuple[Encoded, ...]


@dataclass(frozen=True)
class Item:
    """A factor of a product: a tensor (one version of it) at labels."""

    name: str
    labels: tuple[str, ...]
    reciprocal: bool = False


@dataclass(frozen=True)
class Canonical:
    """The canonical form of a product: `sign` times what `key` describes, with the kept labels in the key's order.

    Keys are equal for products that are equal up to names of labels, order of factors and declared symmetry.
    """

    key: Key
    labels: tuple[str, ...]
    sign: int


def canonical(
    items: Sequence[Item],
    kept: frozenset[str],
    symmetries: Mapping[str, tuple[Symmetry | Exchange, ...]],
    first: tuple[str, ...] = (),
) -> Canonical:
    """Return the canonical form: the least key over all orders of the factors and of exchangeable axes.

    Labels are numbered as they appear, after the labels in `first`; labels in `kept` are not summed. Factors are chosen
    one by one, always with the least code; only ties are followed further. At the time limit, ties are no longer
    followed: equal products may then get different keys, but different products never get equal ones.
    """
    states: list[tuple[frozenset[int], tuple[str, ...], int]] = [(frozenset(range(len(items))), first, 1)]
    key: list[Encoded] = []
    for _ in items:
        least: Encoded | None = None
        following: dict[tuple[frozenset[int], tuple[str, ...]], int] = {}
        for left, numbered, sign in states:
            if least is not None and out_of_time("equal products", SHARING):
                break
            for k in sorted(left):
                item = items[k]
                for labels, factor in variants(item.labels, symmetries.get(item.name, ())):
                    code, after = _encoded(item, labels, numbered, kept)
                    if least is None or code < least:
                        least, following = code, {}
                    if code == least:
                        following.setdefault((left - {k}, after), sign * factor)
        assert least is not None
        key.append(least)
        states = [(left, numbered, sign) for (left, numbered), sign in following.items()]
    _, numbered, sign = states[0]
    return Canonical(tuple(key), tuple(label for label in numbered if label in kept), sign)


def _encoded(
    item: Item, labels: tuple[str, ...], numbered: tuple[str, ...], kept: frozenset[str]
) -> tuple[Encoded, tuple[str, ...]]:
    """Return the code of a factor with its axes in this order, and the labels numbered after it."""
    codes = []
    for label in labels:
        if label not in numbered:
            numbered = (*numbered, label)
        codes.append(2 * numbered.index(label) + (label in kept))
    return (item.name, item.reciprocal, tuple(codes)), numbered


@lru_cache(maxsize=4096)
def variants(
    labels: tuple[str, ...], symmetries: tuple[Symmetry | Exchange, ...]
) -> tuple[tuple[tuple[str, ...], int], ...]:
    """Return (labels, sign) of every order of the axes that the symmetries allow."""
    orders = [(labels, 1)]
    for symmetry in symmetries:
        if isinstance(symmetry, Exchange):
            axes = symmetry.order(len(labels))
            orders += [(tuple(have[axis] for axis in axes), sign * symmetry.sign) for have, sign in orders]
            continue
        more = []
        for have, sign in orders:
            for order in permutations(range(len(symmetry.axes))):
                turned = list(have)
                for place, source in zip(symmetry.axes, order):
                    turned[place] = have[symmetry.axes[source]]
                more.append((tuple(turned), sign * (_parity(order) if symmetry.sign < 0 else 1)))
        orders = more
    return tuple(orders)


def _parity(order: tuple[int, ...]) -> int:
    """Return the sign of a permutation."""
    swaps = sum(order[i] > order[j] for i in range(len(order)) for j in range(i + 1, len(order)))
    return -1 if swaps % 2 else 1
