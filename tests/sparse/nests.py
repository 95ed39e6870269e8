"""Nests of all kinds, drawn, with operands for them; a kernel that the interpreter runs instead of C."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
from hypothesis import strategies as some

from trnqc.gen import statements as st
from trnqc.gen.interpreter import run
from trnqc.jit import Signature
from trnqc.sparse.lower.program import nest_program
from trnqc.sparse.network.nest import Format, Nest, Workspace
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.network.tree import contractions, trees
from trnqc.sparse.run.kernel import NestKernel
from trnqc.sparse.search.named_nests import fused
from trnqc.sparse.tensors.storage import SparseTensor, from_dense

KINDS = ("dense", "compressed")
SPACES = ("dense", "listed", "hashed")


@some.composite
def networks(draw: some.DrawFn) -> Network:
    """One to four operands of up to three indices, of up to five in all."""
    letters = some.sampled_from("abcde"[: draw(some.integers(1, 5))])
    labels = some.lists(letters, unique=True, max_size=3).map(tuple)
    inputs = draw(some.lists(labels, min_size=1, max_size=4))
    used = tuple(dict.fromkeys(index for indices in inputs for index in indices))
    output = draw(some.lists(some.sampled_from(used), unique=True, max_size=3)) if used else []
    sizes = tuple((index, draw(some.sampled_from((1, 2, 3, 5, 11)))) for index in used)
    return Network(tuple(inputs), tuple(output), sizes, tuple(range(len(inputs))))


@some.composite
def nests(draw: some.DrawFn) -> Nest:
    """Any tree, any loops, any formats; what can be shared is, or a part of it."""
    network = draw(networks())
    tree = draw(some.sampled_from(trees(len(network.inputs), widest=3)))
    outer = draw(some.permutations([index for index, _ in network.sizes]))
    loops = []
    for node in contractions(network, tree):
        alike = draw(some.booleans())
        loops.append(sorted(node.loops, key=outer.index) if alike else draw(some.permutations(node.loops)))
    nest = fused(network, tree, loops)
    formats = tuple(draw(layouts(f.order)) for f in nest.formats[:-1])
    result = replace(draw(layouts(nest.formats[-1].order)), ones=False)
    spaces = tuple(
        Workspace(tuple(draw(some.permutations(w.order))), draw(some.sampled_from(SPACES))) for w in nest.workspaces
    )
    return replace(nest, formats=(*formats, result), workspaces=spaces).check()


@some.composite
def layouts(draw: some.DrawFn, labels: Indices) -> Format:
    order = tuple(draw(some.permutations(labels)))
    kinds = tuple(draw(some.sampled_from(KINDS)) for _ in order)
    return Format(order, kinds, ones="dense" not in kinds[-1:] and draw(some.booleans()) and bool(order))


def arrays(nest: Nest, seed: int, fill: float) -> list[np.ndarray]:
    """Dense operands with about this part of elements not zero, which are 1 for a map."""
    draw = np.random.default_rng(seed)
    arrays = []
    for labels, f in zip(nest.network.inputs, nest.formats):
        shape = nest.network.shape(labels)
        values = np.ones(shape) if f.ones else draw.uniform(0.5, 2.0, shape) * draw.choice((-1, 1), shape)
        arrays.append(values * (draw.random(shape) < fill))
    return arrays


def packed(nest: Nest, dense: Sequence[np.ndarray]) -> list[SparseTensor]:
    return [
        from_dense(array.astype(bool) if f.ones else array, [labels.index(x) for x in f.order], f.kinds)
        for labels, f, array in zip(nest.network.inputs, nest.formats, dense)
    ]


class _Interpreted:
    """A function in place of a compiled one. The interpreter stops at every index outside an array."""

    def __init__(self, function: st.Function) -> None:
        self.function, self.signature = function, Signature.of(function)

    def __call__(self, groups_begin: int = 0, groups_end: int = 1, **arguments: object) -> None:
        assert (*arguments, "groups_begin", "groups_end")[: len(self.signature.names)] == self.signature.names
        run(self.function, arguments, lanes=8, groups=(groups_begin, groups_end))  # type: ignore[arg-type]


def interpreted(nest: Nest) -> NestKernel:
    programs = nest_program(nest)
    functions = {piece.function.name: _Interpreted(piece.function) for piece in programs.pieces}
    return NestKernel(programs, SimpleNamespace(**functions))  # type: ignore[arg-type]
