"""The summary of a Hartree-Fock or Kohn-Sham result for a terminal."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from pyscf.data.nist import HARTREE2EV
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trnqc.cli.tables import decimals, facts, gradient_table, positions_table, steps_table, times_table, titled
from trnqc.interfaces.mean_field.result import Orbitals, SCFResult, Vibrations

# Wavelength of light of 1 eV in nm, h c / e.
NM_EV = 1239.841984
# Orbitals that are shown below and above the gap.
FRONTIER = 4


def brief(result: SCFResult) -> str:
    """One line with the energy and what else was computed."""
    line = f"E({result.method}) = {result.e_tot!r} Hartree"
    if result.gradient is not None:
        line += f", largest force = {np.linalg.norm(result.gradient, axis=1).max():.3e} Hartree/Bohr"
    if result.vibrations:
        line += f", lowest wavenumber = {min(result.vibrations.wavenumbers, default=0.0):.1f} 1/cm"
    if result.excitations:
        line += f", lowest excitation = {result.excitations[0].energy:.3f} eV"
    return line


def report(result: SCFResult) -> Group:
    """Tables of the energy, orbitals, properties and everything else that was computed."""
    return Group(*(item for part in _parts(result) for item in (part, Text())))


def _parts(result: SCFResult) -> Iterator[RenderableType]:
    yield _what(result)
    yield _energies(result)
    yield from (_orbitals(one) for one in result.orbitals)
    yield _charges(result)
    if result.optimization:
        yield steps_table(result.optimization)
        yield positions_table(result.optimization)
    if result.gradient is not None:
        yield gradient_table(result.geometry, result.gradient)
    if result.vibrations:
        yield _vibrations(result.vibrations)
        yield facts("Thermochemistry", {n: f"{v:.8g} {u}" for n, (v, u) in result.vibrations.thermochemistry.items()})
    if result.excitations:
        yield _excitations(result)
    yield times_table(result.timings)


def _what(result: SCFResult) -> Table:
    g = result.geometry
    spin = f", {g.spin} unpaired electron{'s' * (g.spin > 1)}" if g.spin else ""
    ghosts = f" and {g.ghosts} ghost atom{'s' * (g.ghosts > 1)}" if g.ghosts else ""
    rows = {
        "molecule": f"{g.formula}, {len(g.symbols) - g.ghosts} atoms{ghosts}, charge {g.charge:+d}{spin}",
        "basis": f"{len(result.orbitals[0].energies)} molecular orbitals",
        "SCF": f"converged in {len(result.cycles)} cycles",
        "J and K": result.ran_on,
    }
    if result.ranks > 1:
        rows["ranks"] = f"{result.ranks}, which share {', '.join(result.shared) or 'nothing of this job'}"
    if about := result.correlation:
        rows["correlation"] = about.method
        rows["correlated"] = f"{_by_spin(about.correlated)} occupied orbitals, {_by_spin(about.frozen)} frozen"
        rows["dipole of the SCF"] = _dipole(result.dipole)
    if result.relaxed_dipole is not None:
        rows["dipole"] = _dipole(result.relaxed_dipole)
    elif not about:
        rows["dipole"] = _dipole(result.dipole)
    if result.spin_square is not None:
        rows["<S^2>"] = f"{result.spin_square:.4f}"
    return facts(f"{result.method}, {g.name}", rows)


def _by_spin(counts: tuple[int, ...]) -> str:
    return str(counts[0]) if len(set(counts)) == 1 else f"{counts[0]} alpha and {counts[1]} beta"


def _dipole(dipole: np.ndarray) -> str:
    return f"{np.linalg.norm(dipole):.4f} Debye ({', '.join(decimals(x, 4) for x in dipole)})"


def _energies(result: SCFResult) -> Table:
    table = titled("Energy / Hartree", "", "")
    table.show_header = False
    for name, value in result.parts.items():
        table.add_row(name, f"{value:.10f}")
    table.add_row("total", f"{result.e_tot:.10f}", style="bold")
    return table


def _orbitals(orbitals: Orbitals) -> Table:
    gap = "" if orbitals.gap is None else f", gap {orbitals.gap * HARTREE2EV:.3f} eV"
    spin = f" of {orbitals.spin} spin" if orbitals.spin else ""
    table = titled(f"Orbitals{spin}{gap}", "", "occupation", "Hartree", "eV")
    order = np.lexsort((orbitals.energies, orbitals.occupations == 0))
    frontier = int((orbitals.occupations > 0).sum())
    for place in range(max(0, frontier - FRONTIER), min(len(order), frontier + FRONTIER)):
        k = int(order[place])
        name = {orbitals.homo: "HOMO", orbitals.lumo: "LUMO"}.get(k, "")
        energy = float(orbitals.energies[k])
        table.add_row(f"{k} {name}", f"{orbitals.occupations[k]:g}", f"{energy:.6f}", f"{energy * HARTREE2EV:.3f}")
    return table


def _charges(result: SCFResult) -> Table:
    table = titled("Partial charges", "atom", *result.charges)
    for atom, symbol in enumerate(result.geometry.symbols):
        table.add_row(f"{atom + 1} {symbol}", *(f"{values[atom]:.4f}" for values in result.charges.values()))
    return table


def _vibrations(vibrations: Vibrations) -> Table:
    table = titled("Vibrations", "mode", "1/cm", "reduced mass / amu", "IR intensity / km/mol")
    modes = zip(vibrations.wavenumbers, vibrations.reduced_masses, vibrations.intensities)
    for n, (wavenumber, mass, intensity) in enumerate(modes, start=1):
        style = "red" if wavenumber < 0 else ""
        table.add_row(str(n), f"{wavenumber:.2f}", f"{mass:.4f}", f"{intensity:.2f}", style=style)
    return table


def _excitations(result: SCFResult) -> Table:
    table = titled(f"Excited states ({result.excitation_method})", "state", "eV", "nm", "oscillator strength")
    table.caption = result.excitation_ran_on
    for n, state in enumerate(result.excitations, start=1):
        strength = "" if state.oscillator_strength is None else f"{state.oscillator_strength:.4f}"
        table.add_row(str(n), f"{state.energy:.4f}", f"{NM_EV / state.energy:.1f}", strength)
    return table
