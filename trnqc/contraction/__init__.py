"""Dense tensor contractions: from expressions to plans that fit in memory and run on BLAS.

    subscripts, program, operands or shapes
      ─ expression ─► labels, extents, sums of products           (trnqc.expression)
      ─ order      ─► binary trees of least work                  planning.py
      ─ memory     ─► fused loops and tiles within a limit        ladder/: loops over symmetric pairs
      ─ plan       ─► Plan: computation.py is its data; listing.py prints it, cost/ estimates its time
      ─ run        ─► arrays                                      kernels.py: what multiplies matrices

Planners are pure functions of labels, extents and limits. They know neither arrays nor devices.
"""

from __future__ import annotations

from trnqc.contraction.api import contract, einsum, einsum_plan
from trnqc.contraction.order.expansion import expanded
from trnqc.contraction.order.paths import path
from trnqc.contraction.pair_energy import OuterSum
from trnqc.contraction.plan import Plan
from trnqc.contraction.semiring import Semiring
from trnqc.expression.derivatives import gradient, tangent
from trnqc.expression.program import Program
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Tensor, identity
from trnqc.expression.text import parse

__all__ = [
    "OuterSum",
    "Plan",
    "Program",
    "Semiring",
    "Space",
    "Symmetry",
    "Tensor",
    "contract",
    "einsum",
    "einsum_plan",
    "expanded",
    "gradient",
    "identity",
    "parse",
    "path",
    "tangent",
]
