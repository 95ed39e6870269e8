"""Programs in, C or CUDA text out; the same program gives the same text in any process.

dialect.py: what C and CUDA spell differently, as two tables
expressions.py: values, one small method an operation;  vectors.py: the same over GCC's and Clang's vector types
statements.py: control flow, functions and the whole text
"""

from __future__ import annotations

from collections.abc import Collection

from trnqc.gen.emit.dialect import ACCUMULATE, CUDA, C
from trnqc.gen.emit.statements import Text
from trnqc.gen.statements import Function

__all__ = ["ACCUMULATE", "emit_c", "emit_cuda"]


def emit_c(*functions: Function, lanes: int = 1, external: Collection[str] = ()) -> str:
    """C for `lanes` SIMD lanes (a power of two; 1 is plain scalar C).

    A parameter array of lanes is a pointer to vectors that are aligned as their elements are: a NumPy array whose last
    axis is the lanes fits. A function with a group takes the range of groups as two last arguments.
    external: names of functions that are called and that another object file holds: the text made of each alone.
    Raises ProgramError for a program that breaks the language's rules.
    """
    return Text(C, lanes).render(functions, external)


def emit_cuda(*functions: Function, lanes: int = 128, accumulate: str = "fence", min_blocks: int = 0) -> str:
    """CUDA, one thread a lane, `lanes` threads a block, one block a group.

    accumulate: how ``+=`` on arrays outside the registers is written, a word of ACCUMULATE; "fence" and "atomic" keep
    nvcc from gathering loads ahead of their use, which undoes a schedule. min_blocks: resident blocks to compile for.
    """
    return Text(CUDA, lanes, accumulate, min_blocks).render(functions)
