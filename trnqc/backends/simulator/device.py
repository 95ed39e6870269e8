"""A simulated NeuronCore."""

from __future__ import annotations

import functools
import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from nki_kernels.lang import REAL, nki
from trnqc import sim
from trnqc.backends.nki.launch import launch
from trnqc.sim.machine.arithmetic import arithmetic_from_environment
from trnqc.sim.machine.targets import target_from_environment
from trnqc.tuning.requests import kernel_named

# The vendor's simulator if its package is installed, else the one of this project.
SIMULATOR = f"vendor's simulator, nki {nki.__version__}" if REAL else "trnqc.sim, strict stand-in for nki"


@functools.cache
def _source_digest() -> str:
    """A digest of the source of the simulator, which decides what it computes."""
    digest = hashlib.sha256()
    for path in sorted(Path(sim.__file__).parent.rglob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()[:16]


class SimulatedCore:
    """A simulated core (see `NkiDevice`). Its arrays are NumPy arrays."""

    cores = 1
    pairs_a_launch = 64

    def __init__(self) -> None:
        self.target = target_from_environment().name

    @property
    def label(self) -> str:
        return f"NKI kernels on {SIMULATOR}, target {self.target}"

    def identity(self) -> dict[str, str]:
        """The target, the simulator and its source, and how it rounds products."""
        rounding = asdict(arithmetic_from_environment())
        return {"target": self.target, "simulator": SIMULATOR, "source": _source_digest(), **rounding}

    def put(self, array: np.ndarray) -> np.ndarray:
        return array

    def call(self, kernel: str, *args: Any, **constants: Any) -> Any:
        # Without this variable, the vendor's simulator applies the weaker limits of the newest generation.
        os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", self.target)
        return launch(kernel_named(kernel), *args, **constants)
