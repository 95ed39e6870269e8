"""Paths, which are opt_einsum's form of an order of contractions: our orders as paths, and trees of other paths.

A path is a list of steps. Each step names positions in the current list of operands; these are removed, and their
product is appended.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from trnqc.contraction.order.network import LabelNetwork, Splits
from trnqc.contraction.order.operations import best_splits, build, network_of
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index

# The positions of each step.
Path = list[tuple[int, ...]]


def path(
    inputs: Sequence[Iterable[str]],
    output: Iterable[str],
    size_dict: Mapping[str, int],
    memory_limit: int | None = None,
) -> Path:
    """Return the best order as a list of operand positions; results are appended at the end.

    This is a path function of opt_einsum: ``opt_einsum.paths.register_path_fn("trnqc", path)``, then
    ``optimize="trnqc"``.

    Parameters
    ----------
    inputs, output, size_dict
        Labels of each operand, labels of the result, label -> extent.
    memory_limit : int, optional
        Elements of the largest temporary.

    Raises
    ------
    InputError
        If the path exceeds the limit. A path cannot make a temporary smaller; `einsum` with a memory limit can.
    """
    operands = [tuple(operand) for operand in inputs]
    network = network_of(operands, output, size_dict, ())
    if len(operands) == 1:
        return [(0,)]
    splits = best_splits(network)
    largest = max((network.size(network.kept(part)) for part in splits if part != network.everything), default=0)
    if memory_limit is not None and memory_limit >= 0 and largest > memory_limit:
        raise InputError(f"the largest temporary of the best path has {largest} elements; the limit is {memory_limit}")
    return _linear(splits, network)


def _linear(splits: Splits, network: LabelNetwork) -> Path:
    """Return an order as a path."""
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
    """Return the order of a path, whose steps multiply more than two operands from left to right.

    Raises InputError if a step names an operand twice or one that does not exist, or if several operands are left.
    """
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
    """Return the tree whose products are those of a path."""
    extents = {label: index.extent for label, index in indices.items()}
    network = network_of([leaf.indices for leaf in leaves], output, extents, ())
    return build(network, splits_of(steps, len(leaves)), leaves, output, indices, name)
