"""Contractions inside ``torch.compile``: planned while the graph is traced, so that the graph holds their steps.

This module is imported where Dynamo traces a call of `trnqc.einsum`. Dynamo does not look into the planner, which
depends on shapes only. Loops within a memory limit run on NumPy and break the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trnqc.contraction.arguments import from_interleaved
from trnqc.contraction.eager import contracted


def einsum(subscripts: Any, operands: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """Compute a contraction as one call of the graph."""
    if not isinstance(subscripts, str):
        subscripts, operands = from_interleaved((subscripts, *operands))
    return contracted(subscripts, operands, **options)


torch.compiler.allow_in_graph(einsum)

# The same for loops, which run when the compiled code runs and not while it is traced.
einsum_in_loops = torch.compiler.disable(einsum)
