"""The library of operators, compiled by the machine's C++ compiler against the headers of the installed PyTorch."""

from __future__ import annotations

import platform
from pathlib import Path

import torch
from torch.utils import cpp_extension

from trnqc.cg.cpp.compiler import SHARED, shared_library

FOLDER = Path(__file__).parent
HEADERS = (
    *(FOLDER / name for name in ("products.h", "contractions.h", "kernels.h")),
    *(SHARED / name for name in ("graph.h", "contraction.h", "call.h", "cpu.h")),
)


def operators_library() -> Path:
    """Return the path of the library of operators in the cache. It is compiled at the first call.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it fails.
    """
    flags = ("-fopenmp", "-DAT_PARALLEL_OPENMP=1", f'-DTRNQC_TORCH="{torch.__version__}"', *torch_flags())
    return shared_library("cg-operators", FOLDER / "operators.cpp", HEADERS, flags, torch_libraries())


def torch_flags() -> tuple[str, ...]:
    """Return the compiler's options for the headers of PyTorch."""
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    machine = f'-DTRNQC_MACHINE="{platform.machine()}"'
    return (f"-D_GLIBCXX_USE_CXX11_ABI={abi}", machine, *(f"-isystem{path}" for path in cpp_extension.include_paths()))


def torch_libraries() -> tuple[str, ...]:
    """Return the linker's options for the libraries of PyTorch."""
    folders = cpp_extension.library_paths()
    paths = [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    return (*paths, "-ltorch", "-ltorch_cpu", "-lc10")
