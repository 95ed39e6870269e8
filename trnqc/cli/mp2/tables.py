"""Tables of ``trnqc mp2`` beside those of `trnqc.cli.mp2.report`, for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table

from trnqc.cli.tables import titled
from trnqc.interfaces.counterpoise import InteractionEnergy
from trnqc.interfaces.energy import Energy
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


def energy_table(title: str, rows: Sequence[tuple[str, Energy]]) -> Table:
    """Table with a row of Hartree-Fock, correlation and total energy for each name."""
    table = titled(f"{title} / Hartree", "", "Hartree-Fock", "correlation", "total")
    for name, energy in rows:
        table.add_row(name, *(f"{value:.10f}" for value in (energy.e_hf, energy.e_corr, energy.e_tot)))
    return table
