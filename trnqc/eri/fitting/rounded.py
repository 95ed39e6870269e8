"""J and K from fitted integrals that are rounded to single precision.

exact rows -> rounded rows -> K of a density, and J of its difference from the first density, whose J is exact

The elements of J are large and cancel with the attraction of the nuclei. Between two densities of one SCF J changes by
a hundredth of itself or less, so that the rounding error of J stays below that of K.
"""

from __future__ import annotations

from itertools import repeat
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.tagged import fitted_jk
from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.host.arrays import zeros


class RoundedIntegrals:
    """Fitted integrals in single precision for the densities of one SCF.

    Parameters
    ----------
    exact [naux, pairs]
        The integrals in double precision.

    Attributes
    ----------
    exchange [..., nao, nao]
        K of the last call.
    """

    def __init__(self, exact: np.ndarray) -> None:
        self._exact, self._rows = exact, zeros(exact.shape, np.float32)
        with single_threaded_pool(lib.num_threads()) as pool:
            list(pool.map(np.copyto, self._rows, exact, repeat("same_kind")))
        self._first: tuple[np.ndarray, np.ndarray] | None = None
        self.exchange = np.zeros((0, 0))

    def jk(self, dm: Any, norms: np.ndarray, with_j: bool, room: float) -> tuple[np.ndarray | None, np.ndarray]:
        """Compute J, or None, and K of densities [..., nao, nao] that are tagged with their orbitals.

        Other arguments are as in `trnqc.eri.fitting.jk`.
        """
        self.exchange = vk = fitted_jk(self._rows, dm, norms, False, True, room)[1]
        return (self._coulomb(np.asarray(dm), norms) if with_j else None), vk

    def _coulomb(self, dm: np.ndarray, norms: np.ndarray) -> np.ndarray:
        square = dm.reshape(-1, *dm.shape[-2:])
        if self._first is None or self._first[0].shape != dm.shape:
            exact = jk.coulomb(self._exact, square, norms).reshape(dm.shape)
            self._first = dm.copy(), exact
            return exact
        first, exact = self._first
        return exact + jk.coulomb(self._rows, square - first.reshape(square.shape), norms).reshape(dm.shape)
