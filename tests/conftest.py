"""Settings of all tests. They are made before anything imports NumPy, and processes that tests start inherit them."""

from __future__ import annotations

import os

# Tests of the kernels need the kernels: PySCF's integrals would serve while they are being compiled.
os.environ["TRNQC_KERNELS"] = "wait"

# Where there is a GPU, JAX would take it, and most of its memory; tests of JAX are those of the CPU.
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# Workers of pytest-xdist share the cores: threads of OpenMP and BLAS in each of them would spend the time waiting for
# one another.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# PySCF keeps the standard output of the time of its import for all that it prints later. Imported first by a test whose
# output is captured, it would keep a file that is closed when the test ends.
import pyscf.lib  # noqa: F401
