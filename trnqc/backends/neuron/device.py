"""A Trainium device, whose arrays are PyTorch tensors."""

from __future__ import annotations

import importlib
from typing import Any

import numpy as np

from trnqc.backends.neuron import packages
from trnqc.backends.nki.launch import launch, launched_on_host
from trnqc.backends.nki.vendor import fetched, to_tensor
from trnqc.tuning.conditions import device_identity, instance_type, logical_cores, machine_target
from trnqc.tuning.requests import kernel_named


class NeuronDevice:
    """An `NkiDevice` for PyTorch's device "neuron" or "xla", or for "cpu" inside `host_kernels`."""

    pairs_a_launch = 4096

    def __init__(self, device: Any, cores: int):
        self.device, self.cores, self.target = device, cores, machine_target()

    @property
    def label(self) -> str:
        versions = (f", {name} {version}" for name, version in packages.versions().items())
        return f"NKI kernels on device {self.device}, {self.cores} physical cores{''.join(versions)}"

    def identity(self) -> dict[str, str]:
        """The instance, the generation, the path to the device, the versions of the packages, and the flags."""
        here = {"instance": instance_type(), "target": self.target, "cores": str(self.cores)}
        return here | {"device": str(self.device), "host": launched_on_host()} | device_identity()

    def put(self, array: np.ndarray) -> Any:
        return to_tensor(array).to(self.device)

    def call(self, kernel: str, *args: Any, **constants: Any) -> Any:
        return fetched(launch(kernel_named(kernel), *args, **constants))


def open_device() -> NeuronDevice:
    """The first device of this process, native or of PyTorch/XLA depending on the installed torch-neuronx."""
    if packages.native_path():
        return NeuronDevice("neuron", logical_cores())
    return NeuronDevice(importlib.import_module("torch_xla").device(), logical_cores())
