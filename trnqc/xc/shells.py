"""The contractions of all shells of a molecule, and which of them matter on a block of points.

Mole -> contractions in the order of their functions -> records that the programs read
boxes around blocks of points, thresholds -> number of primitives of each contraction to sum in each block
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from pyscf import gto

from trnqc.eri.shells.records import Shells, kinds_of
from trnqc.xc.programs.ao_program import CENTRE, ShellClass

# Blocks whose bounds are computed together, to limit the size of temporary arrays.
TOGETHER = 64


@dataclass(frozen=True, eq=False)
class Contractions:
    """The n contractions of a molecule's shells, in the order of their functions.

    `kind` [n] is the number of the class of each contraction; `first` and `functions` [n] are its first atomic orbital
    and how many there are; `centres` [n, 3] are in Bohr. `exponents` and `coefficients` [n, K] are the primitives by
    rising exponent, in 1/Bohr^2, padded by coefficients 0; `primitives` [n] counts those that are not padding.
    """

    classes: tuple[ShellClass, ...]
    kind: np.ndarray
    first: np.ndarray
    functions: np.ndarray
    centres: np.ndarray
    exponents: np.ndarray
    coefficients: np.ndarray
    primitives: np.ndarray

    @classmethod
    def of(cls, mol: gto.Mole) -> Contractions:
        """Return the contractions of a molecule."""
        kinds = kinds_of(mol)
        classes = tuple(sorted({_class_of(kind.l, mol.cart) for kind in kinds}))
        width = max((kind.primitives for kind in kinds), default=1)
        parts = [_contractions(kind, classes.index(_class_of(kind.l, mol.cart)), mol.cart, width) for kind in kinds]
        columns = [np.concatenate(column) for column in zip(*parts)] if parts else _nothing(width)
        order = np.argsort(columns[1], kind="stable")
        return cls(classes, *(column[order] for column in columns))

    @property
    def nao(self) -> int:
        """The number of atomic orbitals."""
        return int(self.functions.sum())

    @cached_property
    def places(self) -> np.ndarray:
        """The place of each contraction's record in `records`."""
        return np.concatenate([[0], np.cumsum(CENTRE + 2 * self.primitives)])[: len(self.first)]

    @cached_property
    def records(self) -> np.ndarray:
        """The records of all contractions; see `ao_program.parameters`."""
        parts = [
            np.concatenate([centre, np.stack([a[:n], c[:n]], axis=1).ravel()])
            for centre, a, c, n in zip(self.centres, self.exponents, self.coefficients, self.primitives)
        ]
        return np.concatenate(parts) if parts else np.zeros(1)

    def to_sum(self, lower: np.ndarray, upper: np.ndarray, thresholds: np.ndarray, order: int) -> np.ndarray:
        """Return how many primitives of each contraction have to be summed in each block [blocks, n]; 0 where none
        matters.

        `lower` and `upper` [blocks, 3] are boxes that contain the points of each block, in Bohr. A primitive is left
        out if neither its value nor a derivative of it up to `order` exceeds the block's threshold [blocks] in the box.
        """
        counts = np.zeros((len(lower), len(self.first)), np.int64)
        for begin, end in pairwise([*range(0, len(lower), TOGETHER), len(lower)]):
            box = lower[begin:end, None], upper[begin:end, None]
            outside = np.maximum(np.maximum(box[0] - self.centres, self.centres - box[1]), 0.0)
            large = self._bounds(np.linalg.norm(outside, axis=2), order) > thresholds[begin:end, None, None]
            last = large.shape[2] - np.argmax(large[:, :, ::-1], axis=2)
            counts[begin:end] = np.where(large.any(axis=2), last, 0)
        return counts

    def _bounds(self, distances: np.ndarray, order: int) -> np.ndarray:
        """Return bounds of primitives beyond distances [blocks, n] from their centres; [blocks, n, K].

        c r^l exp(-a r^2) falls beyond r^2 = l / 2a. A derivative multiplies it by at most 2 a r + l / r, and moves its
        maximum to r^2 = (l + order) / 2a at most.
        """
        l = np.array([cls.l for cls in self.classes])[self.kind][:, None]
        peak = np.sqrt(np.maximum(l + order, 1e-12) / (2 * self.exponents))
        r = np.maximum(distances[:, :, None], peak)
        steepness = np.maximum(2 * self.exponents * r + l / r, 1.0) ** order
        return np.abs(self.coefficients) * r**l * np.exp(-self.exponents * r * r) * steepness


def _class_of(l: int, cartesian: bool) -> ShellClass:
    return ShellClass(l, cartesian and l > 1)


def _contractions(kind: Shells, number: int, cartesian: bool, width: int) -> tuple[np.ndarray, ...]:
    """Return the columns of `Contractions` from `kind` on, for shells of one kind."""
    functions = _class_of(kind.l, cartesian).functions
    shells, contractions = len(kind.ids), kind.contractions
    first = (kind.ao[:, None] + np.arange(contractions) * functions).ravel()
    exponents = np.repeat(kind.exponents, contractions, axis=0)
    coefficients = kind.coefficients.reshape(shells * contractions, -1)
    # Primitives with coefficient 0 become padding.
    order = np.argsort(np.where(coefficients != 0, exponents, np.inf), axis=1, kind="stable")
    exponents, coefficients = (np.take_along_axis(a, order, axis=1) for a in (exponents, coefficients))
    primitives = (coefficients != 0).sum(axis=1)
    padding = ((0, 0), (0, width - kind.primitives))
    return (
        np.full(len(first), number),
        first,
        np.full(len(first), functions),
        np.repeat(kind.centres, contractions, axis=0),
        np.pad(exponents, padding, constant_values=1.0),
        np.pad(coefficients, padding),
        primitives,
    )


def _nothing(width: int) -> list[np.ndarray]:
    """Return the columns of a molecule without shells."""
    whole, real = np.zeros(0, np.int64), np.zeros((0, width))
    return [whole, whole, whole, np.zeros((0, 3)), real, real, whole]
