"""Dense tensor contractions: from expressions to plans that fit in memory and run on BLAS.

    text or Python objects ─ parse, expression ─► sums of products over index spaces
    ─ operations ─► binary trees of least work ─ later stages ─► loops, tiles ─ lower, execute ─► arrays

Planners are pure: index sets, extents and limits in, a plan out; no arrays, no device.
"""

from __future__ import annotations

from trnqc.contraction.api import contract, einsum, einsum_plan
from trnqc.contraction.order.expansion import expanded
from trnqc.contraction.order.operations import path
from trnqc.contraction.pair_energy import OuterSum
from trnqc.contraction.plan import Plan
from trnqc.expression.program import Program
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Tensor
from trnqc.expression.text import parse

__all__ = [
    "OuterSum",
    "Plan",
    "Program",
    "Space",
    "Symmetry",
    "Tensor",
    "contract",
    "einsum",
    "einsum_plan",
    "expanded",
    "parse",
    "path",
]
