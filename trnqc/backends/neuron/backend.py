"""The backend of Trainium."""

from __future__ import annotations

import sys

from trnqc.backends.base import BackendStatus
from trnqc.backends.neuron import packages
from trnqc.backends.neuron.device import NeuronDevice, open_device
from trnqc.backends.neuron.support import outside
from trnqc.backends.nki.backend import NkiBackend
from trnqc.tuning.conditions import instance_type, logical_cores


class Neuron(NkiBackend):
    """NKI kernels on a Trainium device."""

    name = "neuron"

    def status(self) -> BackendStatus:
        """The backend is usable with a device and both packages. Otherwise, the status says what is missing."""
        devices = packages.device_files()
        required = [packages.find(name) for name in packages.REQUIREMENTS]
        problems = [package.problem for package in required if package.problem]
        hint = packages.INSTALL if problems else ""
        if not devices:
            problems = ["no /dev/neuron* device", *problems]
            hint = hint or "run on a trn1 or trn2 instance with the driver aws-neuronx-dkms loaded"
        versions = {package.name: package.version for package in required if package.version}
        if problems:
            return BackendStatus(False, "; ".join(problems), hint, versions, devices)
        path = "native device" if packages.native_path() else "PyTorch/XLA"
        reason = f"{path}, {logical_cores()} physical cores a logical core"
        torch_neuronx = packages.release(versions.get("torch-neuronx", ""))
        hint = outside(torch_neuronx, sys.version_info[:2], instance_type())
        return BackendStatus(True, reason, hint, versions, devices)

    def devices(self) -> tuple[NeuronDevice, ...]:
        return (open_device(),)
