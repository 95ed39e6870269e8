"""PySCF's numerical integration of density functionals with our quadrature.

The modules behind it load libxc, so they are imported only for Kohn-Sham objects.
"""

from __future__ import annotations

from typing import Any


def accelerate_quadrature(ni: Any, kernels: str) -> Any:
    """Return PySCF's NumInt with our quadrature. An object of any other class is returned as it is."""
    from pyscf.dft import numint

    from trnqc.xc.numint import NumInt

    return NumInt.of(ni, kernels) if type(ni) is numint.NumInt else ni


def plain_quadrature(ni: Any) -> Any:
    """Return PySCF's NumInt with the state of ours. An object of any other class is returned as it is."""
    from trnqc.xc.numint import NumInt

    return ni.undo() if isinstance(ni, NumInt) else ni
