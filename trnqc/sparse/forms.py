"""Nests that are asked for by name, beside those that the solver finds: what other compilers make of a network.

tree, loops of every assignment -> what they share, workspaces, layouts -> nest

A plan is steps, each a nest of its own; unfused plans have one for each contraction, with a stored tensor between them.
Trees are nested tuples of operand numbers, contractions in post-order.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from trnqc.errors import ExpressionError
from trnqc.sparse.nest import Assignment, Format, Kind, Nest, Space, Workspace
from trnqc.sparse.network import Indices, Network

Tree = int | tuple["Tree", ...]
NAMES = ("nary", "unfused", "unfused-rows")


@dataclass(frozen=True)
class Step:
    """One nest of a plan, and where its operands come from: operands of the plan first, then results of steps."""

    nest: Nest
    operands: tuple[int, ...]


def form(name: str, network: Network, tree: Tree, full: Collection[int] = (), sparse: bool = True) -> tuple[Step, ...]:
    """The steps of a form by its name.

    nary: all operands multiplied in one nest, the result's loops outermost, so that its elements are made in order and
    none needs a workspace. unfused: one nest for each contraction of the tree, summed indices innermost (inner
    products). unfused-rows: the same with the summed indices around the innermost index of each result, whose row is
    gathered in a workspace. full: operands stored dense. sparse: whether the result is stored sparse; intermediates of
    unfused forms always are.
    """
    if name == "nary":
        return (Step(nary(network, full=full, sparse=sparse), tuple(range(len(network.inputs)))),)
    if name in NAMES:
        return unfused(network, tree, full, sparse, rows=name == "unfused-rows")
    raise ExpressionError(f"a form is one of {', '.join(NAMES)}; found {name!r}")


def nary(network: Network, loops: Indices = (), full: Collection[int] = (), sparse: bool = True) -> Nest:
    """One assignment over all operands. loops: outermost first; the result's, then the summed ones by default."""
    everything = tuple(range(len(network.inputs)))
    return fused(network, everything, [loops or network.output + network.summed], full, sparse)


def fused(
    network: Network,
    tree: Tree,
    loops: Sequence[Sequence[str]],
    full: Collection[int] = (),
    sparse: bool = True,
    space: Space = "dense",
) -> Nest:
    """Assignments of a tree's contractions with the given loops, sharing as many outermost ones as they can.

    Errors: ExpressionError where the tree does not have every operand once, or loops are not those of a contraction.
    """
    check_tree(tree, len(network.inputs))
    assignments = _assignments(tree, len(network.inputs), loops)
    bare = Nest(network, assignments, (), (), ())
    for a in assignments:
        wanted = {index for t in a.operands for index in bare.indices[t]}
        if sorted(a.loops) != sorted(wanted):
            raise ExpressionError(f"a contraction runs over {sorted(wanted)} once each; loops {a.loops} were given")
    shared = tuple(_shared(bare, k) for k in range(len(assignments) - 1))
    nest = replace(bare, shared=shared)
    rests = [_rest(nest, a.target) for a in assignments[:-1]]
    workspaces = tuple(Workspace(rest, space if rest else "dense") for rest in rests)
    return replace(nest, workspaces=workspaces, formats=_formats(nest, full, sparse)).check()


def unfused(network: Network, tree: Tree, full: Collection[int], sparse: bool, rows: bool) -> tuple[Step, ...]:
    """A step for each contraction; each result is stored in the order in which the next one reads it."""
    check_tree(tree, len(network.inputs))
    if isinstance(tree, int):
        tree = (tree,)
    steps: list[Step] = []

    def visit(node: tuple[Tree, ...], wanted: Indices, outside: set[str]) -> int:
        """The number of the tensor that a contraction makes. outside: indices that the rest of the network needs."""
        below = [_letters(network, child) for child in node]
        kept = [_needed(child, letters, below, outside, n) for n, (child, letters) in enumerate(zip(node, below))]
        summed = tuple(x for x, _ in network.sizes if x not in wanted and any(x in letters for letters in kept))
        loops = wanted[:-1] + summed + wanted[-1:] if rows else wanted + summed
        inputs = tuple(
            network.inputs[child] if isinstance(child, int) else tuple(sorted(needed, key=loops.index))
            for child, needed in zip(node, kept)
        )
        numbers = tuple(
            child if isinstance(child, int) else visit(child, labels, outside | _others(below, n))
            for n, (child, labels) in enumerate(zip(node, inputs))
        )
        sizes = tuple((x, size) for x, size in network.sizes if any(x in labels for labels in inputs))
        origins = [network.same[child] if isinstance(child, int) else ~t for child, t in zip(node, numbers)]
        part = Network(inputs, wanted, sizes, tuple(origins.index(t) for t in origins))
        dense = [n for n, child in enumerate(node) if isinstance(child, int) and child in full]
        last = node is tree
        steps.append(Step(fused(part, tuple(range(len(node))), [loops], dense, sparse or not last), numbers))
        return len(network.inputs) + len(steps) - 1

    visit(tree, network.output, set(network.output))
    return tuple(steps)


