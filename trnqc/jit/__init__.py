"""Compile C or CUDA text, or programs of `trnqc.gen`, and call the result from Python; knows no chemistry.

signature.py: named parameters of a compiled function     load.py: a library's functions, called by these names
recipe.py: programs that are generated and compiled only if the cache does not hold them; sources.py: their key
cache.py: compiled files, named by a digest of all that went into them     parallel.py: several builds at a time
compiler.py: the C compiler, found and probed (probed.py)
nvcc.py: CUDA text to a cubin, and ptxas's figures (occupancy.py), without a GPU
device.py: memory, streams and launches on GPUs (gpu.py: the optional bindings) and on a stand-in; not imported here
"""

from __future__ import annotations

from collections.abc import Sequence

from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import Compiler, find_compiler
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
    """Compile C text, or take it from the cache, and load it.

    Parameters
    ----------
    source : str
        The text.
    signatures : sequence of Signature
        Of the functions that are called from Python.
    name : str
        A short word that heads the cached file's name.
    defines : tuple of str
        Preprocessor symbols, ``"NAME"`` or ``"NAME=value"``.
    flags : tuple of str
        Options after the probed ones, such as ``-ffp-contract=off``.

    Raises
    ------
    CompilerError
        If there is no compiler, if it rejects the text, or if a function is not in the library.
    """
    compiler = find_compiler()
    key = key_of(compiler.identity, *defines, *flags, source)
    path = library_cache().get(f"{name}-{key}", lambda out: compiler.build(source, out, defines, flags))
    return Library(path, signatures)
