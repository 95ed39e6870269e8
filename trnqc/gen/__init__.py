"""The code generator: programs as Python values, and the C or CUDA text of them. It knows no chemistry.

values.py: the expression language        statements.py: control flow and functions
build.py: programs written one statement after another
interpreter.py: the definition of both languages, on NumPy arrays
lanes.py: which variables differ by SIMD lane        scopes.py: checks of names

From a graph of values to a program:

values -> simplified values  (simplify.py)
       -> graph of the values that are kept  (graph.py)
       -> order of computation  (schedule.py, judged by liveness.py)  -> shared variables  (slots.py)
       -> statements  (sequence.py)  -> C or CUDA  (emit), a listing  (listing.py), flops and bytes  (cost.py)
"""

from __future__ import annotations

from trnqc.gen.emit import emit_c, emit_cuda
from trnqc.gen.interpreter import run
from trnqc.gen.listing import listing
from trnqc.gen.values import Array, Value, Var, const

__all__ = ["Array", "Value", "Var", "const", "emit_c", "emit_cuda", "listing", "run"]
