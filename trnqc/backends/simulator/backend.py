"""The backend of simulated NKI kernels."""

from __future__ import annotations

from trnqc.backends.base import BackendStatus
from trnqc.backends.nki.backend import NkiBackend
from trnqc.backends.simulator.device import SimulatedCore
from trnqc.backends.simulator.status import status


class Simulator(NkiBackend):
    """NKI kernels on a simulator."""

    name = "simulator"

    def status(self) -> BackendStatus:
        return status()

    def devices(self) -> tuple[SimulatedCore, ...]:
        return (SimulatedCore(),)
