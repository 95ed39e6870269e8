"""Nests with a name: the forms in which other compilers run a network, for comparison with the solver's nests.

tree, loops of every assignment -> shared loops, workspaces, formats -> nest

A plan consists of steps, each with a nest of its own. Unfused plans have one step for each contraction, with a stored
tensor between them.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from trnqc.errors import ExpressionError
from trnqc.sparse.network.nest import Assignment, Format, Kind, Nest, Space, Workspace
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.network.tree import Contraction, Tree, contractions
from trnqc.sparse.search.formats import shared_loops

NAMES = ("nary", "unfused", "unfused-rows")
# Largest extent for which the outermost level of a sparse tensor is dense, as in CSR, and empty rows take space.
LARGEST = 2**22


@dataclass(frozen=True)
class NestStep:
    """One nest of a plan, and the numbers of its operands: operands of the plan first, then the results of steps."""

    nest: Nest
    operands: tuple[int, ...]


def form(
    name: str, network: Network, tree: Tree, full: Collection[int] = (), sparse: bool = True
) -> tuple[NestStep, ...]:
    """Return the steps of a form, with operands `full` stored dense; intermediates of unfused forms are always sparse.

    ``"nary"``: one nest over all indices, those of the result outermost, so that elements are computed in order and no
    workspace is needed. ``"unfused"``: one nest for each contraction of the tree, summed indices innermost (inner
    products). ``"unfused-rows"``: the same with the summed indices around the innermost index of each result, whose row
    is summed in a workspace. Raises ExpressionError for another name.
    """
    if name == "nary":
        return (NestStep(nary(network, full=full, sparse=sparse), tuple(range(len(network.inputs)))),)
    if name in NAMES:
        return unfused(network, tree, full, sparse, rows=name == "unfused-rows")
    raise ExpressionError(f"a form is one of {', '.join(NAMES)}; found {name!r}")


def nary(network: Network, loops: Indices = (), full: Collection[int] = (), sparse: bool = True) -> Nest:
    """Return the nest of one assignment over all operands, of which those in `full` are stored dense.

    The loops, outermost first, are by default those of the indices of the result, then of the summed indices.
    """
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
    """Return a nest of the contractions of a tree, which share as many outermost loops as possible.

    Parameters
    ----------
    network, tree
        The product, and the order of its contractions.
    loops
        The loops of each contraction, outermost first.
    full
        Operands that are stored dense.
    sparse
        Whether the result is stored sparse.
    space
        The kind of all workspaces that have indices.

    Raises
    ------
    ExpressionError
        If the tree does not contain every operand once, or loops are not those of its contractions.
    """
    nodes, n = contractions(network, tree), len(network.inputs)
    if len(nodes) != len(loops):
        raise ExpressionError(f"the tree {tree} has {len(nodes)} contractions; found loops for {len(loops)}")
    for node, chosen in zip(nodes, loops):
        if sorted(chosen) != sorted(node.loops):
            raise ExpressionError(f"a contraction runs over {node.loops} once each; found loops {chosen}")
    assignments = tuple(Assignment(n + k, node.operands, tuple(loops[k])) for k, node in enumerate(nodes))
    bare = Nest(network, assignments, (), (), ())
    shared = tuple(shared_loops(bare, k) for k in range(len(assignments) - 1))
    nest = replace(bare, shared=shared)
    rests = [_rest(nest, a.target) for a in assignments[:-1]]
    workspaces = tuple(Workspace(rest, space if rest else "dense") for rest in rests)
    return replace(nest, workspaces=workspaces, formats=formats(nest, full, sparse)).check()


def unfused(network: Network, tree: Tree, full: Collection[int], sparse: bool, rows: bool) -> tuple[NestStep, ...]:
    """Return one step for each contraction, whose result is stored in the order in which the next step reads it.

    With `rows`, the summed loops are around the innermost index of the result (``"unfused-rows"``); see `form`.
    """
    nodes, n = contractions(network, tree), len(network.inputs)
    orders, loops = [node.kept for node in nodes], [node.loops for node in nodes]
    orders[-1] = network.output
    for k in reversed(range(len(nodes))):
        order, summed = orders[k], tuple(x for x in nodes[k].loops if x not in orders[k])
        loops[k] = order[:-1] + summed + order[-1:] if rows else order + summed
        for t in nodes[k].operands:
            if t >= n:
                orders[t - n] = tuple(sorted(orders[t - n], key=loops[k].index))
    labels = (*network.inputs, *orders)
    steps = []
    for k, node in enumerate(nodes):
        part = _part(network, node, labels, orders[k])
        dense = [place for place, t in enumerate(node.operands) if t in full]
        whole = tuple(range(len(node.operands)))
        steps.append(NestStep(fused(part, whole, [loops[k]], dense, sparse or k < len(nodes) - 1), node.operands))
    return tuple(steps)


def _part(network: Network, node: Contraction, labels: Sequence[Indices], output: Indices) -> Network:
    """Return the network of one contraction. labels: indices of every tensor by number."""
    sizes = tuple((x, size) for x, size in network.sizes if x in node.loops)
    origins = [network.same[t] if t < len(network.inputs) else t for t in node.operands]
    return Network(tuple(labels[t] for t in node.operands), output, sizes, tuple(map(origins.index, origins)))


def in_order(network: Network) -> Tree:
    """Return the tree that contracts the operands one after the other."""
    tree: Tree = 0
    for n in range(1, len(network.inputs)):
        tree = (tree, n)
    return tree


def _rest(nest: Nest, tensor: int) -> Indices:
    """Return the indices of a workspace, in the order in which its reader runs over them."""
    reader = nest.assignments[nest.reader(tensor)].loops
    outer = reader[: nest.fused(tensor)]
    return tuple(index for index in reader if index in nest.indices[tensor] and index not in outer)


def formats(nest: Nest, full: Collection[int], sparse: bool) -> tuple[Format, ...]:
    """Return formats with levels in the order of the loops; the outermost level of a sparse tensor is dense (CSR).

    full: operands that are stored dense. sparse: whether the result is stored sparse.
    """
    network, formats = nest.network, []
    for t, labels in enumerate(network.inputs):
        loops = nest.assignments[nest.reader(t)].loops
        order = tuple(sorted(labels, key=loops.index))
        formats.append(Format(order, _kinds(network, order, t not in full)))
    loops = nest.assignments[-1].loops
    order = tuple(sorted(network.output, key=loops.index)) if sparse else network.output
    return (*formats, Format(order, _kinds(network, order, sparse)))


def _kinds(network: Network, order: Indices, sparse: bool) -> tuple[Kind, ...]:
    kinds: list[Kind] = ["compressed" if sparse else "dense"] * len(order)
    if len(order) > 1 and network.extents[order[0]] <= LARGEST:
        kinds[0] = "dense"
    return tuple(kinds)
