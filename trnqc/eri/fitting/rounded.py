"""J and K from fitted integrals in less than double precision, for the early cycles of an SCF.

density, tagged with its orbitals -> K of the density, and J of its difference from the first density, whose J is exact

The elements of J are large and cancel with the attraction of the nuclei. Between two densities of one SCF J changes by
a hundredth of itself or less, so that the rounding error of J stays below that of K. The products are those of the host
in single precision (`HostProducts`) or those of a device (`on_device`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from pyscf import lib

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.half_transform import HalfTransform
from trnqc.eri.fitting.tagged import occupied
from trnqc.host.arrays import empty, zeros
from trnqc.host.rank_updates import add_product
from trnqc.ranks import ALONE, Ranks

# Rows that are rounded together. They stay in the cache for J and K.
NEAR = 16


class ReducedProducts(Protocol):
    """Computes J and K from the fitted integrals of one molecule in reduced precision.

    `words` describes the precision and, if it is not the host, the device; `rounding` is the relative error with which
    one number is represented.
    """

    @property
    def words(self) -> str: ...

    @property
    def rounding(self) -> float: ...

    def __call__(
        self, orbitals: Sequence[np.ndarray], changes: np.ndarray | None, norms: np.ndarray, room: float
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """Return J [n, nao, nao] of changes of densities, or None without them, and K of orbitals."""
        ...


class RoundedJK:
    """J and K in reduced precision for the densities of one SCF; `exchange` [..., nao, nao] is K of the last call.

    `rows` [naux, pairs] are the fitted integrals in double precision, in memory or in a file, from which `products`
    computes J and K. Each of several `ranks` has some of the rows, in whole groups.
    """

    def __init__(self, rows: jk.Rows, products: ReducedProducts, ranks: Ranks = ALONE) -> None:
        self.rows, self.products, self._ranks = rows, products, ranks
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        self.exchange = np.zeros((0, 0))

    def __call__(self, dm: Any, norms: np.ndarray, with_j: bool, room: float) -> tuple[np.ndarray | None, np.ndarray]:
        """Compute J, or None, and K of densities [..., nao, nao] that are tagged with their orbitals.

        Other arguments are as in `trnqc.eri.fitting.jk`.
        """
        dms = np.asarray(dm).reshape(-1, *np.shape(dm)[-2:])
        first, exact = self._reference(dms, norms) if with_j else (None, 0.0)
        changes = None if first is None else dms - first
        vj, vk = self.products(occupied(dm, *dms.shape[:2]), changes, norms, room)
        self.exchange = vk.reshape(np.shape(dm))
        return (None if vj is None else (exact + vj).reshape(np.shape(dm))), self.exchange

    def _reference(self, dms: np.ndarray, norms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the first densities of this shape, and their J in double precision."""
        if self._first is None or self._first[0].shape != dms.shape:
            self._first = dms.copy(), jk.coulomb(self.rows, dms, norms, self._ranks)
        return self._first


class HostProducts:
    """Products of the host in single precision; the integrals, rows [naux, pairs] in double precision, are rounded as
    they are read.
    """

    words = "single precision"
    rounding = 2.0**-24

    def __init__(self, rows: jk.Rows, ranks: Ranks = ALONE) -> None:
        self._rows, self._ranks = rows, ranks

    def __call__(
        self, orbitals: Sequence[np.ndarray], changes: np.ndarray | None, norms: np.ndarray, room: float
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """See `ReducedProducts`."""
        each = [None] * len(orbitals) if changes is None else list(changes)
        vjs, vks = zip(*(rounded_jk(self._rows, c, d, norms, room, self._ranks) for c, d in zip(orbitals, each)))
        return (None if changes is None else np.array(vjs)), np.array(vks)


def rounded_jk(
    rows: jk.Rows,
    orbitals: np.ndarray,
    change: np.ndarray | None,
    norms: np.ndarray,
    room: float,
    ranks: Ranks = ALONE,
) -> tuple[np.ndarray | None, np.ndarray]:
    """Compute K of the density C C^T, and J of a change of density [nao, nao], in single precision and in one pass over
    the rows.

    The contribution of a group of rows is computed in single precision, and the sum over groups in double precision.
    `change` is symmetric; J is None if `change` is None. Other arguments are as in `trnqc.eri.fitting.jk.of_orbitals`.
    """
    (nao, nocc), pairs, single = orbitals.shape, rows.shape[1], np.dtype(np.float32)
    matrix = orbitals.astype(single)
    fixed = 3 * nao**2 + (3 + NEAR) * pairs + NEAR * jk.elements_read(rows) + matrix.size
    threads, wide = jk.division(room, fixed, each=matrix.size)
    changes = [] if change is None else [jk.packed_densities(change[None]).astype(single)]

    def worker() -> jk.AddRows:
        transform = HalfTransform(matrix)
        update, halves = zeros((nao, nao), single), empty((wide * matrix.size,), single)
        near = empty((NEAR, pairs), single)

        def add(begin: int, end: int, exchange: np.ndarray, *coulomb: np.ndarray) -> None:
            for first in range(begin, end, wide):
                count = min(wide, end - first)
                half = halves[: count * matrix.size].reshape(nao, count, nocc)
                for n in range(0, count, NEAR):
                    block = near[: min(NEAR, count - n)]
                    np.copyto(block, rows[first + n : first + n + len(block)], casting="same_kind")
                    transform(block, half, n)
                    for packed, folded in zip(coulomb, changes):
                        packed += (folded @ block.T) @ block
                add_product(update, half.reshape(nao, -1))
                exchange += update
                update.fill(0.0)

        return add

    shapes, bounds = [(nao, nao)], [jk.bound_of_exchange(orbitals, norms)]
    if change is not None:
        shapes.append((1, pairs))
        bounds.append(jk.bound_of_coulomb(change[None], norms))
    vk, *packed = jk.sums_of_groups(worker, len(rows) if nocc else 0, threads, shapes, bounds, ranks)
    return (lib.unpack_tril(packed[0][0]) if packed else None), lib.hermi_triu(vk, inplace=True)
