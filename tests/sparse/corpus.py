"""Networks with intent: every form, and the solver's nests, meet every case. What each probes stands beside it.

Sparse operands are given as coordinates and values, so that explicit zeros, duplicates and empty rows are what the
program under test is handed; their dense meaning is what the reference gets.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from trnqc.sparse.network.network import Network, network

DENSE = -1.0


@dataclass(frozen=True)
class Coo:
    """coordinates [axes, n], values [n] or None for a 0/1 map."""

    shape: tuple[int, ...]
    coordinates: np.ndarray
    values: np.ndarray | None

    def dense(self) -> np.ndarray:
        array = np.zeros(self.shape)
        if self.values is None:
            array[tuple(self.coordinates)] = 1.0
        else:
            np.add.at(array, tuple(self.coordinates), self.values)
        return array


Operand = Coo | np.ndarray


def random(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Coo:
    """Some places, each at most once, in no order."""
    places = int(np.prod(shape))
    chosen = rng.permutation(places)[: round(density * places)]
    return Coo(shape, np.array(np.unravel_index(chosen, shape)), rng.standard_normal(len(chosen)))


def ones(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Coo:
    return Coo(shape, random(rng, shape, density).coordinates, None)


def untidy(rng: np.random.Generator, shape: tuple[int, ...], density: float) -> Coo:
    """Duplicates, one of which cancels, explicit zeros, and rows without entries at either end of the first axis."""
    plain = random(rng, shape, density)
    keep = (plain.coordinates[0] > 0) & (plain.coordinates[0] < shape[0] - 1)
    at, values = plain.coordinates[:, keep], plain.values[keep]
    values[::5] = 0.0
    again = slice(None, None, 3)
    twice = values[again].copy()
    twice[::2] *= -1
    return Coo(shape, np.concatenate([at, at[:, again]], axis=1), np.concatenate([values, twice]))


Maker = Callable[[np.random.Generator, tuple[int, ...], float], Coo]


@dataclass(frozen=True)
class Case:
    """subscripts over extents (letter and number in turn); one density for each operand, DENSE for an array.

    tree: the order of contractions; twice: operands that are the same tensor as an earlier one.
    """

    subscripts: str
    extents: dict[str, int]
    densities: tuple[float, ...]
    tree: tuple = ()
    makers: dict[int, Maker] = field(default_factory=dict)
    twice: dict[int, int] = field(default_factory=dict)

    @property
    def network(self) -> Network:
        inputs = self.subscripts.split("->")[0].split(",")
        shapes = [tuple(self.extents[x] for x in labels) for labels in inputs]
        return network(self.subscripts, shapes, [self.twice.get(n, n) for n in range(len(inputs))])

    @property
    def full(self) -> tuple[int, ...]:
        return tuple(n for n, density in enumerate(self.densities) if density == DENSE)

    def operands(self, seed: int = 7) -> list[Operand]:
        rng, operands = np.random.default_rng(seed), []
        for n, (labels, density) in enumerate(zip(self.network.inputs, self.densities, strict=True)):
            shape = self.network.shape(labels)
            if n in self.twice:
                operands.append(operands[self.twice[n]])
            elif density == DENSE:
                operands.append(rng.standard_normal(shape))
            else:
                operands.append(self.makers.get(n, random)(rng, shape, density))
        return operands


def dense(operands: list[Operand]) -> list[np.ndarray]:
    return [x.dense() if isinstance(x, Coo) else x for x in operands]


def sizes(text: str) -> dict[str, int]:
    """ "K7m5": extents by letter."""
    letters = [n for n, x in enumerate(text) if x.isalpha()]
    return {text[a]: int(text[a + 1 : b]) for a, b in zip(letters, [*letters[1:], len(text)])}


CASES = {
    # The three-centre integrals of local orbitals, without and with the map of near pairs, in every place of the tree.
    "dlpno-1": Case("Kmn,mi,nu->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.4, DENSE), ((0, 1), 2)),
    "dlpno-1 all sparse": Case("Kmn,mi,nu->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.4, 0.8), ((0, 1), 2)),
    "dlpno-2 map last": Case(
        "Kmn,mi,nu,Ki->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.4, DENSE, 0.4), (((0, 1), 2), 3), {3: ones}
    ),
    "dlpno-2 map first": Case(
        "Kmn,mi,nu,Ki->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.4, DENSE, 0.4), ((0, (1, 3)), 2), {3: ones}
    ),
    "dlpno-2 map between": Case(
        "Kmn,mi,nu,Ki->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.4, 0.9, 0.4), (((0, 1), 3), 2), {3: ones}
    ),
    # One tensor in two places, and their metric between them.
    "dlpno-3": Case("Kiu,Kjv,KL,Ljw->iujv", sizes("K3i4u3j2v2L3w2"), (0.5, 0.5, DENSE, 0.5), (((0, 2), 3), 1)),
    "pairs of one tensor": Case("Kiu,Kjv->iujv", sizes("K5i3u4j3v4"), (0.4, 0.4), (0, 1), twice={1: 0}),
    "gram": Case("ki,kj->ij", sizes("k11i6j6"), (0.3, 0.3), (0, 1), twice={1: 0}),
    # Chains, and a tree that is none: two producers beside each other.
    "chain": Case("ij,jk,kl,lm->im", sizes("i5j7k3l5m4"), (0.4, 0.4, 0.5, 0.5), (((0, 1), 2), 3)),
    "siblings": Case("ij,jk,kl,lm->im", sizes("i5j7k3l5m4"), (0.4, 0.4, 0.5, 0.5), ((0, 1), (2, 3))),
    "siblings swapped": Case("ij,jk,kl,lm->im", sizes("i5j7k3l5m4"), (0.4, 0.4, 0.5, 0.5), ((3, 2), (1, 0))),
    "running example": Case("ipq,jpr,kqr,jkr->ijk", sizes("i3p4q5j4r3k5"), (0.4, 0.4, 0.4, 0.5), (((0, 1), 2), 3)),
    # Factorisations: fibres of a tensor against dense matrices, each mode's turn.
    "mttkrp 0": Case("ijk,jr,kr->ir", sizes("i7j5k11r4"), (0.15, DENSE, DENSE), ((0, 2), 1)),
    "mttkrp 1": Case("ijk,ir,kr->jr", sizes("i7j5k11r4"), (0.15, DENSE, DENSE), ((0, 2), 1)),
    "mttkrp 2": Case("ijk,ir,jr->kr", sizes("i7j5k11r4"), (0.15, DENSE, DENSE), ((0, 2), 1)),
    "ttmc 0": Case("ijk,jr,ks->irs", sizes("i7j5k11r3s4"), (0.15, DENSE, DENSE), ((0, 2), 1)),
    "ttmc 2": Case("ijk,ir,js->krs", sizes("i7j5k11r3s4"), (0.15, DENSE, DENSE), ((0, 2), 1)),
    "order four": Case("ijkl,jr,kr,lr->ir", sizes("i4j3k5l3r2"), (0.2, DENSE, DENSE, DENSE), (((0, 3), 2), 1)),
    # Batch indices, outer products, copies and sums.
    "batch": Case("bij,bjk->bik", sizes("b3i5j7k2"), (0.4, 0.4), (0, 1)),
    "batch of dense": Case("bij,bjk,bk->bi", sizes("b3i5j7k2"), (0.4, DENSE, 0.7), ((0, 1), 2)),
    "product of elements": Case("ij,ij->ij", sizes("i7j11"), (0.4, 0.4), (0, 1)),
    "three elements": Case("ij,ij,ij->ij", sizes("i7j11"), (0.6, 0.5, 0.6), ((0, 1), 2)),
    "elements against dense": Case("ij,ij->ij", sizes("i7j11"), (0.2, DENSE), (0, 1)),
    "outer": Case("i,j->ij", sizes("i7j5"), (0.4, 0.5), (0, 1)),
    "outer summed": Case("i,j,jk->ik", sizes("i7j5k3"), (0.4, 0.5, 0.6), ((0, 1), 2)),
    "copy": Case("ijk->ijk", sizes("i3j5k4"), (0.3,), (0,)),
    "transposed": Case("ijk->kij", sizes("i3j5k4"), (0.3,), (0,)),
    "row sums": Case("ijk->i", sizes("i3j5k4"), (0.3,), (0,)),
    "total": Case("ijk->", sizes("i3j5k4"), (0.3,), (0,)),
    "scalar product": Case("ij,ij->", sizes("i5j7"), (0.4, 0.4), (0, 1)),
    "own sums": Case("ij,jk->k", sizes("i5j7k3"), (0.4, 0.4), (0, 1)),
    # Operands swapped, results in no operand's order.
    "swapped": Case("nu,mi,Kmn->uKi", sizes("K7m5n5i3u4"), (DENSE, 0.4, 0.3), ((2, 1), 0)),
    "swapped sparse": Case("jk,ij->ki", sizes("i5j7k4"), (0.4, 0.4), (1, 0)),
    # Nothing, little, and untidy input.
    "empty": Case("ij,jk->ik", sizes("i5j7k4"), (0.0, 0.4), (0, 1)),
    "empty of three": Case("Kmn,mi,nu->Kiu", sizes("K7m5n5i3u4"), (0.3, 0.0, DENSE), ((0, 1), 2)),
    "no extent": Case("ij,jk->ik", sizes("i5j0k4"), (0.0, 0.0), (0, 1)),
    "no rows": Case("ij,jk->ik", sizes("i0j3k4"), (0.0, 0.5), (0, 1)),
    "ones": Case("ij,jk->ik", sizes("i1j1k1"), (1.0, 1.0), (0, 1)),
    "untidy": Case("ij,jk->ik", sizes("i7j5k11"), (0.5, 0.5), (0, 1), {0: untidy, 1: untidy}),
    "untidy three": Case(
        "Kmn,mi,nu->Kiu", sizes("K7m5n6i3u4"), (0.5, 0.6, 0.7), ((0, 1), 2), {0: untidy, 1: untidy, 2: untidy}
    ),
    "untidy elements": Case("ij,ij->ij", sizes("i7j11"), (0.6, 0.6), (0, 1), {0: untidy, 1: untidy}),
    # Rows longer than a vector, and all full.
    "long rows": Case("ij,jk->ik", sizes("i3j5k67"), (0.5, DENSE), (0, 1)),
    "full": Case("ij,jk,kl->il", sizes("i5j4k3l6"), (1.0, DENSE, 1.0), ((0, 1), 2)),
    "all dense": Case("ij,jk->ik", sizes("i5j4k3"), (DENSE, DENSE), (0, 1)),
}
