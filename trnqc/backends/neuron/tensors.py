"""The device of tensors: kernels that are launched on tensors where they are, without a copy to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from nki_kernels.descriptors.descriptor import KernelFunction
from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.neuron.launch import launch
from trnqc.backends.neuron.packages import logical_cores


class TensorDevice(NeuronDevice):
    """A `NeuronDevice` whose arrays and results are tensors, or one on the CPU inside `launch.host_kernels`.

    Parameters
    ----------
    device
        The device of the tensors.
    """

    def __init__(self, device: Any):
        super().__init__(device, logical_cores() if device.type != "cpu" else 1)

    def put(self, array: Any) -> Any:
        """A tensor of the device. Tensors are returned as they are, and arrays of NumPy are copied."""
        return super().put(array) if isinstance(array, np.ndarray) else array.contiguous()

    def call(self, kernel: KernelFunction, *args: Any, **constants: int) -> Any:
        """Launch a kernel and return its result, which stays on the device."""
        return launch(kernel, *args, **constants)
