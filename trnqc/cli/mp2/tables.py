"""Tables of ``trnqc mp2`` beside those of `trnqc.cli.mp2.report`, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from rich.table import Table

from trnqc.interfaces.counterpoise import InteractionEnergy
from trnqc.interfaces.energy import Energy
from trnqc.interfaces.optimization import Optimization
from trnqc.interfaces.optimization_page import HEAD
from trnqc.mp2.reference.molecule import Geometry


def interaction_table(geometry: Geometry, energies: InteractionEnergy) -> Table:
    """Energies of a complex, of its fragments, and their interaction."""
    rows = [("complex", energies.complex)]
    for words, parts in (("its own basis", energies.in_own_basis), ("the full basis", energies.in_full_basis)):
        rows += [(f"fragment {n} in {words}", energy) for n, energy in enumerate(parts, start=1)]
    rows += [("interaction, uncorrected", energies.uncorrected), ("superposition error", energies.superposition_error)]
    return energy_table(
        f"Interaction energy of {geometry.name}", [*rows, ("interaction, corrected", energies.corrected)]
    )


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for n, heading in enumerate(headings):
        table.add_column(heading, justify="right" if n else "left", no_wrap=True)
    return table


def energy_table(title: str, rows: Sequence[tuple[str, Energy]]) -> Table:
    """Table with a row of Hartree-Fock, correlation and total energy for each name."""
    table = _table(f"{title} / Hartree", "", "Hartree-Fock", "correlation", "total")
    for name, energy in rows:
        table.add_row(name, *(f"{value:.10f}" for value in (energy.e_hf, energy.e_corr, energy.e_tot)))
    return table


def gradient_table(geometry: Geometry, gradient: np.ndarray) -> Table:
    """Table of a gradient [natm, 3] in Hartree/Bohr."""
    table = _table("Gradient / Hartree/Bohr", "atom", "x", "y", "z")
    for symbol, row in zip(geometry.symbols, gradient.tolist()):
        table.add_row(symbol, *(f"{value:.8f}" for value in row))
    return table


def steps_table(optimum: Optimization) -> Table:
    """Table of the steps of a geometry optimisation."""
    table = _table("Steps, Hartree and Bohr", *HEAD)
    for n, s in enumerate(optimum.steps, start=1):
        table.add_row(str(n), f"{s.energy:.10f}", f"{s.largest_force:.2e}", f"{s.rms_force:.2e}", f"{s.seconds:.1f} s")
    return table


def positions_table(geometry: Geometry) -> Table:
    """Table of the positions of atoms."""
    table = _table("Optimised geometry / Angstrom", "atom", "x", "y", "z")
    for symbol, row in zip(geometry.symbols, geometry.coordinates):
        table.add_row(symbol, *(f"{value:.6f}" for value in row))
    return table
