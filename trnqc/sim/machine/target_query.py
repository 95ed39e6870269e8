"""Queries of the current target, for use in kernels."""

from __future__ import annotations

from trnqc.sim.machine import machine
from trnqc.sim.machine.targets import nc_version, target_from_environment


def get_nc_version() -> nc_version:
    """Return the generation of the current target."""
    run = machine.running()
    return (run.target if run is not None else target_from_environment()).version


def get_nc_sub_version() -> int:
    """Return the silicon revision within the generation. The simulator always returns 0, the first."""
    return 0
