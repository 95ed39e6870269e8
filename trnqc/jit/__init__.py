"""Compile C or CUDA text, or programs of `trnqc.gen`, and call the result from Python. This room knows no chemistry.

signature.py         the named parameters of a compiled function
load.py              the functions of a shared library, called by these names
recipe.py            programs that are generated and compiled only if the cache does not contain them
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

from collections.abc import Sequence

from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import Compiler, find_compiler, lacks_compiler, shipped_compiler, used_shipment
from trnqc.jit.load import CompiledFunction, Library
from trnqc.jit.nvcc import Build, Kernel, compile_cuda
from trnqc.jit.parallel import build_all
from trnqc.jit.recipe import Recipe, library
from trnqc.jit.signature import NUMPY, TYPES, Parameter, Signature

__all__ = [
    "NUMPY",
    "TYPES",
    "Build",
    "CompiledFunction",
    "Compiler",
    "Kernel",
    "Library",
    "Parameter",
    "Recipe",
    "Signature",
    "build_all",
    "compile_c",
    "compile_cuda",
    "find_compiler",
    "lacks_compiler",
    "library",
]


def compile_c(
    source: str,
    signatures: Sequence[Signature],
    *,
    name: str,
    defines: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Library:
    """Compile C text, or take the compiled library from the wheel or the cache, and load it.

    Parameters
    ----------
    source : str
        The text.
    signatures : sequence of Signature
        The signatures of the functions that are called from Python.
    name : str
        The first part of the name of the cached file.
    defines : tuple of str
        Preprocessor symbols, ``"NAME"`` or ``"NAME=value"``.
    flags : tuple of str
        Compiler options that follow those of `Compiler.flags`, such as ``-ffp-contract=off``.

    Returns
    -------
    Library
        The loaded library.

    Raises
    ------
    CompilerError
        If there is no compiler, if it rejects the text, or if the library lacks one of the functions.
    """
    compiler, ours = find_compiler(), shipped_compiler()
    if ours and (ships := used_shipment()):
        ready = ships.file(f"{name}-{key_of(ours.identity, *defines, *flags, source)}.so")
        if ready is not None:
            return Library(ready, signatures)
    key = key_of(compiler.identity, *defines, *flags, source)
    path = library_cache().get(f"{name}-{key}", lambda out: compiler.build(source, out, defines, flags))
    return Library(path, signatures)
