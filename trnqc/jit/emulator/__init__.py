"""CUDA text on the CPU: what NVRTC would get is compiled by the C++ compiler of the host, and run thread by thread.

recipe -> CUDA text (gen) -> between words.h and an entry point -> shared library in the cache (build.py)
kernel, groups, arguments -> blocks of fibres (runtime.cpp, through launch.py) -> written arrays, or an error

It shares no assumption with the emitter about lanes: each is a thread that sees its own local arrays, waits at
barriers and meets its warp in shuffles. It has no timing, no caches and no limit of registers. words.h has the words of
CUDA that the texts use.
"""

from trnqc.jit.emulator.build import Emulated, build
from trnqc.jit.emulator.launch import ORDERS, operand, run

__all__ = ["ORDERS", "Emulated", "build", "operand", "run"]
