"""Binds the names that kernels are written in: the real ``nki`` where it is installed, else the simulator.

``REAL`` says which. Public packages of the vendor's names are stubs that raise on import; they count as absent.
"""

from __future__ import annotations

from trnqc.sim.launch.install import find_real_nki

REAL = find_real_nki() is not None

if REAL:
    import nki
    import nki.isa as nisa
    import nki.language as nl
else:
    import trnqc.sim as nki
    import trnqc.sim.nki.isa as nisa
    import trnqc.sim.nki.language as nl

__all__ = ["REAL", "nisa", "nki", "nl"]
