"""Electron repulsion integrals by Head-Gordon-Pople recurrences, generated for the shells at hand, up to J and K.

shell class -> recurrence graph -> schedule -> program (gen) -> compiled kernel (jit) -> integrals, J, K
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.eri.api import get_jk
    from trnqc.eri.gradient.builder import jk_gradient
    from trnqc.eri.integrals import int2c2e, int2e, int3c2e
    from trnqc.eri.jk.builder import JKBuilder

__all__ = ["JKBuilder", "get_jk", "int2c2e", "int2e", "int3c2e", "jk_gradient"]

# PySCF takes a second to import, and modules of this room are imported one by one.
_HOMES = {
    "JKBuilder": "trnqc.eri.jk.builder",
    "get_jk": "trnqc.eri.api",
    "int2c2e": "trnqc.eri.integrals",
    "int2e": "trnqc.eri.integrals",
    "int3c2e": "trnqc.eri.integrals",
    "jk_gradient": "trnqc.eri.gradient.builder",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
