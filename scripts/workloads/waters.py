"""Water clusters that grow by one molecule: the cluster of n + 1 contains that of n, and positions are always the same.

Molecules stand on a cubic lattice of 3 Angstrom, nearest to its centre first, each turned at random (seeded) until no
atom is nearer than 1.6 Angstrom to another molecule's: compact, and no physical cluster.
"""

from __future__ import annotations

from itertools import product

import numpy as np
from scipy.spatial.transform import Rotation

from trnqc.mp2.reference.molecule import Geometry

SPACING, APART = 3.0, 1.6
MONOMER = np.array([[0.0, 0.0, 0.0], [0.7572, 0.5865, 0.0], [-0.7572, 0.5865, 0.0]])
REACH = 5


def waters(n: int) -> Geometry:
    """(H2O)n for n up to 1331, Angstrom."""
    places = np.array(sorted(product(range(-REACH, REACH + 1), repeat=3), key=lambda p: (np.dot(p, p), p)))
    rng, atoms = np.random.default_rng(0), np.zeros((0, 3))
    for place in SPACING * places[:n]:
        while True:
            molecule = Rotation.random(random_state=rng).apply(MONOMER) + place
            if not len(atoms) or np.linalg.norm(molecule[:, None] - atoms, axis=2).min() >= APART:
                break
        atoms = np.concatenate([atoms, molecule])
    return Geometry(f"water{n}", ("O", "H", "H") * n, tuple((x, y, z) for x, y, z in atoms.tolist()))
