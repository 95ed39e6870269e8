"""C text in, Python callables out; knows no chemistry.

source, signatures -> compiler  (compiler.py: found, its flags probed)
                   -> shared library  (cache.py: content-addressed, so a text is compiled once a machine)
                   -> functions  (load.py: bound with the types of their arguments)
"""

from __future__ import annotations

from collections.abc import Mapping

from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import Compiler, find_compiler
from trnqc.jit.load import Array, Library, Signature, load

__all__ = ["Array", "Compiler", "Library", "Signature", "compile_c", "find_compiler"]


def compile_c(source: str, signatures: Mapping[str, Signature], *, name: str, defines: tuple[str, ...] = ()) -> Library:
    """Compile C text, or take it from the cache, and bind the functions named in `signatures`.

    name: a short word that heads the cached file's name. defines: ``"NAME"`` or ``"NAME=value"`` preprocessor symbols.
    Raises CompilerError when there is no compiler, it rejects the text, or a named function is not in the library.
    """
    compiler = find_compiler()
    key = key_of(compiler.identity, *defines, source)
    path = library_cache().get(f"{name}-{key}", lambda out: compiler.build(source, out, defines))
    return load(path, signatures)
