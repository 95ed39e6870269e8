"""The device of tensors: kernels that are launched on tensors where they are, without a copy to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_kernels.descriptors.descriptor import KernelFunction
from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.neuron.launch import launch, to_tensor
from trnqc.backends.neuron.packages import logical_cores
from trnqc.tuning.conditions import machine_target


class TensorDevice:
    """An `NkiDevice` whose arrays are tensors on a Trainium device, or on the CPU inside `launch.host_kernels`.

    Parameters
    ----------
    device
        The device of the tensors.
    """

    pairs_a_launch = 4096

    def __init__(self, device: Any):
        self.device, self.target = device, machine_target()
        self.cores = logical_cores() if device.type != "cpu" else 1

    @property
    def label(self) -> str:
        return f"NKI kernels on device {self.device}"

    def identity(self) -> dict[str, str]:
        """See `NkiDevice.identity`."""
        return NeuronDevice(self.device, self.cores).identity()

    def put(self, array: Any) -> Any:
        """A tensor of the device. Tensors are returned as they are, and arrays of NumPy are copied."""
        return to_tensor(array).to(self.device) if isinstance(array, np.ndarray) else array.contiguous()

    def call(self, kernel: KernelFunction, *args: Any, **constants: int) -> Any:
        """Launch a kernel and return its result, which stays on the device."""
        return launch(kernel, *args, **constants)
