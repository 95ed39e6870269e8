"""Helices of alanine, CO-CH3 and NH-CH3 at their ends: neutral peptides of any length, one turn every 3.6 residues.

Bond lengths and angles are the usual ones of peptides (R. A. Engh and R. Huber, Acta Cryst. A47, 392 (1991), rounded),
those of hydrogen atoms 1.09 and 1.01 Angstrom; phi and psi are -57 and -47 degrees. Nothing is relaxed.
"""

from __future__ import annotations

import numpy as np

from trnqc.mp2.reference.molecule import Geometry

PHI, PSI, OMEGA = -57.0, -47.0, 180.0


def place(a: np.ndarray, b: np.ndarray, c: np.ndarray, length: float, angle: float, dihedral: float) -> np.ndarray:
    """Return the point d with |cd| = length, the angle bcd and the dihedral angle abcd in degrees."""
    angle, dihedral = np.radians([angle, dihedral])
    bc = (c - b) / np.linalg.norm(c - b)
    normal = np.cross(b - a, bc)
    normal /= np.linalg.norm(normal)
    local = [-np.cos(angle), np.sin(angle) * np.cos(dihedral), np.sin(angle) * np.sin(dihedral)]
    return np.asarray(c + length * np.array(local) @ np.array([bc, np.cross(normal, bc), normal]))


def alanine(residues: int) -> Geometry:
    """Acetyl-(Ala)n-methylamide, 10 n + 12 atoms, Angstrom."""
    ca, c = np.zeros(3), np.array([1.52, 0.0, 0.0])
    n = place(np.array([0.0, 1.0, 0.0]), ca, c, 1.33, 116.6, 0.0)
    atoms = [("C", ca), ("C", c), ("O", place(ca, n, c, 1.23, 123.0, 180.0))]
    atoms += [("H", place(n, c, ca, 1.09, 109.5, turn)) for turn in (60.0, 180.0, -60.0)]
    for number in range(residues + 1):
        before, ca = ca, place(ca, c, n, 1.46, 121.7, OMEGA)
        atoms += [("N", n), ("H", place(before, c, n, 1.01, 119.0, OMEGA + 180.0)), ("C", ca)]
        if number == residues:
            atoms += [("H", place(c, n, ca, 1.09, 109.5, turn)) for turn in (60.0, 180.0, -60.0)]
            break
        carbonyl = place(c, n, ca, 1.52, 111.0, PHI)
        cb = place(n, carbonyl, ca, 1.53, 110.1, 122.6)
        atoms += [("H", place(n, carbonyl, ca, 1.09, 109.0, -119.0)), ("C", cb)]
        atoms += [("H", place(n, ca, cb, 1.09, 109.5, turn)) for turn in (60.0, 180.0, -60.0)]
        n, c = place(n, ca, carbonyl, 1.33, 116.6, PSI), carbonyl
        atoms += [("C", c), ("O", place(ca, n, c, 1.23, 123.0, 180.0))]
    symbols, places = zip(*atoms)
    return Geometry(f"alanine{residues}", symbols, tuple((x, y, z) for x, y, z in np.array(places).tolist()))
