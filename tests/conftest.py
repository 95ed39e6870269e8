"""Settings of all tests. They are made before anything imports NumPy, and processes that tests start inherit them."""

from __future__ import annotations

import gc
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
from pathlib import Path

import pyscf.lib  # noqa: F401
import pytest

from tests.pairwise import pairwise
from trnqc.jit import compiler

# Tests that take longer than about a second on two idle cores, one a line; `python -m scripts.changed.long` writes it.
LONG = Path(__file__).parent / "long.txt"


def pytest_addoption(parser):
    parser.addoption(
        "--quick", action="store_true", help="leave out long tests, and of stacked parameters all but pairs of values"
    )


def pytest_configure(config):
    # What kernels compute does not depend on the optimiser, which takes a third of the compiler's time. Kernels of the
    # processes that tests start, and all those of the long tests, have the flags of users.
    if config.getoption("quick"):
        compiler.WANTED_FLAGS = tuple("-O1" if flag == "-O3" else flag for flag in compiler.WANTED_FLAGS)


def pytest_collection_finish():
    # What is there now stays: the collector need not go through it again and again.
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    if not config.getoption("quick"):
        return
    long = set(LONG.read_text(encoding="utf-8").splitlines())
    short = [item for item in items if item.nodeid not in long]
    run, _ = pairwise(short)
    kept = set(map(id, run))
    config.hook.pytest_deselected(items=[item for item in items if id(item) not in kept])
    items[:] = run
