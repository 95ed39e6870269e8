"""Contractions inside ``torch.compile``: planned while the graph is made, so that the graph holds their steps.

Imported where Dynamo reads a call of `trnqc.einsum`. The planner, which depends on shapes only, is not traced; loops
within a memory limit, which run on NumPy, break the graph.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from trnqc import contraction


def einsum(subscripts: str, operands: tuple[Any, ...], options: Mapping[str, Any]) -> Any:
    """`trnqc.contraction.einsum` as one call of a graph."""
    return contraction.einsum(subscripts, *operands, **options)


torch.compiler.allow_in_graph(einsum)

# With loops that run when the compiled code does.
einsum_in_loops = torch.compiler.disable(einsum)
