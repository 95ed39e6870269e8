"""The dense linear algebra of a device: cuBLAS and cuSOLVER for a GPU, NumPy and SciPy for a simulated one."""

from __future__ import annotations

from trnqc.backends.cuda.products import CublasProducts, Gpu, SimulatedProducts
from trnqc.backends.cuda.solvers import CusolverSolvers, SimulatedSolvers
from trnqc.errors import BackendUnavailable
from trnqc.jit.device import CudaDevice, Device
from trnqc.jit.simulated_device import SimulatedDevice


def with_libraries(device: Device) -> Gpu:
    """Return a device with its matrix products and solvers. Raises BackendUnavailable if a library is missing."""
    if isinstance(device, CudaDevice):
        return Gpu(device, CublasProducts(device), CusolverSolvers(device))
    if isinstance(device, SimulatedDevice):
        return Gpu(device, SimulatedProducts(device), SimulatedSolvers(device))
    raise BackendUnavailable(f"{device.name} has no linear algebra: GPUs and simulated devices have")
