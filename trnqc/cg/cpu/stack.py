"""Whether the scratch of generated functions fits on the stack of the thread that runs them.

A slot with many channels can need more, and running into the end of a stack ends the process.
"""

from __future__ import annotations

from trnqc.errors import MemoryLimit
from trnqc.gen import Array
from trnqc.gen import statements as st
from trnqc.host.threads import stack_size

SIZES = {"f64": 8, "f32": 4, "i64": 8, "i32": 4}
# Bytes of the stack that are left for the callers of a function.
CALLERS = 256 << 10


def demand(function: st.Function, lanes: int, what: str) -> None:
    """Raise MemoryLimit if the function's arrays do not fit on a thread's stack."""
    needed, there = needs(function, lanes), available()
    if needed > there:
        raise MemoryLimit(
            f"{what} needs {needed / 2**20:.1f} MiB of scratch for an edge, and the stack of a thread has "
            f"{there / 2**20:.1f} MiB: use fewer channels in a slot, or a larger limit (ulimit -s)"
        )


def needs(function: st.Function, lanes: int) -> int:
    """Bytes of the arrays of a function and of those that it calls, which may all be inlined."""
    sizes: dict[str, int] = {}
    _collect(function, lanes, sizes)
    return sum(sizes.values())


def _collect(function: st.Function, lanes: int, sizes: dict[str, int]) -> None:
    if function.name in sizes:
        return
    statements = list(st.statements(function.body))
    arrays = [s.array for s in statements if isinstance(s, st.DeclareArray)]
    sizes[function.name] = sum(_bytes(array, lanes) for array in arrays)
    for s in statements:
        if isinstance(s, st.Call):
            _collect(s.function, lanes, sizes)


def _bytes(array: Array, lanes: int) -> int:
    return (array.size or 0) * SIZES[array.dtype] * (lanes if array.lanes else 1)


def available() -> int:
    """Bytes that the arrays of a function may take on the stack of a thread."""
    return stack_size() - CALLERS
