"""The fusion graph: which loops a step and the consumer of its result share.

An array that one step computes and a later step reads may be computed piece by piece inside loops that both share. The
indices of these loops are fused between the two, and the array keeps only a tile of each, or a single element. The
steps inside one loop are the scope of a fusion chain. Choices can be written as a loop nest exactly if the scopes of
any two chains are disjoint or one contains the other (C.-C. Lam, PhD thesis, Ohio State University, 1999).

An index that the producer does not have may be fused too: the array is then computed again in every turn of that loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import combinations
from math import prod

from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class ComputedArray:
    """The array that one step or one function (`source`) computes from the arrays `inputs`.

    `loops` are the labels of all loops of the step, `cost` the multiply-adds of one iteration.
    """

    name: str
    indices: tuple[str, ...]
    loops: tuple[str, ...]
    cost: int
    source: TreeNode | Leaf
    inputs: tuple[str, ...] = ()

    @property
    def summed(self) -> tuple[str, ...]:
        """Labels that the step sums over."""
        return tuple(label for label in self.loops if label not in self.indices)


def arrays_of(tree: Tree) -> tuple[ComputedArray, ...]:
    """Return all computed arrays, producers before consumers, the root last.

    A function that occurs twice is computed twice, and its second array is named f'2.
    """
    arrays: list[ComputedArray] = []
    names = {node.name for node in tree.nodes}

    def free(name: str) -> str:
        taken = names | {array.name for array in arrays}
        return next(n for n in (name, *(f"{name}'{k}" for k in range(2, len(taken) + 3))) if n not in taken)

    # Without recursion: a tree may be as deep as it has operands. `computed` has names that no consumer has read yet.
    computed: list[str] = []
    todo: list[tuple[TreeNode | Leaf, int]] = [(tree.root, -1)]
    while todo:
        item, inputs = todo.pop()
        if isinstance(item, Leaf):
            labels = union(item.indices)
            arrays.append(ComputedArray(free(item.name), labels, labels, item.cost, item))
        elif inputs < 0:
            below = [o for o in item.operands if isinstance(o, TreeNode) or o.cost]
            todo += [(item, len(below)), *((operand, -1) for operand in reversed(below))]
            continue
        else:
            read = tuple(computed[len(computed) - inputs :])
            del computed[len(computed) - inputs :]
            arrays.append(ComputedArray(item.name, item.indices, item.loops, 1, item, read))
        computed.append(arrays[-1].name)
    return tuple(arrays)


@dataclass(frozen=True)
class Chain:
    """One loop: its index, and the names of the arrays computed inside it."""

    label: str
    scope: frozenset[str]


def _as_bits(chains: Sequence[Chain]) -> list[int]:
    """Return the scopes of chains as bits, since many of them are compared."""
    number: dict[str, int] = {}
    return [sum(1 << number.setdefault(name, len(number)) for name in chain.scope) for chain in chains]


@dataclass(frozen=True)
class FusedTree:
    """A tree with the indices that are fused between each array and its consumer, and the tiles of fused loops.

    A fused loop without a tile covers one element a turn. Raises InputError if chains overlap, an index cannot be
    fused, or a loop of a repeated array ends at a step without its index.
    """

    tree: Tree
    fused: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tiles: Mapping[str, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        allowed = every_fusible(self.arrays, recompute=True)
        for name, labels in self.fused.items():
            if bad := labels - allowed[name]:
                raise InputError(f"{name} and its consumer cannot share a loop over {', '.join(sorted(bad))}")
        for array in self.arrays.values():
            inside = frozenset(array.loops) | self.fused.get(array.name, frozenset())
            for name in array.inputs:
                if stray := self.fused.get(name, frozenset()) - inside:
                    raise InputError(
                        f"{array.name} would be summed again in every turn of the loop over {', '.join(sorted(stray))} "
                        f"that it shares with {name}: the loop has to enclose the consumer of {array.name} too"
                    )
        scopes = _as_bits(self.chains)
        for (one, first), (two, second) in combinations(zip(self.chains, scopes), 2):
            if (meet := first & second) and meet not in (first, second):
                raise InputError(
                    f"no loop nest has a loop {one.label} around {', '.join(sorted(one.scope))} and "
                    f"a loop {two.label} around {', '.join(sorted(two.scope))}: one must hold the other"
                )

    @cached_property
    def arrays(self) -> Mapping[str, ComputedArray]:
        """All computed arrays by name."""
        return {array.name: array for array in arrays_of(self.tree)}

    @cached_property
    def chains(self) -> tuple[Chain, ...]:
        """The fused loops."""
        return chains_of(self.arrays.values(), self.fused)

    def labels(self, name: str) -> tuple[str, ...]:
        """Return the loops that an array shares with its consumer, outermost first."""
        return self._shared.get(name, ())

    @cached_property
    def _shared(self) -> Mapping[str, tuple[str, ...]]:
        """For each array the loops that it shares with its consumer, outermost first."""
        order = {label: number for number, label in enumerate(self.tree.indices)}
        shared: dict[str, list[str]] = {}
        for chain in sorted(self.chains, key=lambda chain: (-len(chain.scope), order[chain.label])):
            for name in chain.scope:
                if chain.label in self.fused.get(name, ()):
                    shared.setdefault(name, []).append(chain.label)
        return {name: tuple(labels) for name, labels in shared.items()}

    def tile(self, label: str) -> int:
        """Return the elements of a fused index that one turn of its loop covers."""
        return min(self.tiles.get(label, 1), self.tree.extent(label))

    def turns(self, label: str) -> int:
        """Return the number of turns of a fused loop."""
        return -(-self.tree.extent(label) // self.tile(label))

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the extents that are held of an array; a fused index keeps its tile."""
        fused = self.fused.get(name, frozenset())
        return tuple(self.tile(i) if i in fused else self.tree.extent(i) for i in self.arrays[name].indices)

    def repeated(self, name: str) -> frozenset[str]:
        """Return the loops in whose every turn the array is computed again."""
        return self.fused.get(name, frozenset()) - set(self.arrays[name].loops)

    def space(self, name: str, symbols: Mapping[str, str] | None = None) -> MonomialSum:
        """Return the size of an array in symbols.

        A tile that is neither 1 nor the whole extent is symbols[label], or `B` and the label.
        """
        fused = self.fused.get(name, frozenset())
        return MonomialSum.product(
            symbol
            for i in self.arrays[name].indices
            for symbol in (self._tile_symbol(i, symbols) if i in fused else (self.tree.indices[i].symbol,))
        )

    def time(self, name: str, symbols: Mapping[str, str] | None = None) -> MonomialSum:
        """Return the multiply-adds for an array in symbols; one element of a function costs `C`."""
        array = self.arrays[name]
        count = self.tree.count(array.loops) * (MonomialSum.symbol("C") if isinstance(array.source, Leaf) else 1)
        for label in sorted(self.repeated(name)):
            count = count * self.tree.count([label]) * MonomialSum.product(self._tile_symbol(label, symbols)) ** -1
        return count

    def _tile_symbol(self, label: str, symbols: Mapping[str, str] | None) -> tuple[str, ...]:
        if self.tile(label) == 1:
            return ()
        if self.tile(label) == self.tree.extent(label):
            return (self.tree.indices[label].symbol,)
        return ((symbols or {}).get(label, f"B{label}"),)

    @property
    def temporaries(self) -> tuple[str, ...]:
        """Names of all computed arrays but the root."""
        return tuple(self.arrays)[:-1]

    @property
    def memory(self) -> int:
        """Elements of all temporaries together."""
        return sum(prod(self.shape(name)) for name in self.temporaries)

    @property
    def work(self) -> int:
        """Multiply-adds, including the evaluation of functions and repeated work."""
        return sum(
            array.cost * self.tree.size(array.loops) * prod(self.turns(label) for label in self.repeated(name))
            for name, array in self.arrays.items()
        )

    def __str__(self) -> str:
        rows = [("array", "fused with its consumer", "held", "elements", "repeated over", "multiply-adds")]
        for name, array in self.arrays.items():
            root = name == self.tree.root.name
            held = ",".join(f"{i}:{n}" for i, n in zip(array.indices, self.shape(name)) if n > 1) or "scalar"
            work = array.cost * self.tree.size(array.loops) * prod(self.turns(i) for i in self.repeated(name))
            loops = [i for i in self.labels(name) if self.turns(i) > 1]
            again = ",".join(i for i in loops if i in self.repeated(name))
            fused = "result" if root else ",".join(loops) or "-"
            rows.append((name, fused, held, f"{prod(self.shape(name)):.4g}", again or "-", f"{work:.4g}"))
        rows.append(("total", "", "", f"{self.memory:.4g}", "", f"{self.work:.4g}"))
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join("  ".join(cell.ljust(w) for cell, w in zip(row, widths)).rstrip() for row in rows)


