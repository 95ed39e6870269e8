"""A tree of operands as data: labels that are kept, bonds between neighbours, and what may be said of its sides."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from trnqc.contraction.order.network import LabelNetwork, bits


@dataclass(frozen=True)
class BondTree:
    """Parts of a network without rings.

    `kept` has the elements of the kept labels of each part, `bonds` for each part its neighbours with the extents of
    the labels that the two share and sum over.
    """

    kept: dict[int, int]
    bonds: dict[int, dict[int, int]]

    def size(self, part: int) -> int:
        """Return the elements of a part."""
        return self.kept[part] * prod(self.bonds[part].values())

    def step(self, one: int, two: int) -> int:
        """Return the multiply-adds of joining two neighbours."""
        return self.size(one) * self.size(two) // self.bonds[one][two]

    def joined(self, leaf: int, part: int) -> BondTree:
        """Return the tree in which a leaf is joined to its neighbour."""
        new = leaf | part
        kept = {p: n for p, n in self.kept.items() if p not in (leaf, part)}
        kept[new] = self.kept[leaf] * self.kept[part]
        bonds = {p: near for p, near in self.bonds.items() if p not in (leaf, part)}
        bonds[new] = {p: bond for p, bond in self.bonds[part].items() if p != leaf}
        for p in bonds[new]:
            bonds[p] = {new if q == part else q: bond for q, bond in bonds[p].items()}
        return BondTree(kept, bonds)

    def side(self, part: int, other: int) -> BondTree:
        """Return the side of `part` of the tree without the bond to `other`, whose labels that side then keeps."""
        parts, todo = {part}, [(part, other)]
        while todo:
            v, back = todo.pop()
            for p in self.bonds[v]:
                if p != back:
                    parts.add(p)
                    todo.append((p, v))
        kept = {p: self.kept[p] for p in parts}
        kept[part] *= self.bonds[part][other]
        bonds = {p: self.bonds[p] for p in parts}
        bonds[part] = {p: bond for p, bond in self.bonds[part].items() if p != other}
        return BondTree(kept, bonds)

    def outwards(self, root: int = 0) -> list[tuple[int, int]]:
        """Return (part, parent) of all parts but the root, parents first; the root is the first part if not given."""
        order = [(root or next(iter(self.kept)), 0)]
        for part, parent in order:
            order += [(p, part) for p in self.bonds[part] if p != parent]
        return order[1:]


def bond_tree(network: LabelNetwork, least: int) -> BondTree | None:
    """Return the operands as a tree; None for another network (see `bonds_in_pairs`).

    Neither is a network a tree here in which an operand has labels that only it sums over.
    """
    near, n = network.neighbours, len(network.operands)
    if sum(others.bit_count() for others in near) != 2 * n - 2 or len(network.components()) > 1:
        return None
    if not bonds_in_pairs(network, least) or any(len(ways) > 1 for ways in network.bare):
        return None
    sets = network.operands
    bonds = {1 << k: {1 << j: network.size(sets[k] & sets[j]) for j in bits(near[k])} for k in range(n)}
    return BondTree({1 << k: network.size(labels & network.output) for k, labels in enumerate(sets)}, bonds)


def bonds_in_pairs(network: LabelNetwork, least: int) -> bool:
    """Return whether each label is in one operand, or in two that sum over it; its extent is then `least` or more."""
    return not network.exchanges and all(
        holder.bit_count() < 2
        or (holder.bit_count() == 2 and not network.output >> label & 1 and network.extents[label] >= least)
        for label, holder in enumerate(network.holders)
    )


# By directed bond (v, w): a number for the side of w.
BySide = dict[tuple[int, int], int]


def extremes(tree: BondTree) -> tuple[BySide, BySide]:
    """Return the fewest and the most elements, without the bond, of a connected part with w on the side of w."""
    fewest: BySide = {}
    most: BySide = {}
    least, greatest = dict(tree.kept), dict(tree.kept)
    outwards = tree.outwards()
    for part, parent in reversed(outwards):
        bond = tree.bonds[part][parent]
        fewest[parent, part], most[parent, part] = least[part], greatest[part]
        least[parent] *= min(bond, least[part])
        greatest[parent] *= max(bond, greatest[part])
    for part, parent in outwards:
        # What the parent has without this branch; then the part takes up the parent as a branch of its own.
        bond = tree.bonds[part][parent]
        fewest[part, parent] = least[parent] // min(bond, fewest[parent, part])
        most[part, parent] = greatest[parent] // max(bond, most[parent, part])
        least[part] *= min(bond, fewest[part, parent])
        greatest[part] *= max(bond, most[part, parent])
    return fewest, most


def bound(tree: BondTree) -> int:
    """Return multiply-adds that every order of a tree takes.

    The last step reads at most one of three or more operands. Any other step takes at least as many multiply-adds as
    one of its operands has elements.
    """
    if len(tree.kept) == 1:
        return 0
    last = prod(tree.kept.values()) * min(bond for near in tree.bonds.values() for bond in near.values())
    if len(tree.kept) == 2:
        return last
    *others, second, _ = sorted(map(tree.size, tree.kept))
    return last + max(second, (sum(others) + second) // 2)


def last_steps(tree: BondTree) -> Iterator[tuple[int, int, int, int]]:
    """Yield (multiply-adds that orders with this last step take at least, its own, one part, the other) by bond."""
    # The elements of the labels that a side keeps, and its least bond, which is none for one part.
    kept: BySide = {}
    least: BySide = {}

    def fill(v: int, w: int) -> None:
        elements, narrow = tree.kept[w], 0
        for p, bond in tree.bonds[w].items():
            if p != v:
                elements *= kept[w, p]
                narrow = min(x for x in (narrow, bond, least[w, p]) if x)
        kept[v, w], least[v, w] = elements, narrow

    outwards = tree.outwards()
    for part, parent in reversed(outwards):
        fill(parent, part)
    for part, parent in outwards:
        fill(part, parent)
        bond = tree.bonds[part][parent]
        step = kept[part, parent] * kept[parent, part] * bond
        sides = sum(kept[edge] * bond * least[edge] for edge in ((part, parent), (parent, part)))
        yield step + sides, step, part, parent
