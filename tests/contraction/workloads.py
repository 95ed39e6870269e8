"""Operation trees on which the later stages are tested, and an exhaustive search of loop fusions."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise, product
from math import ceil, prod

from hypothesis import strategies as some

from trnqc.contraction.memory.fusion_graph import FusedTree, arrays_of, every_fusible
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index


def indices(**spaces: tuple[str, int]) -> dict[str, Index]:
    """indices(V=("ab", 20)): labels a and b of extent 20, counted as V."""
    return {label: Index(label, extent, symbol) for symbol, (labels, extent) in spaces.items() for label in labels}


def leaf(name: str, labels: str, operand: int, cost: int = 0) -> Leaf:
    return Leaf(name, tuple(labels), operand, cost)


def four_factors(long: int = 100, short: int = 10) -> Tree:
    """S_abij = sum A_acik B_befl C_dfjk D_cdel, first example of the synthesis paper, in its cheapest order."""
    t1 = TreeNode("T1", tuple("bcdf"), (leaf("B", "befl", 1), leaf("D", "cdel", 3)))
    t2 = TreeNode("T2", tuple("bcjk"), (t1, leaf("C", "dfjk", 2)))
    return Tree(
        TreeNode("S", tuple("abij"), (t2, leaf("A", "acik", 0))), indices(V=("abcdef", long), O=("ijkl", short))
    )


def a3a(virtual: int = 3000, occupied: int = 100, cost: int = 1000) -> Tree:
    """E = sum X_aecf Y_ceaf with X = t t and Y from integrals made on the fly: the paper's second example."""
    x = TreeNode("X", tuple("aecf"), (leaf("t", "ijae", 0), leaf("u", "ijcf", 1)))
    y = TreeNode("Y", tuple("ceaf"), (leaf("T1", "cebk", 2, cost), leaf("T2", "afbk", 3, cost)))
    return Tree(TreeNode("E", (), (x, y)), indices(V=("aecfb", virtual), O=("ijk", occupied)))


def four_index(atomic: int, occupied: int | None = None) -> Tree:
    """B_abcd = sum A_pqrs C_pa C_qb C_rc C_sd; with `occupied`, a and c run over occupied orbitals only."""
    step: Leaf | TreeNode = leaf("A", "pqrs", 0)
    labels = "pqrs"
    for k, (old, new) in enumerate(zip("pqrs", "abcd")):
        labels = labels.replace(old, new)
        step = TreeNode(("T1", "T2", "T3", "B")[k], tuple(labels), (step, leaf(f"C{new}", old + new, 1 + k)))
    assert isinstance(step, TreeNode)
    spaces = {"N": ("pqrsabcd", atomic)}
    if occupied is not None:
        spaces = {"N": ("pqrs", atomic), "O": ("ac", occupied), "V": ("bd", atomic - occupied)}
    return Tree(step, indices(**spaces))


def ladder(occupied: int = 30, virtual: int = 300, auxiliary: int = 1000) -> Tree:
    """R_abij = sum Q_ae Q_bf t_efij: the particle-particle ladder with fitted integrals."""
    w = TreeNode("W", tuple("aebf"), (leaf("B", "Qae", 0), leaf("B", "Qbf", 0)))
    return Tree(
        TreeNode("R", tuple("abij"), (w, leaf("t", "efij", 1))),
        indices(O=("ij", occupied), V=("abef", virtual), K=("Q", auxiliary)),
    )


def batched_chain(batch: int, *extents: int) -> Tree:
    """R_nam = sum A_nab B_nbc .. for each n, from the right, with the extents of a, b, .., m."""
    labels = "abcdefghijklm"[: len(extents)]
    matrices = [leaf(x.upper(), f"n{x}{y}", k) for k, (x, y) in enumerate(pairwise(labels))]
    step: Leaf | TreeNode = matrices.pop()
    for k, matrix in enumerate(reversed(matrices), 1):
        step = TreeNode(f"T{k}" if k < len(matrices) else "R", ("n", matrix.indices[1], labels[-1]), (matrix, step))
    assert isinstance(step, TreeNode)
    return Tree(step, indices(N=("n", batch)) | {x: Index(x, n, x) for x, n in zip(labels, extents)})


