"""The compiled function that executes lists of small contractions (tape.c).

It is the same for all of them. The first program that could use it has it compiled in the background, once for a
machine.
"""

from __future__ import annotations

import os
from functools import cache
from threading import Thread

from trnqc import jit
from trnqc.backends.cpu.pair_products import source_of
from trnqc.errors import CompilerError

SIGNATURE = jit.Signature(
    "run_tape",
    (
        jit.Parameter("tape", "i64", array=True, ndim=1),
        jit.Parameter("length", "i64"),
        jit.Parameter("addresses", "i64", array=True, ndim=1),
        jit.Parameter("coefficients", "f64", array=True, ndim=1),
        jit.Parameter("starts", "i64", array=True, ndim=1),
    ),
)
# The function, once it is compiled.
_compiled: list[jit.CompiledFunction] = []


def tape_function() -> jit.CompiledFunction | None:
    """Return the function; None if it is not compiled yet, or cannot be.

    With ``TRNQC_KERNELS=wait`` the first call waits until it is compiled.
    """
    compiling = _compiling()
    if os.environ.get("TRNQC_KERNELS") == "wait":
        compiling.join()
    return _compiled[0] if _compiled else None


@cache
def _compiling() -> Thread:
    thread = Thread(target=_compile, name="trnqc-tape", daemon=True)
    thread.start()
    return thread


def _compile() -> None:
    if jit.lacks_compiler():
        return
    try:
        library = jit.compile_c(source_of("tape.c"), [SIGNATURE], name="tape")
    except CompilerError:
        # Callers go on with NumPy, with which they ran before.
        return
    _compiled.append(library.run_tape)
