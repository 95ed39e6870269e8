"""Networks of block tensors: matrix product states, a DMRG effective Hamiltonian, integrals in local domains.

The other contestants are loops over blocks by np.tensordot, as codes of matrix product states write them, and the
elementwise nests of trnqc.sparse on the same stored elements.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from itertools import pairwise, product
from math import comb
from typing import Any

import numpy as np

from trnqc import sparse
from trnqc.sparse import BlockCharges, BlockTensor

Work = Callable[[], Any]
Blocks = Mapping[tuple[int, ...], np.ndarray]
Leg = tuple[tuple[int, ...], tuple[int, ...]]
"""Charges and sizes of the blocks of an index."""
SPIN: Leg = ((1, -1), (1, 1))
"""A spin of one half; charges are twice the z component."""
# Widths of the distribution of charges in a bond, in units of the charge: that of a spin chain of some tens of sites.
SPREAD = 2.0


@dataclass(frozen=True)
class BlockCase:
    """A network with operands, its other contestant, and the least ratio that we aim at.

    `changing` are the numbers of the operands that change from run to run, such as the state that a solver iterates; a
    plan packs the others once.
    """

    label: str
    subscripts: str
    operands: tuple[BlockTensor, ...]
    changing: tuple[int, ...]
    rival: str
    target: float


def blocks_of(legs: Sequence[Leg], directions: Sequence[int], rng: np.random.Generator) -> BlockTensor:
    """Return a tensor of total charge zero with random numbers in all blocks that its charges allow."""
    charges = BlockCharges(tuple(leg[0] for leg in legs), tuple(directions))
    places = np.array(list(product(*(range(len(leg[0])) for leg in legs))))
    stored = [tuple(at) for at in places[charges.allowed(places)].tolist()]
    sizes = [leg[1] for leg in legs]
    blocks = {at: rng.standard_normal([size[n] for n, size in zip(at, sizes)]) for at in stored}
    return BlockTensor.from_blocks(blocks, sizes, charges)


def bond(dimension: int, parity: int) -> Leg:
    """Return a bond of about this dimension whose charges are distributed as those of a spin chain."""
    charges = [q for q in range(-8, 9) if q % 2 == parity]
    weights = np.exp(-0.5 * (np.array(charges) / SPREAD) ** 2)
    sizes = np.rint(dimension * weights / weights.sum()).astype(int)
    kept = [(q, int(size)) for q, size in zip(charges, sizes) if size]
    return tuple(q for q, _ in kept), tuple(size for _, size in kept)


def overlap(sites: int, dimension: int, target: float) -> BlockCase:
    """Return the overlap of two states of spins with no total spin along z, with bonds of about this dimension.

    Bonds near the ends are as large as the states of the spins behind them allow.
    """
    rng = np.random.default_rng(sites)
    bonds: list[Leg] = []
    for left in range(sites + 1):
        charges = [q for q in range(-left, left + 1, 2) if abs(q) <= sites - left]
        ways = [min(comb(left, (left + q) // 2), comb(sites - left, (sites - left + q) // 2)) for q in charges]
        wide = dict(zip(*bond(dimension, left % 2)))
        kept = [(q, min(n, wide[q])) for q, n in zip(charges, ways) if q in wide]
        bonds.append((tuple(q for q, _ in kept), tuple(n for _, n in kept)))
    states = [[blocks_of((a, SPIN, b), (1, 1, -1), rng) for a, b in pairwise(bonds)] for _ in range(2)]
    operands = [x for ket, bra in zip(*states) for x in (ket, bra.conj())]

    # The ends of both states are single blocks of one element, which are summed with each other.
    def names(row: int, n: int) -> str:
        """Return an index: row 0 and 1 are the bonds of the two states, row 2 the spins."""
        return chr(0x100 + 3 * n + (0 if n in (0, sites) and row < 2 else row))

    terms = [f"{names(row, n)}{names(2, n)}{names(row, n + 1)}" for n in range(sites) for row in (0, 1)]
    label = f"overlap of two MPS of {sites} sites, bond dimension {max(sum(b[1]) for b in bonds)}"
    everything = tuple(range(len(operands)))
    return BlockCase(label, ",".join(terms) + "->", tuple(operands), everything, "block loops", target)


def heisenberg() -> BlockTensor:
    """Return W[w, s, s', x] of the Heisenberg chain, with bonds ordered by charge: 0 (three states), 2, -2."""
    up, down, one = np.array([[0.0, 1.0], [0.0, 0.0]]), np.array([[0.0, 0.0], [1.0, 0.0]]), np.eye(2)
    z = np.diag([0.5, -0.5])
    dense = np.zeros((5, 2, 2, 5))
    dense[0, :, :, 0] = dense[2, :, :, 2] = one
    dense[0, :, :, 1], dense[1, :, :, 2] = z, z
    # The bond carries the charge that is still to be given back.
    dense[0, :, :, 3], dense[3, :, :, 2] = 0.5 * up, down
    dense[0, :, :, 4], dense[4, :, :, 2] = 0.5 * down, up
    charges = BlockCharges(((0, 2, -2), (1, -1), (1, -1), (0, 2, -2)), (1, 1, -1, -1))
    return BlockTensor.from_dense(dense, [(3, 1, 1), (1, 1), (1, 1), (3, 1, 1)], charges=charges)


def effective_hamiltonian(dimension: int, target: float) -> BlockCase:
    """Return the two-site effective Hamiltonian of a Heisenberg chain applied to a state of this bond dimension."""
    rng = np.random.default_rng(dimension)
    a, mpo, w = bond(dimension, 0), ((0, 2, -2), (3, 1, 1)), heisenberg()
    left = blocks_of((a, mpo, a), (1, -1, -1), rng)
    right = blocks_of((a, mpo, a), (-1, 1, 1), rng)
    state = blocks_of((a, SPIN, SPIN, a), (1, 1, 1, -1), rng)
    operands = (state, left, w, w, right)
    label = f"two-site effective Hamiltonian, bond dimension {sum(a[1])}"
    return BlockCase(label, "ASTR,lwA,wsSx,xtTy,ryR->lstr", operands, (0,), "block loops", target)


def domains(side: int, with_map: bool, target: float) -> BlockCase:
    """Return three-index integrals [K, m, n] in local domains, transformed to orbitals i and projected functions u.

    Atoms are on a square lattice, and alternate between two kinds with 14 and 5 functions, 24 and 10 auxiliary
    functions, 2 and 1 orbitals. Integrals are kept within a radius of K, and coefficients within one of the orbital.
    """
    rng = np.random.default_rng(side)
    x, y = np.divmod(np.arange(side**2), side)
    near = np.hypot(x[:, None] - x, y[:, None] - y)
    kinds = (x + y) % 2
    sizes = {name: tuple(int(pair[kind]) for kind in kinds) for name, pair in SIZES.items()}

    def stored(labels: str, places: np.ndarray) -> BlockTensor:
        grid = [sizes[x] for x in labels]
        blocks = {
            tuple(at): rng.standard_normal([size[n] for n, size in zip(at, grid)])
            for at in np.argwhere(places).tolist()
        }
        return BlockTensor.from_blocks(blocks, grid)

    integrals = (near[:, :, None] <= 1.5) & (near[:, None, :] <= 1.5)
    operands = [stored("Kmn", integrals), stored("mi", near <= 1.0), stored("nu", near <= 1.5)]
    subscripts = "Kmn,mi,nu->Kiu"
    if with_map:
        ones = stored("Ki", near <= 1.0)
        operands.append(BlockTensor(ones.pattern, np.ones(ones.nnz)))
        subscripts = "Kmn,mi,nu,Ki->Kiu"
    label = f"integrals of {side**2} atoms in local domains" + ", with a map of pairs" * with_map
    return BlockCase(label, subscripts, tuple(operands), (), "elementwise nest", target)


SIZES = {"K": (24, 10), "m": (14, 5), "n": (14, 5), "i": (2, 1), "u": (14, 5)}
"""Functions of the two kinds of atoms: about those of carbon and hydrogen in a double-zeta basis, fewer auxiliary."""


def cases(quick: bool) -> list[BlockCase]:
    """Return all cases; small ones for `quick`."""
    dimensions = (16,) if quick else (64, 128, 256)
    return [
        *(overlap(sites, dimension, 5.0) for sites, dimension in ((8, 64), (16, 64))),
        *(effective_hamiltonian(dimension, 2.0) for dimension in dimensions),
        *(domains(4 if quick else 10, with_map, 2.0) for with_map in (False, True)),
    ]


def contestants(case: BlockCase) -> dict[str, Work]:
    """Return what computes a case; all plans and indices of blocks are made beforehand."""
    fresh = [BlockTensor(x.pattern, x.values) if t in case.changing else x for t, x in enumerate(case.operands)]
    ours = partial(sparse.plan(case.subscripts, *case.operands).run, *fresh)
    if case.rival == "elementwise nest":
        nest = sparse.plan(case.subscripts, *map(elements, case.operands))
        return {"trnqc": ours, "elementwise nest": nest.run}
    labels, output = case.subscripts.split("->")
    tensors = [(name, dict(x.blocks)) for name, x in zip(labels.split(","), case.operands)]
    return {"trnqc": ours, "block loops": lambda: looped(tensors, output)}


def repeated(work: Work, calls: int) -> None:
    """Run a contestant several times."""
    for _ in range(calls):
        work()


def elements(tensor: BlockTensor) -> sparse.SparseTensor:
    """Return all elements of the stored blocks as a sparse tensor."""
    places = np.array(np.unravel_index(tensor.pattern.in_dense(), tensor.shape))
    return sparse.from_coo(tensor.shape, places, tensor.values)


def looped(tensors: Sequence[tuple[str, Blocks]], output: str) -> tuple[str, Blocks]:
    """Return the product of tensors from the first to the last, by a loop over pairs of blocks for each."""

    def multiply(done: tuple[str, Blocks], number: int) -> tuple[str, Blocks]:
        later = {x for name, _ in tensors[number + 1 :] for x in name} | set(output)
        return contracted(done, tensors[number], later)

    return reduce(multiply, range(1, len(tensors)), tensors[0])


def contracted(left: tuple[str, Blocks], right: tuple[str, Blocks], later: set[str]) -> tuple[str, Blocks]:
    """Return the product of two tensors by np.tensordot of their blocks; shared indices are not needed later."""
    (a, x), (b, y) = left, right
    summed = [label for label in a if label in b]
    assert later.isdisjoint(summed)
    axes = [a.index(label) for label in summed], [b.index(label) for label in summed]
    free = [n for n in range(len(a)) if n not in axes[0]], [n for n in range(len(b)) if n not in axes[1]]
    by_key: dict[tuple[int, ...], list[tuple[tuple[int, ...], np.ndarray]]] = {}
    for at, block in y.items():
        key = tuple(at[n] for n in axes[1])
        by_key.setdefault(key, []).append((tuple(at[n] for n in free[1]), block))
    result: dict[tuple[int, ...], np.ndarray] = {}
    for at, block in x.items():
        rows = tuple(at[n] for n in free[0])
        for columns, other in by_key.get(tuple(at[n] for n in axes[0]), ()):
            place, made = rows + columns, np.tensordot(block, other, axes)
            if place in result:
                result[place] += made
            else:
                result[place] = made
    return "".join(a[n] for n in free[0]) + "".join(b[n] for n in free[1]), result


def largest_difference(case: BlockCase, works: Mapping[str, Work]) -> float:
    """Return the largest difference between the contestants, relative to the largest element."""
    ours, other = works["trnqc"](), works[case.rival]()
    if isinstance(other, tuple):
        labels, blocks = other
        output = case.subscripts.split("->")[1]
        axes = [labels.index(x) for x in output]
        arranged = {tuple(at[n] for n in axes): block.transpose(axes) for at, block in blocks.items()}
        other = BlockTensor.from_blocks(arranged, ours.sizes)
        assert other.pattern.coordinates.shape == ours.pattern.coordinates.shape
        return float(np.abs(other.values - ours.values).max() / np.abs(ours.values).max())
    dense = (other if isinstance(other, np.ndarray) else other.to_dense()).reshape(-1)
    places = ours.pattern.in_dense()
    difference = np.abs(dense[places] - ours.values).max()
    # What is left must be zero. A second dense array would take gigabytes for a hundred atoms.
    dense[places] = 0
    return float(max(difference, dense.max(), -dense.min()) / np.abs(ours.values).max())