def small_workloads() -> dict[str, Tree]:
    """The workloads in which more than one array is made, with extents small enough to enumerate everything."""
    space = indices(O=("ijkl", 3), V=("abcdefgh", 7), K=("PQ", 12))

    def chain(name: str, out: str, *steps: tuple[str, str, str]) -> Tree:
        """steps: (labels of the next operand, name and labels of the result); the first one starts the chain."""
        node: Leaf | TreeNode = leaf("F0", steps[0][0], 0)
        for k, (operand, built, labels) in enumerate(steps[1:], 1):
            node = TreeNode(built, tuple(labels), (node, leaf(f"F{k}", operand, k)))
        assert isinstance(node, TreeNode)
        used = {label for n in Tree(node, space).nodes for label in n.loops}
        return Tree(node, {label: index for label, index in space.items() if label in used})

    return {
        "four factors": four_factors(7, 3),
        "A3A": a3a(5, 2, 10),
        "ladder": ladder(3, 5, 7),
        "quadratic ring": chain("ring", "abij", ("klcd", "", ""), ("acik", "T1", "ladi"), ("bdjl", "R", "abij")),
        "quadratic ladder": chain("l", "abij", ("klcd", "", ""), ("cdij", "T1", "klij"), ("abkl", "R", "abij")),
        "T1 dressed": chain(
            "t1",
            "abij",
            ("klcd", "", ""),
            ("ci", "T1", "klid"),
            ("dj", "T2", "klij"),
            ("ak", "T3", "alij"),
            ("bl", "R", "abij"),
        ),
        "MP2 energy": chain("mp2", "", ("Pia", "", ""), ("Pjb", "T1", "iajb"), ("iajb", "R", "")),
        "four index": four_index(4),
        "four index ovov": four_index(5, 2),
    }


def exhaustive_front(tree: Tree, recompute: bool, tiles: dict[str, int] | None = None) -> list[tuple[int, int]]:
    """The best (memory, work) over every choice of fused indices, by the definition and by nothing of the search."""
    points = sorted({(memory, work) for _, memory, work in all_fusions(tree, recompute, tiles or {})})
    best: list[tuple[int, int]] = []
    for memory, work in points:
        if not best or work < best[-1][1]:
            best.append((memory, work))
    return best


def all_fusions(
    tree: Tree, recompute: bool, tiles: dict[str, int]
) -> Iterator[tuple[dict[str, frozenset[str]], int, int]]:
    """(choice, memory, work) of every choice that can be written as a loop nest."""
    arrays = {array.name: array for array in arrays_of(tree)}
    consumer = {child: array.name for array in arrays.values() for child in array.inputs}
    names = list(consumer)
    fusible = every_fusible(arrays, recompute)
    options = [list(subsets(fusible[name])) for name in names]
    for sets in product(*options):
        fused = dict(zip(names, sets))
        scopes = [scope for label in tree.indices for scope in loop_scopes(label, fused, consumer)]
        if any(s & t and not s <= t and not t <= s for s, t in combinations(scopes, 2)):
            continue
        memory = work = 0
        for name, array in arrays.items():
            labels = fused.get(name, frozenset())
            again = prod(ceil(tree.extent(i) / min(tree.extent(i), tiles.get(i, 1))) for i in labels - set(array.loops))
            work += array.cost * prod(map(tree.extent, array.loops)) * again
            if name in consumer:
                memory += prod(
                    min(tiles.get(i, 1), tree.extent(i)) if i in labels else tree.extent(i) for i in array.indices
                )
        yield fused, memory, work


def loop_scopes(label: str, fused: dict[str, frozenset[str]], consumer: dict[str, str]) -> list[set[str]]:
    """Connected components of the edges that fuse the label."""
    components: list[set[str]] = []
    for name, labels in fused.items():
        if label in labels:
            edge = {name, consumer[name]}
            touching = [c for c in components if c & edge]
            components = [c for c in components if not c & edge] + [edge.union(*touching)]
    return components


def subsets(labels: frozenset[str]) -> Iterator[frozenset[str]]:
    ordered = sorted(labels)
    return (frozenset(part) for size in range(len(ordered) + 1) for part in combinations(ordered, size))


@some.composite
def trees(draw: some.DrawFn, most: int = 4, labels: str = "abcdef", functions: bool = False) -> Tree:
    """Random trees of 2 .. `most` operands with one to three indices each; extents are awkward and unequal."""
    count = draw(some.integers(2, most))
    operands = [draw(some.lists(some.sampled_from(labels), min_size=1, max_size=3, unique=True)) for _ in range(count)]
    extents = draw(some.lists(some.integers(1, 7), min_size=len(labels), max_size=len(labels)))
    seen = sorted({label for operand in operands for label in operand})
    result = draw(some.lists(some.sampled_from(seen), max_size=3, unique=True))
    items: list[Leaf | TreeNode] = [
        leaf(f"F{k}", "".join(labels), k, draw(some.sampled_from([0, 0, 5])) if functions else 0)
        for k, labels in enumerate(operands)
    ]
    while len(items) > 1:
        one = items.pop(draw(some.integers(0, len(items) - 1)))
        two = items.pop(draw(some.integers(0, len(items) - 1)))
        needed = set(result).union(*(item.indices for item in items))
        kept = [label for label in dict.fromkeys((*one.indices, *two.indices)) if label in needed]
        items.append(TreeNode(f"T{len(items)}", tuple(kept if items else result), (one, two)))
    (root,) = items
    assert isinstance(root, TreeNode)
    return Tree(root, {label: Index(label, extent, label.upper()) for label, extent in zip(labels, extents)})


def held(fusion: FusedTree) -> dict[str, str]:
    """Array -> the indices of which more than one element is held."""
    return {
        name: "".join(i for i, n in zip(fusion.arrays[name].indices, fusion.shape(name)) if n > 1)
        for name in fusion.temporaries
    }
