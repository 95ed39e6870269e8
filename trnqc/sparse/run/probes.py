"""Small nests with generated operands, whose times the rates of the cost model are fitted to."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np

from trnqc.sparse.network.nest import Format, Kind, Nest, Space
from trnqc.sparse.network.network import network
from trnqc.sparse.network.tree import Tree
from trnqc.sparse.search.named_nests import fused
from trnqc.sparse.tensors.levels import Compressed, Dense
from trnqc.sparse.tensors.storage import SparseTensor, from_dense

# Kinds of the levels of a matrix: compressed rows (CSR), or both levels compressed.
ROWS: tuple[Kind, ...] = ("dense", "compressed")
THIN: tuple[Kind, ...] = ("compressed", "compressed")


@dataclass(frozen=True, eq=False)
class Probe:
    """A nest and operands in its formats."""

    nest: Nest
    operands: tuple[SparseTensor, ...]


def probes() -> Iterator[Probe]:
    """Nests of about half a millisecond, in which every kind of work dominates once, within the caches and beyond."""
    # Rows added to rows, which fit into the first cache, into the second, and into none.
    for rows, inner, width in ((8192, 64, 4), (2048, 16, 256), (64, 256, 256), (8, 4096, 256)):
        yield _probe("ik,kj->ij", (_full(rows, inner), _full(inner, width)), ["ikj"])
    yield _probe("ik,kj->ij", (_full(256, 32), _full(32, 256)), ["kij"])
    # Sums to a scalar by vectors, and elements that are not contiguous.
    for inner, rows in ((16, 512), (256, 128)):
        yield _probe("ik,jk->ij", (_full(rows, inner), _full(64, inner)), ["ijk"])
    yield _probe("ik,kj->ij", (_full(64, 128), _full(128, 64)), ["ijk"])
    # A sparse matrix times a vector: rows of several lengths, then a vector that fits into no cache.
    for rows, columns, length in ((2**17, 128, 1), (2**15, 128, 8), (2**12, 128, 64), (2**10, 2**20, 32)):
        matrix = _rows(rows, columns, length)
        yield _probe("ij,j->i", (matrix, _full(columns)), ["ij"])
        yield _probe("ij,i->j", (matrix, _full(rows)), ["ij"])
    # A sparse matrix times a dense one, whose rows fit into each cache, and into none.
    for width, rows in ((4, 2**14), (32, 2**13), (80, 2**12)):
        for columns in (2**6, 2**12, 2**20 // width):
            yield _probe("ij,jk->ik", (_rows(rows, columns, 8), _full(columns, width)), ["ijk"])
    # Coordinates that two operands have in common.
    for rows, length in ((2**13, 4), (2**10, 32)):
        yield _probe("ij,ij->i", (_rows(rows, 256, length), _rows(rows, 256, length, seed=1)), ["ij"])
    # Outer loops over stored coordinates, and over all values around innermost loops that are mostly empty.
    yield _probe("ij,j->i", (_rows(2**16, 128, 2, THIN), _full(128)), ["ij"])
    yield _probe("ijk,k->i", (_blocks(2**14, 16, 64), _full(64)), ["ijk"])
    # Workspaces: arrays that are cleared, lists and hash tables.
    few = SparseTensor((1024,), (0,), _rows(1, 1024, 4).levels[1:], np.ones(4))
    yield _probe("ij,jk,k->i", (_rows(2**13, 256, 1), _rows(256, 1024, 4), few), ["ijk", "ik"], ((0, 1), 2))
    chain = (_rows(2**13, 512, 4), _rows(512, 1024, 4), _rows(1024, 4, 1))
    for space in ("listed", "hashed"):
        yield _probe("ij,jk,kl->il", chain, ["ijk", "ikl"], ((0, 1), 2), space)
    # Networks that combine several of these: a transformation of integrals in two steps, and an MTTKRP.
    integrals = (_cubes(128, 64, 64, 8), _rows(64, 16, 2), _full(64, 64))
    yield _probe("Kmn,mi,nu->Kiu", integrals, ["Kmin", "Kinu"], ((0, 1), 2))
    factors = (_cubes(1024, 64, 1024, 2), _full(64, 32), _full(1024, 32))
    yield _probe("ijk,jr,kr->ir", factors, ["ijkr", "ijr"], ((0, 2), 1))
    # Results: sparse in order, sparse out of order in an array and in a hash table, dense.
    yield _probe("ij,j->ij", (_rows(2**14, 512, 8), _full(512)), ["ij"], result=ROWS)
    yield _probe("ij,jk->ik", (_rows(2048, 512, 8), _rows(512, 4096, 8)), ["ijk"], result=ROWS)
    yield _probe("ij,jk->ik", (_rows(512, 512, 4), _rows(512, 2**23, 4)), ["ijk"], result=ROWS)
    yield _probe("ij,j->ij", (_rows(1024, 1024, 1), _full(1024)), ["ij"])


def empty_probe() -> Probe:
    """A probe of one element, whose time is the time of the call itself."""
    return _probe("ij,j->i", (_rows(1, 1, 1), _full(1)), ["ij"])


def _probe(
    subscripts: str,
    operands: tuple[SparseTensor, ...],
    loops: Sequence[str],
    tree: Tree | None = None,
    space: Space = "dense",
    result: tuple[Kind, ...] = (),
) -> Probe:
    """Return the fused nest of a tree in these loops, by default one contraction of all operands.

    result: kinds of the levels of the result, by default all dense.
    """
    net = network(subscripts, [x.shape for x in operands])
    whole: Tree = tuple(range(len(operands)))
    nest = fused(net, tree or whole, loops, sparse=bool(result), space=space)
    everything: tuple[Kind, ...] = tuple("dense" for _ in net.output)
    kinds = (*(x.kinds for x in operands), result or everything)
    return Probe(replace(nest, formats=tuple(map(Format, (*net.inputs, net.output), kinds))), operands)


def _full(*shape: int) -> SparseTensor:
    return from_dense(np.ones(shape))


@cache
def _rows(rows: int, columns: int, length: int, kinds: tuple[Kind, ...] = ROWS, seed: int = 0) -> SparseTensor:
    """A matrix with `length` elements in each row, one at a random place in each of `length` equal parts of the row."""
    part = columns // length
    places = np.arange(length) * part + np.random.default_rng(seed).integers(0, part, (rows, length))
    inner = Compressed(np.arange(rows + 1) * length, places.reshape(-1).astype(np.int32))
    outer = Dense(rows) if kinds[0] == "dense" else Compressed(np.array([0, rows]), np.arange(rows, dtype=np.int32))
    return SparseTensor((rows, columns), (0, 1), (outer, inner), np.ones(rows * length))


def _cubes(rows: int, columns: int, depth: int, length: int) -> SparseTensor:
    """A tensor of three modes with a quarter of all fibres along the last mode, of `length` elements each."""
    outer, inner = _rows(rows, columns, columns // 4), _rows(rows * columns // 4, depth, length)
    return SparseTensor((rows, columns, depth), (0, 1, 2), (*outer.levels, *inner.levels[1:]), inner.values)


def _blocks(rows: int, columns: int, depth: int) -> SparseTensor:
    """A stack of matrices with one element each."""
    counts = np.zeros((rows, columns), np.int64)
    counts[:, 0] = 1
    positions = np.concatenate([[0], np.cumsum(counts)])
    inner = Compressed(positions, (np.arange(rows) % depth).astype(np.int32))
    return SparseTensor((rows, columns, depth), (0, 1, 2), (Dense(rows), Dense(columns), inner), np.ones(rows))
