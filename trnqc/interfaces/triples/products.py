"""W_ijk of all virtual orbitals a, b, c, as squares of matrices.

With M_a[b, f] = (ia|bf), which is symmetric, and T[b, c] = t_jk^bc, the two terms of W_ijk^abc with integrals of
orbital i are M_a T + T M_a = (M_a + T)^2 - M_a^2 - T^2: one product of matrices instead of two. M_a^2 is the same for
all j and k, and T^2 for all a. Elements of M_a and T are at most about 1, so that the differences have errors of about
1e-16. The terms with amplitudes of orbital i are products of matrices over m that are added by the same call,

    (M_a + T)^2 - sum_m t_im^ab (kc|jm) - sum_m (jb|km) t_im^ac .
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.host.arrays import zeros
from trnqc.interfaces.triples.amplitudes import Padded, tiles
from trnqc.interfaces.triples.programs import TILE

# Bytes of the operands of slices a that are made together: half of a second level of the cache of 1 MB, in which they
# stay until they are multiplied.
OPERANDS = 1 << 19


def slices(o: int, v: int) -> tuple[int, int]:
    """The numbers of slices a whose operands are made together, and whose products are added together.

    At least a tile is added together, so that the calls take little time beside the work.
    """
    depth = (tiles(v) + 2 * tiles(o)) * TILE
    made = max(1, min(v, OPERANDS // (8 * depth**2)))
    return made, max(made, min(v, TILE))


@dataclass(frozen=True)
class Orbital:
    """What the triples of one occupied orbital i read.

    Attributes
    ----------
    integrals : ndarray
        M_a[b, f] = (ia|bf) as [v, v, v'].
    squares : ndarray
        M_a^2 as [v, v', v'].
    exchanged : ndarray
        t_im^ab as [a, b, m], [v, v, o'].
    """

    integrals: np.ndarray
    squares: np.ndarray
    exchanged: np.ndarray

    @classmethod
    def of(cls, padded: Padded, i: int, ovvv: np.ndarray) -> Orbital:
        """The orbital i with ovvv = (ia|bf) [v, v, v]. Its squares are still to be computed."""
        v, side = padded.v, tiles(padded.v) * TILE
        integrals, exchanged = zeros((v, v, side)), zeros((v, v, tiles(padded.o) * TILE))
        integrals[:, :, :v] = ovvv
        exchanged[:, :, : padded.o] = padded.doubles[i, :, :v, :v].transpose(1, 2, 0)
        return cls(integrals, zeros((v, side, side)), exchanged)

    def square(self) -> None:
        """Compute the squares."""
        v = len(self.integrals)
        np.matmul(self.integrals[:, :, :v], self.integrals[:, :, :v], out=self.squares[:, :v, :v])


class ConnectedTriples:
    """Products of one occupied orbital with the amplitudes of two others, in buffers of one thread."""

    def __init__(self, padded: Padded, programs: Any) -> None:
        self._padded, self._v = padded, padded.v
        n, m = tiles(padded.v), tiles(padded.o)
        side = n * TILE
        depth = side + 2 * m * TILE
        made, self._added = slices(padded.o, padded.v)
        self._rows, self._columns = side, side + m * TILE
        self._operand = zeros((made, depth, depth))
        self._products, self._square = zeros((self._added, side, side)), zeros((side, side))
        sizes = {"tiles": n, "virtual": padded.v}
        self._operands = programs.operands.bind(**sizes, occupied=padded.o, occupied_tiles=m, operand=self._operand)
        self._adders = {
            name: getattr(programs, name).bind(**sizes, products=self._products, square=self._square)
            for name in ("first", "add_first", "add_second")
        }

    def __call__(self, i: int, j: int, k: int, orbital: Orbital, adds: Sequence[tuple[str, np.ndarray]]) -> None:
        """Add the terms of W_ijk with integrals and amplitudes of i, which `orbital` describes, to arrays.

        Parameters
        ----------
        adds
            Names of programs, and the arrays to which they add.
        """
        v, o, p = self._v, self._padded.o, self._padded
        doubles, amplitudes = p.doubles[j, k], p.doubles[i]
        self._operand[:, self._rows : self._rows + o, :v] = p.ovoo[k, j]
        self._operand[:, :v, self._columns : self._columns + o] = p.ovoo[j, k].T
        np.matmul(doubles[:v, :v], doubles[:v, :v], out=self._square[:v, :v])
        for begin in range(0, v, self._added):
            count = min(self._added, v - begin)
            self._multiply(begin, count, doubles, amplitudes, orbital)
            for name, target in adds:
                self._adders[name](x=begin, count=count, squares=orbital.squares, target=target)

    def _multiply(self, begin: int, count: int, doubles: np.ndarray, amplitudes: np.ndarray, orbital: Orbital) -> None:
        v = self._v
        for s in range(0, count, len(self._operand)):
            n = min(len(self._operand), count - s)
            self._operands(
                x=begin + s,
                count=n,
                m=orbital.integrals,
                t=doubles,
                amplitudes=amplitudes,
                exchanged=orbital.exchanged,
            )
            left, right = self._operand[:n, :v], self._operand[:n, :, :v]
            np.matmul(left, right, out=self._products[s : s + n, :v, :v])
