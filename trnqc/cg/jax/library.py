"""The handler of XLA's foreign function interface, compiled against the headers of the installed JAX and registered."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import jax

from trnqc.cg.cpp.compiler import SHARED, shared_library

# Name of the handler, in the library and in XLA.
TARGET = "trnqc_cg"
HEADERS = (SHARED / "graph.h", SHARED / "call.h")


@functools.cache
def register() -> None:
    """Register the handler with XLA. It is compiled at the first call.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it fails.
    """
    flags = (f"-isystem{jax.ffi.include_dir()}",)
    main = Path(__file__).parent / "handlers.cpp"
    path = shared_library("cg-jax", main, HEADERS, flags, ("-ldl", f"-DJAX_{jax.__version__.replace('.', '_')}"))
    handler = getattr(ctypes.CDLL(str(path)), TARGET)
    jax.ffi.register_ffi_target(TARGET, jax.ffi.pycapsule(handler), platform="cpu")
