"""What holds for all tests."""

from __future__ import annotations

import os

# Workers of pytest-xdist share the cores: threads of OpenMP and BLAS in each of them would spend the time waiting for
# one another. Set before anything imports NumPy, and inherited by the processes that tests start.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
