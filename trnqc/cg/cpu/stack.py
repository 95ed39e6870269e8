"""The scratch arrays of generated functions, compared with the stack of the thread that runs them.

Slots with many channels can need more than a stack has, and a stack overflow would end the process.
"""

from __future__ import annotations

from trnqc.errors import MemoryLimit
from trnqc.gen import statements as st
from trnqc.gen.values import BYTES
from trnqc.host.threads import stack_size

# Bytes of the stack that are left for the callers of a function.
CALLERS = 256 << 10


def require(function: st.Function, lanes: int, what: str) -> None:
    """Raise MemoryLimit, whose message begins with `what`, if a function's arrays do not fit on a thread's stack."""
    needed, free = needs(function, lanes), available()
    if needed > free:
        raise MemoryLimit(
            f"{what} needs {needed / 2**20:.1f} MiB of scratch for an edge, and the stack of a thread has "
            f"{free / 2**20:.1f} MiB: use fewer channels in a slot, or a larger limit (ulimit -s)"
        )


def needs(function: st.Function, lanes: int) -> int:
    """Return the bytes of the arrays of a function and of all functions that it calls, which may be inlined."""
    sizes: dict[str, int] = {}

    def collect(function: st.Function) -> None:
        if function.name in sizes:
            return
        statements = list(st.statements(function.body))
        arrays = [s.array for s in statements if isinstance(s, st.DeclareArray)]
        sizes[function.name] = sum((a.size or 0) * BYTES[a.dtype] * (lanes if a.lanes else 1) for a in arrays)
        for s in statements:
            if isinstance(s, st.Call):
                collect(s.function)

    collect(function)
    return sum(sizes.values())


def available() -> int:
    """Return the bytes that the arrays of a function may occupy on the stack of a thread."""
    return stack_size() - CALLERS
