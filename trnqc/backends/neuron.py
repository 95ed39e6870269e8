"""The NKI kernels on a Trainium device, through torch-neuronx: native ("neuron" tensors) where it offers that, else
PyTorch/XLA.

Arrays are prepared, packed and added up on the host as for the simulator (``nki_host``); only the launch differs.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

from nki_kernels.batched_contraction import batched_contraction, reference_batched_contraction
from nki_kernels.gemm import gemm, reference_gemm
from nki_kernels.mp2_energy import mp2_energy, reference_mp2_energy
from nki_kernels.mp2_plan import split
from trnqc.backends import neuron_packages as packages
from trnqc.backends import nki_host
from trnqc.backends.base import BackendStatus, Progress, check_precision, product_operands
from trnqc.backends.torch_launch import launch, to_numpy, to_tensor
from trnqc.tuning.instruments import machine_target
from trnqc.types import PairEnergies

_REFERENCES: dict[Any, Callable[..., Any]] = {
    gemm: reference_gemm,
    batched_contraction: reference_batched_contraction,
    mp2_energy: reference_mp2_energy,
}


class TorchDevice:
    """``nki_host.Device`` over torch tensors: "neuron", "xla", or "cpu" within ``torch_launch.host_kernels``."""

    pairs_a_launch = 4096

    def __init__(self, device: Any, cores: int):
        self.device, self.cores, self.target = device, cores, machine_target()

    def put(self, array: np.ndarray) -> Any:
        return to_tensor(array).to(self.device)

    def call(self, kernel: Any, *args: Any) -> np.ndarray:
        return to_numpy(launch(kernel, _REFERENCES[kernel], *args).cpu())


def native_path() -> bool:
    """Whether the installed torch-neuronx has the native device and its operator registration."""
    return hasattr(importlib.import_module("torch_neuronx"), "wrap_nki")


def open_device() -> TorchDevice:
    """The first device of this process, by the path that the installed torch-neuronx offers."""
    if native_path():
        return TorchDevice("neuron", packages.logical_cores())
    return TorchDevice(importlib.import_module("torch_xla").device(), packages.logical_cores())


class Neuron:
    """Trainium. Precisions are those of the tensor engine: there is no fp64."""

    name = "neuron"
    precisions = nki_host.PRECISIONS

    def status(self) -> BackendStatus:
        devices = packages.device_files()
        found = [packages.find(name) for name in packages.WANTED]
        problems = [package.problem for package in found if package.problem]
        hint = packages.INSTALL if problems else ""
        if not devices:
            problems = ["no /dev/neuron* device", *problems]
            hint = hint or "run on a trn1 or trn2 instance with the driver aws-neuronx-dkms loaded"
        versions = {package.name: package.version for package in found if package.version}
        if problems:
            return BackendStatus(False, "; ".join(problems), hint, versions, devices)
        path = "native device" if native_path() else "PyTorch/XLA"
        reason = f"{path}, {packages.logical_cores()} physical cores a logical core"
        return BackendStatus(True, reason, "", versions, devices)

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=False)
        return self._product(gemm, a_t, b, precision)

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        check_precision(self, precision)
        a_t, b = product_operands(a_t, b, stacked=True)
        return self._product(batched_contraction, a_t, b, precision)

    def _product(self, kernel: Any, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        device = self._device()
        return device.call(kernel, *(device.put(split(x, precision)) for x in (a_t, b)))

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
        device = self._device()
        return nki_host.mp2_pairs(
            device, B, eps_occ, eps_vir, precision=precision, fused=fused, max_memory=max_memory, progress=progress,
            ran_on=self._ran_on(device),
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
        device = self._device()
        return nki_host.mp2_pair_block(
            device, left, right, eps_left, eps_right, eps_vir, precision=precision, fused=fused, progress=progress,
            ran_on=self._ran_on(device),
        )  # fmt: skip

    def pair_block_bytes(
        self, m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool = True, threads: int | None = None
    ) -> int:
        check_precision(self, precision)
        target = self._device().target
        return nki_host.pair_block_bytes(m, n, nvir, naux, precision=precision, fused=fused, target=target)

    def _ran_on(self, device: TorchDevice) -> str:
        versions = ", ".join(f"{name} {version}" for name, version in self.status().versions.items())
        return f"NKI kernels on device {device.device}, {device.cores} physical cores, {versions}"

    def _device(self) -> TorchDevice:
        return open_device()
