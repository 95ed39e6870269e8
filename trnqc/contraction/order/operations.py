"""Stage 1, operation minimisation: the order of binary contractions with the least work.

    operands, output, extents -> network (bit sets) -> splits (exact or heuristic) -> Tree

Exact to EXACT operands, over all binary trees, outer products included; above that see `heuristic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from trnqc.contraction.order import exact, heuristic
from trnqc.contraction.order.network import Network, Splits, bits
from trnqc.contraction.tree import Node, Tree, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.symmetry import Symmetry

EXACT = 12

Path = list[tuple[int, ...]]


def minimise(
    leaves: Sequence[Leaf],
    output: Sequence[str],
    indices: Mapping[str, Index],
    name: str = "result",
    symmetries: Sequence[Sequence[Symmetry]] = (),
    first: int = 1,
) -> Tree:
    """The tree of least multiply-adds for name[output] = product of the leaves, summed over all other labels.

    symmetries: of each leaf; the search then counts loops over unique elements only. Of the two operands of a step that
    comes first whose order of evaluation holds less memory. first: number of the first temporary's name.
    """
    network = _network([leaf.indices for leaf in leaves], output, {x: i.extent for x, i in indices.items()}, symmetries)
    return build(network, best_splits(network), leaves, output, indices, name, first)


def best_splits(network: Network) -> Splits:
    """The cheapest plan that is found; empty for one operand."""
    operands = len(network.operands)
    if operands == 1:
        return {}
    network = network.without_common()
    if operands > 2 and (splits := exact.chain(network)):
        return splits
    if operands > EXACT:
        return heuristic.plan(network)
    start = heuristic.improve(network, heuristic.greedy(network, 0), subtree=5)
    bound = network.cost(start, network.everything)
    found = exact.subsets(network, [1 << k for k in range(operands)], bound)
    return found[1] if found else start


def build(
    network: Network,
    splits: Splits,
    leaves: Sequence[Leaf],
    output: Sequence[str],
    indices: Mapping[str, Index],
    name: str = "result",
    first: int = 1,
) -> Tree:
    """The tree of a plan. Temporaries are T`first` and so on, in order of evaluation."""
    builder = _Builder(network, splits, leaves, tuple(output), name, first)
    root = builder.root()
    used = {label: indices[label] for label in union(*(leaf.indices for leaf in leaves))}
    return Tree(root, used)


class _Builder:
    """Works through the parts of a plan in loops: a tree may be as deep as it has operands."""

    def __init__(
        self,
        network: Network,
        splits: Splits,
        leaves: Sequence[Leaf],
        output: tuple[str, ...],
        name: str,
        first: int,
    ) -> None:
        self.network, self.leaves, self.output = network, leaves, output
        self.name, self.next = name, first
        self.where: dict[str, int] = {}
        for k, leaf in enumerate(leaves):
            for label in leaf.indices:
                self.where[label] = self.where.get(label, 0) | 1 << k
        self.peaks = {1 << k: 0 for k in range(len(leaves))}
        self.splits = self._ordered(splits)

    def _ordered(self, splits: Splits) -> Splits:
        """Of two parts that one first which needs more while it is made, beyond what it leaves; counts `peaks`."""
        ordered: Splits = {}
        for part in sorted(splits, key=int.bit_count):
            left, right = splits[part]
            if self._excess(right) > self._excess(left):
                left, right = right, left
            ordered[part] = left, right
            during = self._held(left) + self._held(right) + self._held(part)
            self.peaks[part] = max(self.peaks[left], self._held(left) + self.peaks[right], during)
        return ordered

    def _excess(self, part: int) -> int:
        return self.peaks[part] - self._held(part)

    def _held(self, part: int) -> int:
        return self.network.size(self.network.kept(part)) if part.bit_count() > 1 else 0

    def root(self) -> Node:
        everything = self.network.everything
        if everything == 1:
            return Node(self.name, self.output, (self.leaves[0],))
        made: dict[int, Leaf | Node] = {}
        for part, labels in self._evaluated():
            if part.bit_count() == 1:
                made[part] = self._single(part, labels)
                continue
            operands = tuple(made.pop(half) for half in self.splits[part])
            if part == everything:
                return Node(self.name, self.output, operands)
            made[part] = Node(self._next(), self._kept(part), operands)
        raise AssertionError("a plan ends with all operands")

    def _evaluated(self) -> Iterator[tuple[int, int]]:
        """Parts in the order in which they are made, with the labels with which they enter their step."""
        found, todo = [], [(self.network.everything, 0)]
        while todo:
            part, labels = todo.pop()
            found.append((part, labels))
            if part.bit_count() > 1:
                todo += zip(self.splits[part], self._ways(part))
        return reversed(found)

    def _ways(self, part: int) -> tuple[int, int]:
        """The labels with which the two operands of a step enter it."""
        left, right = self.splits[part]
        return min(
            (x + y + self.network.loops(a | b, part), (a, b))
            for a, x in self.network.ways(left)
            for b, y in self.network.ways(right)
        )[1]

    def _single(self, part: int, labels: int) -> Leaf | Node:
        """One operand, summed first over what only it has where that is the way."""
        number = part.bit_length() - 1
        leaf = self.leaves[number]
        if labels == self.network.operands[number]:
            return leaf
        return Node(self._next(), self._kept(part), (leaf,))

    def _next(self) -> str:
        self.next += 1
        return f"T{self.next - 1}"

    def _kept(self, part: int) -> tuple[str, ...]:
        inside = union(*(self.leaves[k].indices for k in bits(part)))
        return tuple(label for label in inside if label in self.output or self.where[label] & ~part)


def path(
    inputs: Sequence[Iterable[str]],
    output: Iterable[str],
    size_dict: Mapping[str, int],
    memory_limit: int | None = None,
) -> Path:
    """The best order as a list of operand positions, results appended at the end.

    opt_einsum takes it: ``opt_einsum.paths.register_path_fn("trnqc", path)``, then ``optimize="trnqc"``.
    memory_limit: elements of the largest temporary; a path that exceeds it is refused, since a path alone cannot
    make a temporary smaller: `einsum` with a memory limit can.
    """
    operands = [tuple(operand) for operand in inputs]
    network = _network(operands, output, size_dict, ())
    if len(operands) == 1:
        return [(0,)]
    splits = best_splits(network)
    largest = max((network.size(network.kept(part)) for part in splits if part != network.everything), default=0)
    if memory_limit is not None and memory_limit >= 0 and largest > memory_limit:
        raise InputError(f"the largest temporary of the best path has {largest} elements; the limit is {memory_limit}")
    return _linear(splits, network)


def _linear(splits: Splits, network: Network) -> Path:
    alive = [1 << k for k in range(len(network.operands))]
    steps: Path = []
    # Parts have fewer operands than what is made of them.
    for part in sorted(splits, key=int.bit_count):
        positions = sorted(alive.index(half) for half in splits[part])
        for position in reversed(positions):
            del alive[position]
        alive.append(part)
        steps.append(tuple(positions))
    return steps


def splits_of(steps: Sequence[tuple[int, ...]], operands: int) -> Splits:
    """The plan of a path, such as another planner's. Of a step over more than two operands the first two are joined
    first."""
    alive = [1 << k for k in range(operands)]
    splits: Splits = {}
    for step in steps:
        if len(set(step)) < len(step) or not all(0 <= position < len(alive) for position in step) or not step:
            raise InputError(f"a step of a path names different ones of the {len(alive)} operands left; found {step}")
        part, *others = (alive[position] for position in step)
        for position in sorted(step, reverse=True):
            del alive[position]
        for other in others:
            splits[part | other] = (part, other)
            part |= other
        alive.append(part)
    if len(alive) > 1:
        raise InputError(f"a path joins all operands; {len(alive)} are left after {list(steps)}")
    return splits


def tree_of_path(
    steps: Sequence[tuple[int, ...]],
    leaves: Sequence[Leaf],
    output: Sequence[str],
    indices: Mapping[str, Index],
    name: str = "result",
) -> Tree:
    """The tree whose products are those of a path."""
    network = _network([leaf.indices for leaf in leaves], output, {x: i.extent for x, i in indices.items()}, ())
    return build(network, splits_of(steps, len(leaves)), leaves, output, indices, name)


def _network(
    inputs: Sequence[Sequence[str]],
    output: Iterable[str],
    extents: Mapping[str, int],
    symmetries: Sequence[Sequence[Symmetry]],
) -> Network:
    if not inputs:
        raise InputError("a contraction has at least one operand; found none")
    return Network.of(inputs, output, extents, symmetries)
