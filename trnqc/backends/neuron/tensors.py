"""The device of tensors: kernels that are launched on tensors where they are, without a copy to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.nki.launch import launch
from trnqc.tuning.conditions import logical_cores
from trnqc.tuning.requests import kernel_named


class TensorDevice(NeuronDevice):
    """A `NeuronDevice` whose arrays and results are tensors, or one on the CPU inside `host_kernels`.

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

    def call(self, kernel: str, *args: Any, **constants: Any) -> Any:
        """Launch a kernel and return its result, which stays on the device."""
        return launch(kernel_named(kernel), *args, **constants)
