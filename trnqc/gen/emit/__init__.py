"""Emit programs as C, CUDA or HIP text. The same program gives the same text in every process.

dialect.py: the differences between C, CUDA and HIP, as tables
expressions.py: values as scalar text, one method per operation
vectors.py: values as text over the vector types of GCC and Clang
exponential.py: exp of such a vector
rows.py, packed.py: helper functions that move rows between memory and lanes
statements.py: control flow, functions and the whole text
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from trnqc.gen.emit.dialect import ACCUMULATE, CUDA, HIP, C
from trnqc.gen.emit.statements import Text
from trnqc.gen.statements import Function

__all__ = ["ACCUMULATE", "emit_c", "emit_cuda", "emit_hip"]


def emit_c(*functions: Function, lanes: int = 1, external: Collection[str] = (), names_fma: bool = False) -> str:
    """Emit functions as C.

    Parameters
    ----------
    functions : Function
        The functions to emit. The functions that they call are emitted too.
    lanes : int
        The number of SIMD lanes, a power of two. 1 gives scalar C.
    external : collection of str
        Names of called functions that another object file contains. They are declared, not defined.
    names_fma : bool
        Whether fused multiply-adds of vectors are named by macros, which are built-in functions of GCC where it has
        them. Below -O2, GCC forms none of products and sums.

    Returns
    -------
    str
        The text. An array of lanes is passed as a pointer to vectors that need only the alignment of their elements,
        such as the data of a NumPy array whose last axis is the lane. A function with a group takes two more arguments,
        groups_begin and groups_end.

    Raises
    ------
    ProgramError
        If a program breaks the rules of the language.
    """
    return Text(replace(C, names_fma=names_fma), lanes).render(functions, external)


def emit_cuda(*functions: Function, lanes: int = 128, accumulate: str = "fence", min_blocks: int = 0) -> str:
    """Emit functions as CUDA, with a thread for each lane and a block for each group.

    Parameters
    ----------
    functions : Function
        The kernels to emit. The functions that they call are emitted too.
    lanes : int
        The number of threads of a block, a power of two.
    accumulate : str
        How ``+=`` on memory is written, a key of ACCUMULATE. "fence" and "atomic" prevent nvcc from moving loads far
        ahead of their use, which would undo a schedule.
    min_blocks : int
        The number of resident blocks per multiprocessor to compile for. 0 leaves the choice to the compiler.

    Returns
    -------
    str
        The text.

    Raises
    ------
    ProgramError
        If a program breaks the rules of the language.
    """
    return Text(CUDA, lanes, accumulate, min_blocks).render(functions)


def emit_hip(*functions: Function, lanes: int = 128, accumulate: str = "fence") -> str:
    """Emit functions as HIP for AMD GPUs, with a thread for each lane and a block for each group.

    Parameters
    ----------
    functions, lanes, accumulate
        As for `emit_cuda`.

    Returns
    -------
    str
        The text.

    Raises
    ------
    ProgramError
        If a program breaks the rules of the language.
    """
    return Text(HIP, lanes, accumulate).render(functions)
