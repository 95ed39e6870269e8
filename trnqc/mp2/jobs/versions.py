"""Names and versions of what a result stands on."""

from __future__ import annotations

import platform

import numpy as np
import pyscf

from trnqc import __version__
from trnqc.host.blas import numpy_blas


def versions() -> dict[str, str]:
    """trnqc, Python, PySCF, NumPy and the BLAS library that NumPy calls."""
    return {
        "trnqc": __version__,
        "python": platform.python_version(),
        "pyscf": pyscf.__version__,
        "numpy": np.__version__,
        "blas": str(numpy_blas()),
    }
