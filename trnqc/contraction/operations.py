"""Stage 1, operation minimisation: the order of binary contractions with the least work.

    operands, output, extents -> network (bit sets) -> splits (exact or heuristic) -> Tree

Exact to EXACT operands, over all binary trees, outer products included; above that see `heuristic`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trnqc.contraction import exact, heuristic
from trnqc.contraction.expression import Index, Symmetry
from trnqc.contraction.network import Network, Splits, bits
from trnqc.contraction.tree import Leaf, Node, Tree, union
from trnqc.errors import InputError

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
    def __init__(
        self,
        network: Network,
        splits: Splits,
        leaves: Sequence[Leaf],
        output: tuple[str, ...],
        name: str,
        first: int,
    ) -> None:
        self.network, self.splits, self.leaves, self.output = network, splits, leaves, output
        self.name, self.next = name, first
        self.peaks: dict[int, int] = {}

    def root(self) -> Node:
        everything = self.network.everything
        if everything == 1:
            return Node(self.name, self.output, (self.leaves[0],))
        return Node(self.name, self.output, self._operands(everything))

    def _operands(self, part: int) -> tuple[Leaf | Node, ...]:
        left, right = self.splits[part]
        if self._later(left, right):
            left, right = right, left
        ways = min(
            (x + y + self.network.loops(a | b, part), (a, b))
            for a, x in self.network.ways(left)
            for b, y in self.network.ways(right)
        )[1]
        return tuple(self._operand(half, labels) for half, labels in zip((left, right), ways))

    def _operand(self, part: int, labels: int) -> Leaf | Node:
        if part.bit_count() > 1:
            operands = self._operands(part)
            return Node(self._next(), self._kept(part), operands)
        (number,) = bits(part)
        leaf = self.leaves[number]
        if labels == self.network.operands[number]:
            return leaf
        return Node(self._next(), self._kept(part), (leaf,))

    def _next(self) -> str:
        self.next += 1
        return f"T{self.next - 1}"

    def _kept(self, part: int) -> tuple[str, ...]:
        inside = union(*(self.leaves[k].indices for k in bits(part)))
        outside = set(self.output).union(*(self.leaves[k].indices for k in bits(self.network.everything ^ part)))
        return tuple(label for label in inside if label in outside)

    def _later(self, left: int, right: int) -> bool:
        """Whether the right operand is better made first: what it needs while made, beyond what it leaves, is more."""
        return self._excess(right) > self._excess(left)

    def _excess(self, part: int) -> int:
        return self._peak(part) - self._held(part)

    def _held(self, part: int) -> int:
        return self.network.size(self.network.kept(part)) if part.bit_count() > 1 else 0

    def _peak(self, part: int) -> int:
        """Most elements of temporaries held at once while a part is made, its result included."""
        if part.bit_count() == 1:
            return 0
        if part not in self.peaks:
            left, right = self.splits[part]
            if self._later(left, right):
                left, right = right, left
            during = self._held(left) + self._held(right) + self._held(part)
            self.peaks[part] = max(self._peak(left), self._held(left) + self._peak(right), during)
        return self.peaks[part]


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

    def make(part: int) -> None:
        if part.bit_count() == 1:
            return
        for half in splits[part]:
            make(half)
        positions = sorted(alive.index(half) for half in splits[part])
        for position in reversed(positions):
            del alive[position]
        alive.append(part)
        steps.append(tuple(positions))

    make(network.everything)
    return steps


def splits_of(steps: Path, operands: int) -> Splits:
    """The plan of a path of pairs, such as another planner's."""
    alive = [1 << k for k in range(operands)]
    splits: Splits = {}
    for step in steps:
        if len(step) == 1:
            continue
        if len(step) != 2:
            raise InputError(f"a step of a path joins two operands; found {step}")
        left, right = (alive[position] for position in step)
        for position in sorted(step, reverse=True):
            del alive[position]
        splits[left | right] = (left, right)
        alive.append(left | right)
    return splits


def _network(
    inputs: Sequence[Sequence[str]],
    output: Iterable[str],
    extents: Mapping[str, int],
    symmetries: Sequence[Sequence[Symmetry]],
) -> Network:
    if not inputs:
        raise InputError("a contraction has at least one operand; found none")
    return Network.of(inputs, output, extents, symmetries)
