"""The particle-particle ladder R[a,b,z] = sum(e,f) W[a,b,e,f] t[e,f,z], recognised in an operation tree.

The integrals W[a,b,e,f] = sum(q) x[q,a,e] x[q,b,f] are unchanged if a with b and e with f are exchanged, and are never
stored whole. If t keeps its elements, or changes their sign, when e and f are exchanged (together with pairs of the
labels z, or alone), the contraction separates into an even (+) and an odd (-) half:

    W±[ab,ef] = W[a,b,e,f] ± W[a,b,f,e]     t±[ef,z] = t[e,f,z] ± t[f,e,z]     2 R±[ab,z] = sum(ef) W± t±
    R[a,b,z] = R+ + R-                      R[b,a,z] = R+ - R-                 over a >= b, e >= f, one z of each pair

This takes a quarter of the multiply-adds with t, and half of those that form W. If also x[q,a,e] = x[q,e,a], then W has
the symmetry of real integrals, and forming it takes an eighth: each tile of W is formed once and used in all products
in which it occurs.

W may also be an operand itself, an array or a function, with the same exchange. Its tiles are then read, not formed.

    tree, exchanges ─ ladder_of ─► Ladder ─ ladder_loops ─► LadderLoops, its tiles ─ run_ladder ─► R
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.symmetry import Exchange

# Signs of the even and the odd half.
HALVES = (1, -1)


@dataclass(frozen=True)
class Ladder:
    """The labels of a tree by their roles in the equations of this module: upper (a, b), lower (e, f), inner q, free z.

    The tree has two steps, W from x and x, then R from W and t, or only the second if x is W, with all of a, b, e and
    f. The exchange of t takes axis `turned`[i] of z to position i and multiplies t with `sign`, 1 or -1. `even` says
    that x[q,a,e] = x[q,e,a].
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
    def given(self) -> bool:
        """Whether x is W itself."""
        return set(self.lower) <= set(self.x.indices)

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Extents of a, of e, of q and of z."""
        size = self.tree.size
        return size(self.upper[:1]), size(self.lower[:1]), size(self.inner), size(self.free)

    def columns(self, half: int) -> int:
        """Return the number of elements over z that are independent in one half (1 or -1)."""
        moved = [k for k, axis in enumerate(self.turned) if axis > k]
        alike = prod(self.tree.extent(label) for k, label in enumerate(self.free) if k not in moved)
        return (self.extents[3] + half * self.sign * alike) // 2


def pairs(extent: int, half: int) -> int:
    """Return the number of pairs a >= b (half 1) or a > b (half -1)."""
    return extent * (extent + half) // 2


def may_be_ladder(tree: Tree) -> bool:
    """Return whether one array occurs twice among three, or one of two has four labels and sums over two of them."""
    leaves = tree.leaves
    if len(leaves) != 2:
        return len(leaves) == 3 and len({x.name for x in leaves}) < 3
    summed = set(leaves[0].indices) & set(leaves[1].indices) - set(tree.root.indices)
    return len(summed) == 2 and any(len(set(x.indices)) == 4 for x in leaves)


def ladder_of(tree: Tree, exchanges: Mapping[str, Sequence[Exchange]]) -> Ladder | None:
    """Return the ladder that a tree computes, or None if it is not a ladder.

    The order of the products in the tree does not matter, because the ladder has its own. `exchanges` has the declared
    exchanges of axes by name of leaf.
    """
    leaves = tree.leaves
    if len(leaves) == 2:
        return _given(tree, *leaves, exchanges) or _given(tree, *leaves[::-1], exchanges)
    if len(leaves) != 3 or any(x.cost or x.reciprocal or len(set(x.indices)) < len(x.indices) for x in leaves):
        return None
    for k, t in enumerate(leaves):
        one, two = leaves[:k] + leaves[k + 1 :]
        for labels in _orders(two, exchanges.get(two.name, ())) if one.name == two.name else ():
            roles = _labels(one.indices, labels, tree.root.indices)
            if roles and (ladder := _with(tree, one, two, t, *roles, exchanges)):
                return ladder
    return None


def _given(tree: Tree, w: Leaf, t: Leaf, exchanges: Mapping[str, Sequence[Exchange]]) -> Ladder | None:
    """Return the ladder of two operands, W and t, if W is unchanged by the exchange of a with b and of e with f."""
    upper = tuple(label for label in w.indices if label in tree.root.indices)
    lower = tuple(label for label in w.indices if label not in tree.root.indices)
    if t.cost or any(x.reciprocal or len(set(x.indices)) < len(x.indices) for x in (w, t)):
        return None
    if len(upper) != 2 or len(lower) != 2 or set(t.indices) & set(w.indices) != set(lower):
        return None
    exchanged = dict(zip((*upper, *lower), (*upper[::-1], *lower[::-1])))
    turned = tuple(exchanged[label] for label in w.indices)
    known = exchanges.get(w.name, ())
    if not any(e.sign == 1 and tuple(w.indices[axis] for axis in e.order(4)) == turned for e in known):
        return None
    own = Tree(TreeNode(tree.root.name, tree.root.indices, (w, t)), tree.indices)
    return _of_amplitudes(own, w, t, (upper[0], upper[1]), (lower[0], lower[1]), (), False, exchanges)


def _orders(x: Leaf, exchanges: Sequence[Exchange]) -> Iterator[tuple[str, ...]]:
    """Yield the labels of x, and their permutations by exchanges with sign 1."""
    yield x.indices
    for exchange in exchanges:
        if exchange.sign == 1:
            yield tuple(x.indices[axis] for axis in exchange.order(len(x.indices)))


def _labels(
    one: tuple[str, ...], two: tuple[str, ...], output: tuple[str, ...]
) -> tuple[tuple[str, str], tuple[str, str]] | None:
    """Return ((a, b), (e, f)) where x has the labels a and e, and its second occurrence b and f."""
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
    """Return the ladder with a and e on x, b and f on y, the same array, if the exchanges of t allow one."""
    free = tuple(label for label in t.indices if label not in lower)
    inner = tuple(label for label in x.indices if label not in (*upper, *lower))
    if set(tree.root.indices) != {*upper, *free} or set(free) & {*upper, *inner} or not set(lower) <= set(t.indices):
        return None
    w = TreeNode(tree.nodes[0].name, (upper[0], lower[0], upper[1], lower[1]), (x, y))
    own = Tree(TreeNode(tree.root.name, tree.root.indices, (w, t)), tree.indices)
    ends = {x.indices.index(upper[0]), x.indices.index(lower[0])}
    even = any(e.sign == 1 and len(e.pairs) == 1 and set(e.pairs[0]) == ends for e in exchanges.get(x.name, ()))
    return _of_amplitudes(own, x, t, upper, lower, inner, even, exchanges)


def _of_amplitudes(
    tree: Tree,
    x: Leaf,
    t: Leaf,
    upper: tuple[str, str],
    lower: tuple[str, str],
    inner: tuple[str, ...],
    even: bool,
    exchanges: Mapping[str, Sequence[Exchange]],
) -> Ladder | None:
    """Return the ladder if t keeps its elements, or changes their sign, when e and f are exchanged."""
    free = tuple(label for label in t.indices if label not in lower)
    if set(tree.root.indices) != {*upper, *free}:
        return None
    for exchange in exchanges.get(t.name, ()):
        order = [t.indices[axis] for axis in exchange.order(len(t.indices))]
        if all(order[t.indices.index(one)] == two for one, two in (lower, lower[::-1])):
            left = [label for label in order if label not in lower]
            turned = tuple(left.index(label) for label in free)
            return Ladder(tree, upper, lower, inner, x, t, free, turned, exchange.sign, even)
    return None
