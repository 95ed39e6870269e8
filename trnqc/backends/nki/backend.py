"""A backend of NKI kernels: operands are prepared on the host, and a device runs the kernels.

a_t, b -> split into the parts of the precision -> one launch -> product
B      -> packed factors and work lists -> launches -> pair energies (pairs.py)
"""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_kernels.descriptors import kernels
from nki_kernels.mp2_plan import split
from trnqc.backends.base import Backend, PairOptions
from trnqc.backends.nki import pairs
from trnqc.backends.nki.device import PRECISIONS, NkiDevice
from trnqc.types import PairEnergies


class NkiBackend(Backend):
    """Base of both; a subclass gives its name, its status and its devices, of which the first one is used."""

    precisions = PRECISIONS

    def devices(self) -> tuple[NkiDevice, ...]:
        raise self._without("devices")

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        name, device = "gemm" if a_t.ndim == 2 else "batched_contraction", self.devices()[0]
        return device.call(kernels()[name], *(device.put(split(x, precision)) for x in (a_t, b)))

    def _mp2_pairs(
        self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None, options: PairOptions
    ) -> PairEnergies:
        return pairs.mp2_pairs(self.devices()[0], B, eps_occ, eps_vir, max_memory, options)

    def _mp2_pair_block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
        options: PairOptions,
    ) -> PairEnergies:
        return pairs.mp2_pair_block(self.devices()[0], left, right, eps_left, eps_right, eps_vir, options)

    def _pair_block_bytes(self, m: int, n: int, nvir: int, naux: int, options: PairOptions) -> int:
        return pairs.pair_block_bytes(m, n, nvir, naux, self.devices()[0].target, options)
