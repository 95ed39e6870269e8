"""The simulator that runs the kernels: the vendor's if its package is installed, else ``trnqc.sim``."""

from __future__ import annotations

from nki_kernels.lang import REAL, nki
from trnqc.backends.base import BackendStatus
from trnqc.sim.launch.targets import target_from_environment

SIMULATOR = f"vendor's simulator, nki {nki.__version__}" if REAL else "trnqc.sim, strict stand-in for nki"


def status() -> BackendStatus:
    """The simulator is always usable."""
    return BackendStatus(True, versions={"nki": SIMULATOR}, devices=(f"simulated {target_from_environment().name}",))
