"""The backend of NVIDIA GPUs."""

from __future__ import annotations

from trnqc.backends.base import Backend, BackendStatus
from trnqc.backends.cuda.status import status
from trnqc.jit import device


class Cuda(Backend):
    """NVIDIA GPUs, to which integrals and tensor products send generated programs."""

    name = "cuda"

    def status(self) -> BackendStatus:
        return status()

    def devices(self) -> tuple[device.CudaDevice, ...]:
        return device.cuda_devices()
