"""The names with which kernels are written: those of the vendor's ``nki`` if it is installed, else of the simulator.

``REAL`` tells which. The packages on PyPI with the vendor's names are stubs that raise an error on import. They count
as absent. A vendor's ``nki`` before 0.6 is an error, because it has no ``nl.fori_loop``.
"""

from __future__ import annotations

from trnqc.sim.launch.install import nki_for_kernels

REAL = nki_for_kernels() is not None

if REAL:
    import nki
    import nki.isa as nisa
    import nki.language as nl
else:
    import trnqc.sim as nki
    import trnqc.sim.nki.isa as nisa
    import trnqc.sim.nki.language as nl

__all__ = ["REAL", "nisa", "nki", "nl"]
