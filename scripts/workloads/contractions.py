"""Symmetric contractions of published models, and random operands of them."""

from __future__ import annotations

import numpy as np

from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem

# Irreps of the features and of the results of a layer, and the correlation.
CONTRACTIONS = {
    "mace-small": ("128x0e+128x1o+128x2e+128x3o", "128x0e", 3),
    "mace-medium": ("128x0e+128x1o+128x2e+128x3o", "128x0e+128x1o", 3),
    "mace-large": ("128x0e+128x1o+128x2e+128x3o", "128x0e+128x1o+128x2e", 3),
    # For rehearsals on a simulated device.
    "tiny": ("5x0e+5x1o", "5x0e+5x1o", 3),
}


def contraction(label: str) -> ContractionProblem:
    """Return the contraction of a model."""
    return contraction_problem(*CONTRACTIONS[label])


def operands(
    problem: ContractionProblem, dtype: str, nodes: int, elements: int, seed: int = 0
) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Return weights [elements, weights, channels] in fp64, and the operands of an engine by name.

    These are the coefficients c, x, the numbers of the elements, gb and a direction h.
    """
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((elements, problem.weight_numel, problem.channels))
    x, h, gb = (rng.standard_normal((nodes, dim, problem.channels)) for dim in (*problem.dims[:1] * 2, problem.dims[1]))
    c = np.einsum("tk,ekc->etc", problem.folding, weights)
    numbers = rng.integers(0, elements, nodes)
    floats = {"c": c, "x": x, "gb": gb, "h": h}
    return weights, {name: a.astype(dtype) for name, a in floats.items()} | {"elements": numbers}
