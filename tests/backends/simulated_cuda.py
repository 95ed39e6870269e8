"""The backend of GPUs on simulated devices: the same launches, compiled as C, and products by NumPy."""

from __future__ import annotations

from trnqc.backends.base import BackendStatus
from trnqc.backends.cuda.backend import Cuda
from trnqc.backends.cuda.products import Gpu, SimulatedProducts
from trnqc.jit.simulated_device import SimulatedDevice


class SimulatedCuda(Cuda):
    """Some simulated devices; the options are those of `SimulatedDevice`."""

    name = "simulated cuda"

    def __init__(self, count: int = 1, **options) -> None:
        self.simulated = tuple(SimulatedDevice(f"simulated {n}", streams=3, **options) for n in range(count))

    def status(self) -> BackendStatus:
        return BackendStatus(True, devices=tuple(device.name for device in self.simulated))

    def gpus(self) -> tuple[Gpu, ...]:
        return tuple(Gpu(device, SimulatedProducts(device)) for device in self.simulated)
