"""J, K and their derivatives from integrals that are not stored, by all ranks."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.pyscf.shared.work import Key, SharedWork


class SharedBuilder:
    """Replaces a JKBuilder on rank 0 and has all ranks compute J and K."""

    def __init__(self, shared: SharedWork, mol: gto.Mole, key: Key) -> None:
        self.shared, self.mol, self.key = shared, mol, key
        shared.ask_of(mol, "compile", key)

    @property
    def ran_on(self) -> str:
        """Description of the code that computes J and K."""
        return self.shared.builder(self.key).ran_on

    @property
    def quick_kernels(self) -> int:
        """The number of kernels in their quick form: ranks wait for the kernels themselves."""
        return self.shared.builder(self.key).quick_kernels

    def get_jk(
        self, dm: Any, hermi: int = 1, with_j: bool = True, with_k: bool = True, cutoff: float | None = None
    ) -> tuple[Any, Any]:
        """Compute J and K as `JKBuilder.get_jk` does."""
        return self.shared.ask_of(self.mol, "direct", self.key, np.asarray(dm), hermi, with_j, with_k, cutoff)


class SharedGradientBuilder:
    """Replaces a GradientBuilder on rank 0 and has all ranks compute derivatives of J and K."""

    def __init__(self, shared: SharedWork, mol: gto.Mole, key: Key) -> None:
        self.shared, self.mol, self.key = shared, mol, key

    @property
    def ran_on(self) -> str:
        """Description of the code that computes the derivatives."""
        return programs.words() + self.shared.among

    def get_jk(self, dm: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """Compute derivatives as `GradientBuilder.get_jk` does."""
        return self.shared.ask_of(self.mol, "derivatives", self.key, np.asarray(dm), with_j, with_k)
