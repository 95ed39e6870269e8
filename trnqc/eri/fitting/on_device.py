"""J and K from fitted integrals on an accelerator, for the early cycles of an SCF.

fitted integrals -> kept on the device -> J and K of each density -> a sample of both is computed again in double
precision -> accepted, or PrecisionError
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from pyscf import lib

from trnqc import backends
from trnqc.backends.fitted_jk import FittedJK
from trnqc.eri.fitting import jk
from trnqc.errors import InputError, PrecisionError, UnsupportedPrecision

# Backends that compute J and K from fitted integrals.
BACKENDS = ("simulator", "neuron")
# Functions, and fitting functions, whose J and K are computed again.
SAMPLE = 3


def check(backend: str, precision: str) -> None:
    """Raise InputError, BackendUnavailable or UnsupportedPrecision if a backend cannot compute fitted J and K in a
    precision.
    """
    if backend not in BACKENDS:
        raise InputError(f"fitted J and K run on one of {', '.join(BACKENDS)}, found {backend!r}")
    device = backends.get(backend)
    if precision not in device.fitted_precisions:
        raise UnsupportedPrecision(
            f"backend {backend!r} computes J and K in {', '.join(device.fitted_precisions)}; found "
            f"early_precision={precision!r}. The last cycles of an SCF are in fp64, on the host, in any case"
        )


def on_device(backend: str, precision: str, room: float) -> Callable[[np.ndarray], DeviceProducts]:
    """Return the function that copies fitted integrals [naux, pairs] to a device; room: bytes that it may allocate."""
    return lambda rows: DeviceProducts(
        backends.get(backend).fitted_jk(rows, precision=precision, max_memory=room), rows, backend
    )


class DeviceProducts:
    """J and K of one molecule on a device, see `trnqc.eri.fitting.rounded.ReducedProducts`; `builds` counts their
    computations.

    `rows` [naux, pairs] are the integrals of `device` in double precision.
    """

    def __init__(self, device: FittedJK, rows: np.ndarray, backend: str) -> None:
        self._device, self._rows, self.backend, self.builds = device, rows, backend, 0
        nao = int((np.sqrt(8 * rows.shape[1] + 1) - 1) / 2)
        self._functions = _spread(nao)
        # (Q|ij) of the sampled functions i with all functions j.
        self._integrals = rows[:, [[_pair(i, j) for j in range(nao)] for i in self._functions]]

    @property
    def words(self) -> str:
        """The backend and the precision."""
        return f"{self.backend} {self._device.precision}"

    @property
    def label(self) -> str:
        """Description of the device that computes J and K, and of the precision."""
        return f"{self._device.label}, {self._device.precision}"

    @property
    def rounding(self) -> float:
        """The relative error of one number."""
        return self._device.rounding

    def __call__(
        self, orbitals: Sequence[np.ndarray], changes: np.ndarray | None, norms: np.ndarray, room: float
    ) -> tuple[np.ndarray | None, np.ndarray]:
        """See `trnqc.eri.fitting.rounded.ReducedProducts`. Raises InputError if a density is not finite; PrecisionError
        if the sample is less accurate than the precision promises.
        """
        self.builds += 1
        vks = np.array([self._exchange(c) for c in orbitals])
        return (None if changes is None else self._coulomb(changes)), vks

    def _exchange(self, orbitals: np.ndarray) -> np.ndarray:
        vk = self._device.exchange(orbitals)
        half = self._integrals @ orbitals
        # X and X Xᵀ are sums of products: the error of each is relative to the sum of the magnitudes of its terms.
        bound = np.abs(self._integrals) @ np.abs(orbitals)
        exact, scale = (np.einsum("qsi,qti->st", x, x, optimize=True) for x in (half, bound))
        self._require("K", vk[np.ix_(self._functions, self._functions)], exact, 3 * scale)
        return vk

    def _coulomb(self, changes: np.ndarray) -> np.ndarray:
        folded, rows = jk.packed_densities(changes), _spread(len(self._rows))
        packed, fitted = self._device.coulomb(folded)
        some = self._rows[rows]
        self._require("the fitted density", fitted[:, rows], folded @ some.T, np.abs(folded) @ np.abs(some).T)
        pairs = [_pair(i, j) for i in self._functions for j in self._functions]
        some = self._rows[:, pairs]
        self._require("J", packed[:, pairs], fitted @ some, np.abs(fitted) @ np.abs(some))
        return np.array(lib.unpack_tril(packed))

    def _require(self, what: str, values: np.ndarray, exact: np.ndarray, scale: np.ndarray) -> None:
        """Raise PrecisionError if values are not as accurate as promised relative to the magnitudes of their terms."""
        error = float(np.max(np.abs(values - exact) / np.maximum(scale, np.finfo(np.float32).tiny), initial=0.0))
        if not error <= self._device.promised:
            raise PrecisionError(
                f"{what} by {self.label} has an error of {error:.1e} relative to the magnitudes of its terms, promised "
                f"are {self._device.promised:.1e}: use a more accurate early_precision, or backend='cpu' "
                "(docs/precision.md)"
            )


def _pair(i: int, j: int) -> int:
    """The place of a pair of functions in a packed row."""
    return max(i, j) * (max(i, j) + 1) // 2 + min(i, j)


def _spread(count: int) -> np.ndarray:
    """Return SAMPLE indices below a count at equal distances, or all indices if there are fewer."""
    return np.unique(np.linspace(0, count - 1, SAMPLE).astype(int))
