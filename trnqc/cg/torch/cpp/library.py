"""The library of operators, compiled by the machine's C++ compiler against the headers of the installed PyTorch."""

from __future__ import annotations

import platform
from pathlib import Path

import torch
from torch.utils import cpp_extension

from trnqc.cg.cpp import SHARED
from trnqc.jit.cpp import shared_library

FOLDER = Path(__file__).parent
HEADERS = (
    *(FOLDER / name for name in ("products.h", "contractions.h", "kernels.h")),
    *(SHARED / name for name in ("graph.h", "contraction.h", "call.h", "cpu.h")),
)
# The libraries of PyTorch that programs with its operators are linked with.
LINKED = ("-ltorch", "-ltorch_cpu", "-lc10")


def operators_library() -> Path:
    """Return the path of the library of operators in the cache. It is compiled at the first call.

    Raises
    ------
    CompilerError
        If there is no C++ compiler, or if it fails.
    """
    version = f'-DTRNQC_TORCH="{torch.__version__}"'
    flags = ("-fopenmp", "-DAT_PARALLEL_OPENMP=1", version, *torch_defines())
    return shared_library("cg-operators", FOLDER / "operators.cpp", HEADERS, flags, LINKED, torch_folders())


def torch_defines() -> tuple[str, ...]:
    """Return the macros that the headers of PyTorch and ours expect."""
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f'-DTRNQC_MACHINE="{platform.machine()}"'


def torch_folders() -> tuple[str, ...]:
    """Return the options that name the folders of PyTorch's headers and libraries."""
    folders = cpp_extension.library_paths()
    places = [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    return *(f"-isystem{path}" for path in cpp_extension.include_paths()), *places
