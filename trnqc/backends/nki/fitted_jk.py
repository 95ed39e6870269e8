"""Fitted J and K with NKI kernels: integrals -> parts in three orders on the device -> launches -> sums in fp64.

The integrals are copied to the device once, for all densities: as squares for K, and as packed pairs in both orders
for J.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.jk import plan
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc.backends.nki.device import NkiDevice
from trnqc.errors import InputError, MemoryLimit, UnsupportedError


@dataclass(frozen=True, eq=False)
class NkiFittedJK:
    """See `trnqc.backends.fitted_jk.FittedJK`; `fitted_jk` makes it."""

    device: NkiDevice
    precision: str
    nao: int
    naux: int
    squares: tuple[Any, ...]
    packed: tuple[tuple[Any, Any], ...]

    @property
    def label(self) -> str:
        return self.device.label

    @property
    def rounding(self) -> float:
        form = PRECISIONS[self.precision]
        # Each part holds one more bit than its own, by its sign; sums are fp32 in any precision.
        return float(2.0 ** -min(form.parts * (form.bits + 1) - 1, 24))

    @property
    def promised(self) -> float:
        return PRECISIONS[self.precision].error

    def coulomb(self, densities: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        _require_finite(densities, "the density")
        n, pairs = densities.shape
        sizes = plan.coulomb_sizes(pairs)
        density = self._put(plan.by_blocks(plan.padded(densities, n, sizes.pairs)))
        vj, fitted = np.zeros((n, pairs)), []
        for by_pair, by_row in self.packed:
            constants = {"chunk": sizes.chunk, "turns": sizes.turns}
            parts, vectors = self.device.call("df_coulomb", by_pair, by_row, density, **constants)
            vj += plan.from_blocks(parts.astype(np.float64).sum(axis=0))[:, :pairs]
            fitted.append(np.concatenate([plan.from_blocks(core) for core in vectors], axis=1))
        return vj, np.concatenate(fitted, axis=1)[:, : self.naux].astype(np.float64)

    def exchange(self, orbitals: np.ndarray) -> np.ndarray:
        _require_finite(orbitals, "the orbitals")
        vk, nocc = np.zeros((self.nao, self.nao)), orbitals.shape[1]
        if not nocc:
            return vk
        sizes = _exchange_sizes(self.nao, nocc, self.precision)
        matrix = self._put(plan.on_partitions(orbitals, sizes.blocks))
        constants = {"blocks": sizes.blocks, "group": sizes.group, "ring": sizes.ring}
        for square in self.squares:
            vk += self.device.call("df_exchange", square, matrix, **constants).astype(np.float64).sum(axis=0)
        return np.tril(vk) + np.tril(vk, -1).T

    def _put(self, array: np.ndarray) -> Any:
        return self.device.put(split(array, self.precision))


def fitted_jk(device: NkiDevice, rows: np.ndarray, precision: str, max_memory: float | None) -> NkiFittedJK:
    """Copy fitted integrals [naux, pairs] to a device; arguments as in `trnqc.backends.base.Backend.fitted_jk`."""
    _require_finite(rows, "the fitted integrals")
    naux, pairs = rows.shape
    nao = int((np.sqrt(8 * pairs + 1) - 1) / 2)
    form, cores = PRECISIONS[precision], device.cores
    blocks = _exchange_sizes(nao, 1, precision).blocks
    of_squares = plan.launches(naux, cores * plan.GROUP, plan.MOST_ELEMENTS // (form.parts * nao * (nao + plan.P)))
    columns = plan.coulomb_sizes(pairs).pairs
    most = min(cores * plan.MOST_ROWS, plan.MOST_ELEMENTS // (form.parts * columns))
    of_pairs = plan.launches(naux, cores * plan.P, most)
    needed = form.itemsize * naux * (nao * nao + 2 * columns) + 8 * nao * nao * (of_squares[0].stop + naux)
    if max_memory is not None and needed > max_memory:
        raise MemoryLimit(
            f"fitted integrals in the orders of the NKI kernels need {needed / 1e6:.4g} MB, but the limit is "
            f"{max_memory / 1e6:.4g} MB: raise max_memory"
        )

    def put_square(part: slice) -> Any:
        own = rows[part]
        square = np.zeros((part.stop - part.start, nao, nao))
        square[: len(own)] = _unpacked(own, nao)
        return device.put(split(plan.on_partitions(square, blocks), precision))

    def put_pairs(part: slice) -> tuple[Any, Any]:
        by_row = split(plan.padded(rows[part], part.stop - part.start, columns), precision)
        return device.put(np.ascontiguousarray(by_row.swapaxes(1, 2))), device.put(by_row)

    squares, packed = tuple(map(put_square, of_squares)), tuple(map(put_pairs, of_pairs))
    return NkiFittedJK(device, precision, nao, naux, squares, packed)


def _exchange_sizes(nao: int, nocc: int, precision: str) -> plan.ExchangeSizes:
    sizes = plan.exchange_sizes(nao, nocc, PRECISIONS[precision].itemsize)
    if sizes is None:
        raise UnsupportedError(
            f"the kernel of K keeps the sums of all pairs of functions on chip, where {nao} functions with {nocc} "
            f"occupied orbitals in {precision} do not fit: use the backend 'cpu'"
        )
    return sizes


def _unpacked(rows: np.ndarray, nao: int) -> np.ndarray:
    """Return symmetric matrices [n, nao, nao] of packed rows."""
    i, j = np.tril_indices(nao)
    square = np.empty((len(rows), nao, nao))
    square[:, i, j] = rows
    square[:, j, i] = rows
    return square


def _require_finite(array: np.ndarray, name: str) -> None:
    if not np.isfinite(array).all():
        place = np.argwhere(~np.isfinite(array))[0]
        raise InputError(f"{name}: expected finite numbers, found {array[tuple(place)]} at {place.tolist()}")
