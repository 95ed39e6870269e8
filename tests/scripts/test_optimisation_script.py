"""What scripts/scf/optimisation.py compares: geometries after superposition, and steps that both contestants have."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.spatial.transform import Rotation

from scripts.scf.optimisation import comparison, largest_displacement

GEOMETRY = np.random.default_rng(3).normal(size=(7, 3))


def test_rotations_and_shifts_are_no_displacements() -> None:
    moved = GEOMETRY @ Rotation.from_euler("xyz", [0.3, -1.0, 2.0]).as_matrix().T + [1.0, -2.0, 0.5]
    assert largest_displacement(GEOMETRY, moved) == pytest.approx(0.0, abs=1e-12)
    moved[2] += [0.0, 0.0, 1e-3]
    assert 5e-4 < largest_displacement(GEOMETRY, moved) < 1e-3


def test_a_mirror_image_is_displaced() -> None:
    assert largest_displacement(GEOMETRY, GEOMETRY * [1, 1, -1]) > 0.1


def test_seconds_are_those_of_common_steps() -> None:
    ours = {"steps": [{"cpu_s": 1.0}, {"cpu_s": 2.0}], "converged": True}
    theirs = {"steps": [{"cpu_s": 4.0}, {"cpu_s": 5.0}, {"cpu_s": 9.0}], "converged": False}
    assert comparison({"trnqc": ours, "PySCF": theirs}) == {"steps_of_both": 2, "ratio_cpu": 3.0}
