"""Blocks [natm, natm, 3, 3] of a Hessian."""

from __future__ import annotations

import numpy as np


def completed(blocks: np.ndarray) -> np.ndarray:
    """Set the blocks of one atom from those of two by translational invariance, E_AA = -sum_B E_AB, in place."""
    atoms = np.arange(len(blocks))
    blocks[atoms, atoms] = 0.0
    diagonal = -blocks.sum(axis=1)
    blocks[atoms, atoms] = (diagonal + diagonal.transpose(0, 2, 1)) / 2
    return blocks
