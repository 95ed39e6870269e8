"""Weighted amplitudes of pairs and their sums for one-particle densities: compiled code, or NumPy operations.

With K_ij[a, b] = (ia|jb), D = ε_i + ε_j - ε_a - ε_b and the weights of `AmplitudeWeights`,

    W_ij[a, b] = (direct K_ij[a, b] - exchange K_ij[b, a]) / D[a, b]

The amplitudes of a block of pairs are one array W[i, a, j, b].
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np

from trnqc import jit
from trnqc.backends.cpu.amplitude_library import amplitude_library
from trnqc.backends.cpu.pair_products import Slab
from trnqc.errors import CompilerError

LANES = 8
"""Parts in which pair_energy.c sums a row; its constant of this name."""
Elements = np.ndarray
"""Pairs of virtual orbitals (a, b) for which sums are computed, int64 [n, 2]."""


@dataclass(frozen=True)
class AmplitudeWeights:
    """How amplitudes t = K / D of one or of two spins are combined.

    Attributes
    ----------
    direct, exchange
        W = direct t - exchange t^T, the matrices of a pair being transposed.
    same_spin
        Whether both electrons have the same set of virtual orbitals, so that a pair ij has an exchange integral.
    """

    direct: float
    exchange: float
    same_spin: bool

    @property
    def inverse(self) -> tuple[float, float]:
        """The factors (f, g) in t = f W + g W^T.

        The weights are direct - exchange for the symmetric part of t and direct + exchange for the antisymmetric part.
        A part whose weight is zero has no part in W, and is left out.
        """
        symmetric, antisymmetric = (
            1.0 / (2.0 * w) if w else 0.0 for w in (self.direct - self.exchange, self.direct + self.exchange)
        )
        return symmetric + antisymmetric, symmetric - antisymmetric


@dataclass(frozen=True, eq=False)
class AmplitudeSums:
    """What is summed while the amplitudes of one i with n orbitals j are computed.

    Attributes
    ----------
    energies
        Σ_ab K_ij[a, b] t[a, b] and Σ_ab K_ij[b, a] t[a, b] of each pair, [n, 2]. The latter is zero for two spins.
    norms
        Σ_ab W[a, b] t[a, b] of each pair, [n].
    left, right
        Σ_jc W[a, c] t[a, c] and Σ_jc W[c, a] t[c, a] of each virtual orbital a. Of pairs of the same spin, `left` is
        the sum of both, to which a pair ii contributes once, and `right` is zero.
    """

    energies: np.ndarray
    norms: np.ndarray
    left: np.ndarray
    right: np.ndarray

    @classmethod
    def zeros(cls, pairs: int, eps_vir: tuple[np.ndarray, np.ndarray]) -> AmplitudeSums:
        """Sums without a term."""
        return cls(np.zeros((pairs, 2)), np.zeros(pairs), *(np.zeros(len(eps)) for eps in eps_vir))


class PairAmplitudes(Protocol):
    """A way to compute amplitudes and their sums.

    Attributes
    ----------
    label : str
        What computes them, in words.
    """

    label: str

    def weighted(self, k: Slab, e_pair: np.ndarray, out: np.ndarray, i: int, j0: int) -> AmplitudeSums:
        """Write W of orbital i and of consecutive j, from `j0` on, to out[i, :, j].

        `e_pair` contains ε_i + ε_j of each pair, Hartree.
        """
        ...

    def virtual_sums(
        self, w: np.ndarray, i: int, columns: slice, symmetric: bool, elements: tuple[Elements, Elements]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return Σ_jc W[a, c] t[b, c] and Σ_jc W[c, a] t[c, b] of the pairs of i with the orbitals j in `columns`.

        The first sum is computed for the first array of elements (a, b), and the second one for the second. For pairs
        of the same spin, both arrays are the same, and only the sum of the two results has a meaning. If
        `symmetric` is set, the last j is i, and the second sum leaves out this pair.
        """
        ...

    def overlap(
        self, w: np.ndarray, first: tuple[int, int], second: tuple[int, int], transposed: bool = False
    ) -> float:
        """Return Σ_ab W[a, b] t[a, b] with W of the pair `first`, (i, j), and t of the pair `second`.

        If `transposed` is set, it is Σ_ab W[a, b] t[b, a].
        """
        ...


def make_amplitudes(weights: AmplitudeWeights, eps_vir: tuple[np.ndarray, np.ndarray]) -> PairAmplitudes:
    """Choose compiled code where there is a C compiler, else NumPy.

    Parameters
    ----------
    weights
        The weights of the amplitudes.
    eps_vir
        Energies of the virtual orbitals a and b, Hartree.
    """
    left, right = (np.ascontiguousarray(eps, dtype=np.float64) for eps in eps_vir)
    try:
        return CompiledAmplitudes(weights, (left, right))
    except CompilerError:
        return NumpyAmplitudes(weights, (left, right))


