"""The code generator: programs are Python values, from which C, CUDA or HIP text is emitted. It knows no chemistry.

values.py       the expression language
arrays.py       arrays and their elements
statements.py   control flow and functions
build.py        programs written one statement after another
interpreter.py  the definition of the language: programs run on NumPy arrays
lanes.py        which variables differ by SIMD lane
barriers.py     barriers of threads that nothing needs
scopes.py       checks of the scopes of names

A graph of values becomes a program in these steps:

values -> graph of the values that get a variable  (graph.py)
       -> order of computation  (schedule.py)  -> lifetimes and shared variables  (liveness.py)
       -> statements  (sequence.py)  -> C, CUDA or HIP text  (emit), a listing  (listing.py), flops and bytes  (cost.py)
"""

from __future__ import annotations

from trnqc.gen.arrays import Array
from trnqc.gen.emit import emit_c, emit_cuda, emit_hip
from trnqc.gen.interpreter import run
from trnqc.gen.listing import listing
from trnqc.gen.values import Value, Var, const

__all__ = ["Array", "Value", "Var", "const", "emit_c", "emit_cuda", "emit_hip", "listing", "run"]
