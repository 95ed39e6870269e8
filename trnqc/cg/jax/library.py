"""The handlers of XLA's foreign function interface, compiled against the installed JAX and registered when needed."""

from __future__ import annotations

import ctypes
import functools
from pathlib import Path

import jax

from trnqc.cg.cpp import SHARED
from trnqc.jit.cpp import shared_library

# The sources of each handler, by its name in the library and in XLA.
SOURCES = {"trnqc_cg": ("products.cpp", "graph.h"), "trnqc_cg_contraction": ("contraction.cpp", "contraction.h")}
FOLDER = Path(__file__).parent


@functools.cache
def register(target: str) -> None:
    """Register a handler with XLA, compiled at the first call.

    Raises CompilerError if there is no C++ compiler, or if the compiler fails.
    """
    main, header = SOURCES[target]
    headers = (FOLDER / "kernels.h", SHARED / header, SHARED / "call.h")
    flags, folders = (f"-DJAX_{jax.__version__.replace('.', '_')}",), (f"-isystem{jax.ffi.include_dir()}",)
    path = shared_library(target.replace("_", "-"), FOLDER / main, headers, flags, ("-ldl",), folders)
    handler = getattr(ctypes.CDLL(str(path)), target)
    jax.ffi.register_ffi_target(target, jax.ffi.pycapsule(handler), platform="cpu")
