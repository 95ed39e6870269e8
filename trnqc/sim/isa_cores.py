"""Meeting points of the two cores of one launch."""

from __future__ import annotations

from typing import Any

from trnqc.sim import checks, enums, machine
from trnqc.sim.faults import NkiValidationError
from trnqc.sim.memory import MemoryRegion
from trnqc.sim.tensor import NkiTensor


def core_barrier(
    data: NkiTensor, cores: Any, engine: enums.engine = enums.engine.gpsimd, name: str | None = None
) -> None:
    """Wait for the other core; ``data`` is the shared HBM tensor that both work on, ``cores`` is (0, 1)."""
    run = machine.current()
    checks.tensor("core_barrier", "data", data, (MemoryRegion.shared_hbm,))
    enums.member("core_barrier", "engine", engine, enums.engine)
    if run.target.generation < 3 or run.links is None:
        raise NkiValidationError(
            f"core_barrier needs a launch on two cores (kernel[2]) of trn2 or later, got {run.cores} on "
            f"{run.target.name}"
        )
    if tuple(cores) != (0, 1):
        raise NkiValidationError(f"core_barrier cores must be (0, 1), got {cores!r}")
    run.issue("core_barrier", engine.name, (), (data,), name)
    run.links.meet()
