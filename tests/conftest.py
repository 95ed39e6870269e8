"""Settings of all tests. They are made before anything imports NumPy, and processes that tests start inherit them."""

from __future__ import annotations

import os

# Tests of the kernels need the kernels: PySCF's integrals would serve while they are being compiled.
os.environ["TRNQC_KERNELS"] = "wait"

# Workers of pytest-xdist share the cores: threads of OpenMP and BLAS in each of them would spend the time waiting for
# one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
