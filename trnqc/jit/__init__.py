"""C or CUDA text in, Python callables or cubins out; knows no chemistry.

source, signatures -> compiler  (compiler.py: found, its flags probed)
                   -> shared library  (cache.py: content-addressed, so a text is compiled once a machine)
                   -> functions  (load.py: bound with the types of their arguments)

CUDA source -> cubin and ptxas's figures  (nvcc.py: no GPU needed; same cache)
            -> cubin and a launch  (gpu.py: the optional bindings; device.py: memory, streams, and a stand-in on the
               CPU; not imported from here)
many builds at once, with progress  (parallel.py);  parts of a call on several threads  (threads.py)
"""

from __future__ import annotations

from collections.abc import Mapping

from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import Compiler, find_compiler
from trnqc.jit.load import Array, Library, Signature, load, signature_of
from trnqc.jit.nvcc import Build, Kernel, compile_cuda
from trnqc.jit.parallel import build_all

__all__ = ["Array", "Build", "Compiler", "Kernel", "Library", "Signature", "build_all", "compile_c", "compile_cuda",
           "find_compiler", "signature_of"]  # fmt: skip


def compile_c(
    source: str,
    signatures: Mapping[str, Signature],
    *,
    name: str,
    defines: tuple[str, ...] = (),
    flags: tuple[str, ...] = (),
) -> Library:
    """Compile C text, or take it from the cache, and bind the functions named in `signatures`.

    name: a short word that heads the cached file's name. defines: ``"NAME"`` or ``"NAME=value"`` preprocessor symbols.
    flags: options after the probed ones, such as ``-ffp-contract=off``.
    Raises CompilerError when there is no compiler, it rejects the text, or a named function is not in the library.
    """
    compiler = find_compiler()
    key = key_of(compiler.identity, *defines, *flags, source)
    path = library_cache().get(f"{name}-{key}", lambda out: compiler.build(source, out, defines, flags))
    return load(path, signatures)