def sliced(tree: Tree) -> FusedTree:
    """Return the fusion of every index around all that is below the last step that has it.

    Tiles decide which of these loops remain. The scope of a chain is a whole subtree then, so this is always a loop
    nest.
    """
    arrays = {array.name: array for array in arrays_of(tree)}
    fused = every_fusible(arrays, recompute=True)
    return FusedTree(tree, {name: labels for name, labels in fused.items() if labels})


def chains_of(arrays: Iterable[ComputedArray], fused: Mapping[str, frozenset[str]]) -> tuple[Chain, ...]:
    """Return the chains: fused edges that share an index at a common array belong to one chain."""
    closed: list[Chain] = []
    rising: dict[str, dict[str, list[str]]] = {}  # array -> label -> scope below and including the array
    for array in arrays:
        upward = fused.get(array.name, frozenset())
        scopes: dict[str, list[str]] = {label: [] for label in upward}
        for name in array.inputs:
            for label, below in rising.pop(name, {}).items():
                # The longer list is continued, so that a chain of many arrays takes time in proportion to its length.
                less, more = sorted((scopes.get(label, []), below), key=len)
                more += less
                scopes[label] = more
        for scope in scopes.values():
            scope.append(array.name)
        closed += [Chain(label, frozenset(scopes[label])) for label in sorted(scopes) if label not in upward]
        rising[array.name] = {label: scopes[label] for label in upward}
    return tuple(closed)


def every_fusible(arrays: Mapping[str, ComputedArray], recompute: bool) -> dict[str, frozenset[str]]:
    """Return for each array the indices that may be fused between it and its consumer; none for the root.

    These are the indices of the array itself and, with recompute, those of later steps that do not occur below it.
    Producers come before consumers.
    """
    below: dict[str, frozenset[str]] = {}
    for name, array in arrays.items():
        below[name] = frozenset(array.loops).union(*(below[child] for child in array.inputs))
    above: dict[str, frozenset[str]] = {name: frozenset() for name in arrays}
    fused = dict.fromkeys(arrays, frozenset[str]())
    for name in reversed(list(arrays)):
        later = above[name].union(arrays[name].loops)
        for child in arrays[name].inputs:
            above[child] = later
            own = frozenset(arrays[child].indices)
            fused[child] = own | (later - below[child]) if recompute else own
    return fused
