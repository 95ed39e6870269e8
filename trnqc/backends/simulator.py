"""The NKI kernels on this machine: the vendor's simulator where its wheel is installed, else ``trnqc.sim``.

For correctness, not for speed: every instruction is checked against the rules of the machine and executed by NumPy.
"""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nki_kernels.batched_contraction import batched_contraction
from nki_kernels.gemm import gemm
from nki_kernels.lang import REAL, nki
from nki_kernels.mp2_plan import split
from trnqc.backends import nki_host
from trnqc.backends.base import BackendStatus, Progress, check_precision, product_operands
from trnqc.sim.launch.targets import target_from_environment
from trnqc.types import PairEnergies

_SIMULATOR = f"vendor's simulator, nki {nki.__version__}" if REAL else "trnqc.sim, strict stand-in for nki"


def _target() -> str:
    return target_from_environment().name


def _ran_on() -> str:
    return f"NKI kernels on {_SIMULATOR}, target {_target()}"


class SimulatedDevice:
    """``nki_host.Device``: arrays stay where they are, kernels run under ``simulate``."""

    cores = 1
    pairs_a_launch = 64

    def __init__(self) -> None:
        self.target = _target()

    def put(self, array: np.ndarray) -> np.ndarray:
        return array

    def call(self, kernel: Any, *args: Any) -> np.ndarray:
        # The vendor's simulator takes the newest generation's looser limits when nothing is set.
        os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", _target())
        return nki.simulate(kernel)(*args)


class Simulator:
    """NKI kernels under a simulator on the host."""

    name = "simulator"
    precisions = nki_host.PRECISIONS

    def status(self) -> BackendStatus:
        return BackendStatus(True, versions={"nki": _SIMULATOR}, devices=(f"simulated {_target()}",))

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=False)
        return SimulatedDevice().call(gemm, split(a_t, precision), split(b, precision))

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=True)
        return SimulatedDevice().call(batched_contraction, split(a_t, precision), split(b, precision))

    def mp2_pairs(
        self,
        B: Any,
        eps_occ: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        max_memory: float | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        check_precision(self, precision)
        return nki_host.mp2_pairs(
            SimulatedDevice(), B, eps_occ, eps_vir, precision=precision, fused=fused, max_memory=max_memory,
            progress=progress, ran_on=_ran_on(),
        )  # fmt: skip

    def mp2_pair_block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        check_precision(self, precision)
        return nki_host.mp2_pair_block(
            SimulatedDevice(), left, right, eps_left, eps_right, eps_vir, precision=precision, fused=fused,
            progress=progress, ran_on=_ran_on(),
        )  # fmt: skip

    def pair_block_bytes(
        self, m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool = True, threads: int | None = None
    ) -> int:
        check_precision(self, precision)
        return nki_host.pair_block_bytes(m, n, nvir, naux, precision=precision, fused=fused, target=_target())
