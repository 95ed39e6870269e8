"""The generator core: programs as values, and C or CUDA text out of them; knows no chemistry.

values.py: what is computed, a graph     statements.py: when and where, a tree     interpreter.py: what it means
build.py: programs written one statement after another
values -> simplified values  (simplify.py)
       -> graph of what is kept  (graph.py)
       -> order  (schedule.py, judged by liveness.py)  -> places  (slots.py)
       -> statements  (sequence.py)  -> text  (emit)  or a listing for people  (listing.py), figures  (cost.py)
"""

from __future__ import annotations

from trnqc.gen.emit import emit_c, emit_cuda
from trnqc.gen.interpreter import run
from trnqc.gen.listing import listing
from trnqc.gen.values import Array, Value, Var, const

__all__ = ["Array", "Value", "Var", "const", "emit_c", "emit_cuda", "listing", "run"]
