"""The backend of Trainium."""

from __future__ import annotations

from trnqc.backends.base import BackendStatus
from trnqc.backends.neuron.device import NeuronDevice, open_device
from trnqc.backends.neuron.status import status
from trnqc.backends.nki.backend import NkiBackend


class Neuron(NkiBackend):
    """NKI kernels on a Trainium device."""

    name = "neuron"

    def status(self) -> BackendStatus:
        return status()

    def devices(self) -> tuple[NeuronDevice, ...]:
        return (open_device(),)