def in_order(network: Network) -> Tree:
    """Operands contracted one after the other, as they stand."""
    tree: Tree = 0
    for n in range(1, len(network.inputs)):
        tree = (tree, n)
    return tree


def check_tree(tree: Tree, operands: int) -> None:
    """Raises ExpressionError where a tree does not have every operand once."""
    found = sorted(_leaves(tree))
    if found != list(range(operands)):
        raise ExpressionError(f"a tree has each of the operands 0 .. {operands - 1} once; found {tree}")


def _leaves(tree: Tree) -> list[int]:
    return [tree] if isinstance(tree, int) else [leaf for part in tree for leaf in _leaves(part)]


def _letters(network: Network, tree: Tree) -> set[str]:
    return {index for leaf in _leaves(tree) for index in network.inputs[leaf]}


def _others(below: Sequence[set[str]], n: int) -> set[str]:
    return set().union(*(letters for m, letters in enumerate(below) if m != n))


def _needed(child: Tree, letters: set[str], below: Sequence[set[str]], outside: set[str], n: int) -> set[str]:
    """Of a child's indices those that a reader, a sibling or the result need."""
    return letters if isinstance(child, int) else letters & (outside | _others(below, n))


def _assignments(tree: Tree, operands: int, loops: Sequence[Sequence[str]]) -> tuple[Assignment, ...]:
    found: list[Assignment] = []

    def visit(node: Tree) -> int:
        if isinstance(node, int):
            return node
        numbers = tuple(visit(child) for child in node)
        if len(found) == len(loops):
            raise ExpressionError(f"the tree {tree} has more contractions than the {len(loops)} loops that were given")
        found.append(Assignment(operands + len(found), numbers, tuple(loops[len(found)])))
        return found[-1].target

    visit(tree if isinstance(tree, tuple) else (tree,))
    if len(found) != len(loops):
        raise ExpressionError(f"the tree {tree} has {len(found)} contractions; loops were given for {len(loops)}")
    return tuple(found)


def _shared(nest: Nest, k: int) -> int:
    """The most outermost loops that assignment k can share with the next: all that is held across has their indices."""
    n = len(nest.network.inputs)
    held = [nest.indices[n + m] for m in range(k + 1) if nest.reader(n + m) > k]
    depth = 0
    for mine, theirs in zip(nest.assignments[k].loops, nest.assignments[k + 1].loops):
        if mine != theirs or any(mine not in labels for labels in held):
            break
        depth += 1
    return depth


def _rest(nest: Nest, tensor: int) -> Indices:
    """Indices that a workspace keeps, in the order in which its reader runs over them."""
    reader = nest.assignments[nest.reader(tensor)].loops
    outer = reader[: nest.fused(tensor)]
    return tuple(index for index in reader if index in nest.indices[tensor] and index not in outer)


def _formats(nest: Nest, full: Collection[int], sparse: bool) -> tuple[Format, ...]:
    """All in the order of the loops that read or write them; sparse ones with a dense outermost level, as CSR."""
    network, formats = nest.network, []
    for t, labels in enumerate(network.inputs):
        loops = nest.assignments[nest.reader(t)].loops
        formats.append(Format(tuple(sorted(labels, key=loops.index)), _kinds(len(labels), t not in full)))
    loops = nest.assignments[-1].loops
    order = tuple(sorted(network.output, key=loops.index))
    return (*formats, Format(order, _kinds(len(order), sparse)))


def _kinds(levels: int, sparse: bool) -> tuple[Kind, ...]:
    rest: Kind = "compressed" if sparse else "dense"
    return tuple("dense" if level == 0 and levels > 1 else rest for level in range(levels))
