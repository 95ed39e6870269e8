"""Compile C or CUDA text, or programs of `trnqc.gen`, and call the result from Python. This room knows no chemistry.

signature.py         the named parameters of a compiled function
load.py              the functions of a shared library, called by these names
recipe.py            what rooms of kernels hand over: names, signatures and how to generate functions
compile.py           all stages from a recipe to a loaded library
show.py              a stage of kernels, for those who write them
sources.py           digests of Python sources, as part of cache keys
cache.py             compiled files, named by a digest of everything that they depend on
parallel.py          several builds at the same time
compiler.py          the C compiler of this machine; probed.py keeps what is known about it
shipped.py           compiled files that a wheel brings along
nvcc.py              CUDA text to a cubin and the report of ptxas, without a GPU; occupancy.py evaluates the report
device.py            memory, streams and launches on GPUs, through the optional bindings in gpu.py; not imported here
cubins.py            cubins of recipes, compiled without a GPU; cubin_builder.py builds them ahead of the first use
simulated_device.py  the same on the CPU, for tests, by CUDA text that emulator/ runs; not imported here
cpp.py               the C++ compiler, for operators and for the emulator
"""

from __future__ import annotations

from trnqc.jit.compile import compile_c, in_sequence, library
from trnqc.jit.compiler import Compiler, find_compiler, lacks_compiler
from trnqc.jit.load import CompiledFunction, Library
from trnqc.jit.nvcc import Build, PtxasReport, compile_cuda
from trnqc.jit.parallel import build_all
from trnqc.jit.recipe import Recipe
from trnqc.jit.signature import NUMPY, TYPES, Parameter, Signature

__all__ = [
    "NUMPY",
    "TYPES",
    "Build",
    "CompiledFunction",
    "Compiler",
    "Library",
    "Parameter",
    "PtxasReport",
    "Recipe",
    "Signature",
    "build_all",
    "compile_c",
    "compile_cuda",
    "find_compiler",
    "in_sequence",
    "lacks_compiler",
    "library",
]
