"""Ladders: R[a,b,z] = sum(e,f) W[a,b,e,f] t[e,f,z] with W[a,b,e,f] = sum(q) x[q,a,e] x[q,b,f] never stored whole.

W does not change if a with b and e with f are exchanged. Where t keeps its elements (or their negatives) if e and f are
exchanged, together with pairs of the labels z or alone, everything splits into an even and an odd half:

    W±[ab,ef] = W[a,b,e,f] ± W[a,b,f,e]     t±[ef,z] = t[e,f,z] ± t[f,e,z]     2 R±[ab,z] = sum(ef) W± t±
    R[a,b,z] = R+ + R-                      R[b,a,z] = R+ - R-                 over a >= b, e >= f, z of its pair once

which is a quarter of the multiply-adds with t. Half of those of W remain; where x[q,a,e] = x[q,e,a] an eighth, as W
then has the symmetry of real integrals: each of its tiles is made once and used in all products that it takes part in.

    tree, exchanges ─ ladder_of ─► Ladder ─ tiles within a limit ─► LadderLoops ─ run_ladder ─► R
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from trnqc.contraction.tree import Node, Tree
from trnqc.expression.operand import Leaf
from trnqc.expression.symmetry import Exchange

# The even half and the odd one.
HALVES = (1, -1)


@dataclass(frozen=True)
class Ladder:
    """What stands for what in a tree of the two steps.

    upper: (a, b); lower: (e, f); inner: q; x: the leaf, its labels those of a and e. free: z, in the order of t;
    turned: which of them stands where after the exchange; sign: what it multiplies t with. even: x[q,a,e] = x[q,e,a].
    """

    tree: Tree
    upper: tuple[str, str]
    lower: tuple[str, str]
    inner: tuple[str, ...]
    x: Leaf
    t: Leaf
    free: tuple[str, ...]
    turned: tuple[int, ...]
    sign: int
    even: bool

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Of a, of e, of q, of z."""
        size = self.tree.size
        return size(self.upper[:1]), size(self.lower[:1]), size(self.inner), size(self.free)

    def columns(self, half: int) -> int:
        """Elements over z that are unlike each other in one half."""
        moved = [k for k, axis in enumerate(self.turned) if axis > k]
        alike = prod(self.tree.extent(label) for k, label in enumerate(self.free) if k not in moved)
        return (self.extents[3] + half * self.sign * alike) // 2


def pairs(extent: int, half: int) -> int:
    """a >= b in the even half, a > b in the odd one."""
    return extent * (extent + half) // 2


def ladder_of(tree: Tree, exchanges: Mapping[str, Sequence[Exchange]]) -> Ladder | None:
    """The ladder that the product of the tree is, if it is one, in an order of its own. exchanges: by name of leaf."""
    leaves = tree.leaves
    if len(leaves) != 3 or any(x.cost or x.reciprocal or len(set(x.indices)) < len(x.indices) for x in leaves):
        return None
    for place, t in enumerate(leaves):
        one, two = leaves[:place] + leaves[place + 1 :]
        for labels in _orders(two, exchanges.get(two.name, ())) if one.name == two.name else ():
            found = _labels(one.indices, labels, tree.root.indices)
            if found and (ladder := _with(tree, one, two, t, *found, exchanges)):
                return ladder
    return None


def _orders(x: Leaf, exchanges: Sequence[Exchange]) -> Iterator[tuple[str, ...]]:
    """The labels of x, and those that an exchange with sign 1 makes of them."""
    yield x.indices
    for exchange in exchanges:
        if exchange.sign == 1:
            yield tuple(x.indices[axis] for axis in exchange.order(len(x.indices)))


def _labels(
    one: tuple[str, ...], two: tuple[str, ...], output: tuple[str, ...]
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """((a, b), (e, f)): where x stands with a and e, and with b and f."""
    differ = [(i, j) for i, j in zip(one, two) if i != j]
    upper = [pair for pair in differ if set(pair) <= set(output)]
    lower = [pair for pair in differ if not set(pair) & set(output)]
    same = [i for i, j in zip(one, two) if i == j]
    if len(upper) != 1 or len(lower) != 1 or len(differ) != 2 or set(same) & set(output):
        return None
    return upper[0], lower[0]


def _with(
    tree: Tree,
    x: Leaf,
    y: Leaf,
    t: Leaf,
    upper: tuple[str, str],
    lower: tuple[str, str],
    exchanges: Mapping[str, Sequence[Exchange]],
) -> Ladder | None:
    """x holds a and e, y the same array with b and f."""
    free = tuple(label for label in t.indices if label not in lower)
    inner = tuple(label for label in x.indices if label not in (*upper, *lower))
    if set(tree.root.indices) != {*upper, *free} or set(free) & {*upper, *inner} or not set(lower) <= set(t.indices):
        return None
    w = Node(tree.nodes[0].name, (upper[0], lower[0], upper[1], lower[1]), (x, y))
    own = Tree(Node(tree.root.name, tree.root.indices, (w, t)), tree.indices)
    ends = {x.indices.index(upper[0]), x.indices.index(lower[0])}
    even = any(e.sign == 1 and len(e.pairs) == 1 and set(e.pairs[0]) == ends for e in exchanges.get(x.name, ()))
    for exchange in exchanges.get(t.name, ()):
        order = [t.indices[axis] for axis in exchange.order(len(t.indices))]
        if all(order[t.indices.index(one)] == two for one, two in (lower, lower[::-1])):
            left = [label for label in order if label not in lower]
            turned = tuple(left.index(label) for label in free)
            return Ladder(own, upper, lower, inner, x, t, free, turned, exchange.sign, even)
    return None
