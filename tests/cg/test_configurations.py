"""The published tensor products have the published sizes."""

from __future__ import annotations

import pytest

from scripts.workloads.tensor_products import configuration
from trnqc.cg.problem.coefficients import sparse

# Paths, (d1, d2, d3), weights, and couplings C[i, j, k] that do not vanish, over all paths.
SIZES = {
    "mace-large": (17, (1152, 16, 9088), 2176, 215),
    "mace-medium": (8, (512, 16, 3328), 1024, 58),
    "nequip-lips": (30, (576, 9, 3264), 960, 274),
    "nequip-revmd17-aspirin": (10, (512, 4, 1408), 640, 32),
    "nequip-revmd17-toluene": (30, (1152, 9, 6528), 1920, 274),
    "nequip-revmd17-benzene": (68, (2048, 16, 19968), 4352, 1222),
    "nequip-water": (10, (256, 4, 704), 320, 32),
    "DiffDock-L=1": (10, (156, 4, 156), 6928, 32),
    "DiffDock-L=2": (12, (156, 9, 156), 7128, 54),
    "tetris-poly-1": (24, (16, 16, 368), 648, 351),
    "tetris-poly-2": (5, (368, 9, 7), 664, 17),
}


@pytest.mark.parametrize("label", SIZES)
def test_sizes(label: str) -> None:
    problem = configuration(label)
    couplings = sum(len(sparse(*problem.degrees(path))) for path in problem.instructions)
    assert (len(problem.instructions), problem.dims, problem.weight_numel, couplings) == SIZES[label]
