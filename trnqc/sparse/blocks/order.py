"""The order of pairwise products with the least work that the stored blocks need, and then the least memory."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from trnqc.sparse.blocks.pair import BlockPair, Labelled
from trnqc.sparse.blocks.pattern import BlockPattern
from trnqc.sparse.network.network import Indices
from trnqc.sparse.network.tree import Tree

# Number of connected operands up to which all orders without outer products are compared: 3^7 / 2 products of patterns
# take a quarter of a second. More operands are joined two at a time.
EXACT = 7


def block_tree(operands: Sequence[Labelled], output: Indices) -> Tree:
    """Return the order of the pairwise products of operands that share no index with the result or another operand.

    Operands that are connected by indices are multiplied first, and outer products of what they give come last.
    """
    search = _Search(operands, output)
    parts = [search.exact(part) if len(part) <= EXACT else search.greedy(part) for part in search.components()]
    parts.sort(key=lambda part: search.pattern(part[0]).size)
    tree = parts[0][1]
    for _, other in parts[1:]:
        tree = (tree, other)
    return tree


class _Search:
    """Patterns and labels of the products of sets of operands, each found once: they do not depend on the order."""

    def __init__(self, operands: Sequence[Labelled], output: Indices) -> None:
        self.operands, self.output = operands, output
        self.parts: dict[frozenset[int], Labelled] = {frozenset([t]): x for t, x in enumerate(operands)}

    def pattern(self, part: frozenset[int]) -> BlockPattern:
        return self.parts[part][1]

    def kept(self, part: frozenset[int], labels: Sequence[str]) -> Indices:
        """Return the labels that the result or an operand outside of the part has."""
        outside = {x for t, (own, _) in enumerate(self.operands) if t not in part for x in own}
        return tuple(x for x in labels if x in outside or x in self.output)

    def pair(self, left: frozenset[int], right: frozenset[int]) -> BlockPair:
        a, b = self.parts[left], self.parts[right]
        labels = (*a[0], *(x for x in b[0] if x not in a[0]))
        return BlockPair(a, b, self.kept(left | right, labels))

    def connected(self, left: frozenset[int], right: frozenset[int]) -> bool:
        return not set(self.parts[left][0]).isdisjoint(self.parts[right][0])

    def components(self) -> list[list[int]]:
        """Return the operands that are connected by indices, directly or through others."""
        left, found = list(range(len(self.operands))), []
        while left:
            part, grown = [left.pop(0)], True
            while grown:
                labels = {x for t in part for x in self.operands[t][0]}
                new = [t for t in left if labels & set(self.operands[t][0])]
                part, left, grown = part + new, [t for t in left if t not in new], bool(new)
            found.append(sorted(part))
        return found

    def exact(self, operands: Sequence[int]) -> tuple[frozenset[int], Tree]:
        """Return the cheapest order, over all splits of all connected sets into two connected ones."""
        best: dict[frozenset[int], tuple[int, int, Tree]] = {frozenset([t]): (0, 0, t) for t in operands}
        for count in range(2, len(operands) + 1):
            for chosen in combinations(operands, count):
                whole, first = frozenset(chosen), chosen[0]
                ways = []
                for size in range(count - 1):
                    for others in combinations(chosen[1:], size):
                        left = frozenset((first, *others))
                        right = whole - left
                        if left in best and right in best and self.connected(left, right):
                            (work, held, tree), (work2, held2, tree2) = best[left], best[right]
                            pair = self.pair(left, right)
                            ways.append((work + work2 + pair.flops, held + held2, (tree, tree2), pair))
                if ways:
                    work, held, tree, pair = min(ways, key=lambda way: way[:2])
                    self.parts[whole] = pair.output, pair.result
                    best[whole] = work, held + pair.result.size, tree
        whole = frozenset(operands)
        return whole, best[whole][2]

    def greedy(self, operands: Sequence[int]) -> tuple[frozenset[int], Tree]:
        """Return an order that joins at each step the two parts whose product saves the most memory."""
        parts: dict[frozenset[int], Tree] = {frozenset([t]): t for t in operands}
        known: dict[frozenset[int], tuple[int, int]] = {}
        while len(parts) > 1:
            ways = []
            for left, right in combinations(parts, 2):
                if self.connected(left, right):
                    if left | right not in known:
                        pair = self.pair(left, right)
                        self.parts[left | right] = pair.output, pair.result
                        freed = self.pattern(left).size + self.pattern(right).size
                        known[left | right] = pair.result.size - freed, pair.flops
                    ways.append((known[left | right], left, right))
            _, left, right = min(ways, key=lambda way: way[0])
            parts[left | right] = parts.pop(left), parts.pop(right)
        return next(iter(parts.items()))