class CompiledAmplitudes:
    """Amplitudes and sums by pair_amplitudes.c. Raises CompilerError if it cannot be compiled."""

    def __init__(self, weights: AmplitudeWeights, eps_vir: tuple[np.ndarray, np.ndarray]) -> None:
        self.weights, self.eps_vir, self._library = weights, eps_vir, amplitude_library()
        self.label = f"compiled amplitudes ({jit.find_compiler().label})"

    def weighted(self, k: Slab, e_pair: np.ndarray, out: np.ndarray, i: int, j0: int) -> AmplitudeSums:
        (left, right), weights, pairs = self.eps_vir, self.weights, len(e_pair)
        sums, (os, x) = AmplitudeSums.zeros(pairs, self.eps_vir), np.zeros((2, pairs))
        place = {"w": out, "first": _place(out, i, j0), "stride": out.shape[2] * out.shape[3]}
        slab = {"k": k.data, "pairs": pairs, "k_stride": k.data.shape[1], "column": k.column, "e_pair": e_pair}
        if weights.same_spin:
            factors = {"direct": weights.direct, "exchange": weights.exchange}
            self._library.amplitudes(
                nvir=len(left),
                symmetric=k.symmetric,
                e_vir=left,
                os=os,
                x=x,
                norm=sums.norms,
                rows=np.zeros(LANES * len(left)),
                columns=sums.left,
                **slab,
                **place,
                **factors,
            )
        else:
            sizes = {"rows": len(left), "columns": len(right)}
            self._library.opposite_spin_amplitudes(
                e_row=left,
                e_column=right,
                os=os,
                norm=sums.norms,
                left=sums.left,
                right=sums.right,
                direct=weights.direct,
                **slab,
                **place,
                **sizes,
            )
        sums.energies[:] = np.stack((os, x), axis=1)
        return sums

    def virtual_sums(
        self, w: np.ndarray, i: int, columns: slice, symmetric: bool, elements: tuple[Elements, Elements]
    ) -> tuple[np.ndarray, np.ndarray]:
        left, right = np.zeros(len(elements[0])), np.zeros(len(elements[1]))
        if not (len(left) or len(right)):
            return left, right
        transposed = np.unique(elements[1])
        self._library.virtual_sums(
            pairs=columns.stop - columns.start,
            symmetric=symmetric,
            lefts=len(left),
            left_elements=elements[0],
            rights=len(right),
            right_elements=elements[1],
            orbitals=len(transposed),
            transposed=transposed,
            left=left,
            right=right,
            scratch=np.empty((w.shape[3], w.shape[1])),
            first=_place(w, i, columns.start),
            **self._matrix(w),
        )
        return left, right

    def overlap(
        self, w: np.ndarray, first: tuple[int, int], second: tuple[int, int], transposed: bool = False
    ) -> float:
        places, arguments = {"v0": _place(w, *first), "w0": _place(w, *second)}, self._matrix(w)
        if transposed:
            arguments |= {"same": arguments["swapped"], "swapped": arguments["same"]}
        return float(self._library.pair_overlap(**places, **arguments))

    def _matrix(self, w: np.ndarray) -> dict[str, object]:
        same, swapped = self.weights.inverse
        _, rows, pairs, columns = w.shape
        sizes = {"rows": rows, "columns": columns, "stride": pairs * columns}
        return {"w": w, "same": same, "swapped": swapped, **sizes}


class NumpyAmplitudes:
    """Amplitudes and sums as operations of NumPy on whole arrays. K must be complete."""

    label = "amplitudes by NumPy"

    def __init__(self, weights: AmplitudeWeights, eps_vir: tuple[np.ndarray, np.ndarray]) -> None:
        self.weights, self.eps_vir, self._virtual = weights, eps_vir, eps_vir[0][:, None] + eps_vir[1]

    def weighted(self, k: Slab, e_pair: np.ndarray, out: np.ndarray, i: int, j0: int) -> AmplitudeSums:
        columns, sums = self._virtual.shape[1], AmplitudeSums.zeros(len(e_pair), self.eps_vir)
        for j, e in enumerate(e_pair):
            integrals = k.data[:, k.column + j * columns : k.column + (j + 1) * columns]
            with np.errstate(all="ignore"):  # The caller looks for elements that are not finite.
                t = integrals / (e - self._virtual)
                weighted = self.weights.direct * t
                sums.energies[j, 0] = np.vdot(integrals, t)
                if self.weights.same_spin:
                    weighted -= self.weights.exchange * t.T
                    sums.energies[j, 1] = np.vdot(integrals.T, t)
                out[i, :, j0 + j] = weighted
                weighted *= t
            sums.left[:] += weighted.sum(axis=1)
            if not (k.symmetric and j == len(e_pair) - 1):
                (sums.left if self.weights.same_spin else sums.right)[:] += weighted.sum(axis=0)
            sums.norms[j] = weighted.sum()
        return sums

    def virtual_sums(
        self, w: np.ndarray, i: int, columns: slice, symmetric: bool, elements: tuple[Elements, Elements]
    ) -> tuple[np.ndarray, np.ndarray]:
        left, right = np.zeros(len(elements[0])), np.zeros(len(elements[1]))
        for j in range(columns.start, columns.stop):
            weighted, t = w[i, :, j], self._unweighted(w[i, :, j])
            left += np.einsum("nc,nc->n", weighted[elements[0][:, 0]], t[elements[0][:, 1]])
            if not symmetric or j != columns.stop - 1:
                right += np.einsum("cn,cn->n", weighted[:, elements[1][:, 0]], t[:, elements[1][:, 1]])
        return left, right

    def overlap(
        self, w: np.ndarray, first: tuple[int, int], second: tuple[int, int], transposed: bool = False
    ) -> float:
        (i, j), (k, l) = first, second
        t = self._unweighted(w[k, :, l])
        return float(np.vdot(w[i, :, j], t.T if transposed else t))

    def _unweighted(self, weighted: np.ndarray) -> np.ndarray:
        same, swapped = self.weights.inverse
        return same * weighted + swapped * weighted.T if swapped else same * weighted


def _place(w: np.ndarray, i: int, j: int) -> int:
    """Position of W[i, 0, j, 0]."""
    _, rows, pairs, columns = w.shape
    return (i * rows * pairs + j) * columns
