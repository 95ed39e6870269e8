"""The backend of simulated NKI kernels."""

from __future__ import annotations

from trnqc.backends.base import BackendStatus
from trnqc.backends.nki.backend import NkiBackend
from trnqc.backends.simulator.device import SIMULATOR, SimulatedCore
from trnqc.sim.machine.targets import target_from_environment


class Simulator(NkiBackend):
    """NKI kernels on a simulator."""

    name = "simulator"

    def status(self) -> BackendStatus:
        """The simulator is always usable."""
        device = f"simulated {target_from_environment().name}"
        return BackendStatus(True, versions={"nki": SIMULATOR}, devices=(device,))

    def devices(self) -> tuple[SimulatedCore, ...]:
        return (SimulatedCore(),)
