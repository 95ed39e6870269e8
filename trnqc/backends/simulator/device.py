"""A simulated NeuronCore."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from nki_kernels.descriptors.descriptor import Launchable
from nki_kernels.lang import REAL, nki
from trnqc.sim.launch.targets import target_from_environment

# The vendor's simulator if its package is installed, else the one of this project.
SIMULATOR = f"vendor's simulator, nki {nki.__version__}" if REAL else "trnqc.sim, strict stand-in for nki"


class SimulatedCore:
    """A simulated core (see `NkiDevice`). Its arrays are NumPy arrays, and ``nki.simulate`` runs the kernels."""

    cores = 1
    pairs_a_launch = 64

    def __init__(self) -> None:
        self.target = target_from_environment().name

    @property
    def label(self) -> str:
        return f"NKI kernels on {SIMULATOR}, target {self.target}"

    def put(self, array: np.ndarray) -> np.ndarray:
        return array

    def call(self, kernel: Launchable, *args: Any, **constants: Any) -> Any:
        # Without this variable, the vendor's simulator applies the weaker limits of the newest generation.
        os.environ.setdefault("NEURON_PLATFORM_TARGET_OVERRIDE", self.target)
        return nki.simulate(kernel.function)(*args, **constants)
