"""Extended xyz files with energies and forces, as ASE and training programs of interatomic potentials read them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
from pyscf.data.nist import BOHR, HARTREE2EV

from trnqc.host.files import write_aside
from trnqc.mp2.reference.molecule import Geometry

Frame = tuple[Geometry, float, np.ndarray | None]
"""A geometry, its total energy in Hartree, and the gradient [natm, 3] in Hartree/Bohr or None."""


def write_extxyz(path: str | Path, frames: Iterable[Frame]) -> None:
    """Write frames with energies in eV, and forces in eV/Angstrom where a gradient is given. Raises StorageError."""
    write_aside(path, "".join(_frame(*frame) for frame in frames))


def _frame(geometry: Geometry, energy: float, gradient: np.ndarray | None) -> str:
    columns = "species:S:1:pos:R:3" + (":forces:R:3" if gradient is not None else "")
    head = (
        f"Properties={columns} energy={energy * HARTREE2EV!r} charge={geometry.charge} spin={geometry.spin} "
        f'name={geometry.name} pbc="F F F"'
    )
    rows: list[Sequence[float]] = [list(row) for row in geometry.coordinates]
    if gradient is not None:
        forces = -np.asarray(gradient) * HARTREE2EV / BOHR
        rows = [[*row, *force] for row, force in zip(rows, forces.tolist())]
    atoms = "".join(
        f"{symbol:<2} {' '.join(f'{value:17.10f}' for value in row)}\n" for symbol, row in zip(geometry.symbols, rows)
    )
    return f"{len(rows)}\n{head}\n{atoms}"
