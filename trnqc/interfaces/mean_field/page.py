"""An HTML page of a Hartree-Fock or Kohn-Sham result: structure, convergence, orbitals, spectra, in one file."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from importlib.resources import files
from itertools import combinations

import numpy as np
from pyscf.data import elements
from pyscf.data.nist import BOHR, HARTREE2EV
from pyscf.data.radii import COVALENT

from trnqc.interfaces.mean_field.result import Excitation, Orbitals, SCFResult
from trnqc.interfaces.mean_field.spectra import MARGIN, absorption, infrared
from trnqc.interfaces.optimization_page import HEIGHT, PLOT_STYLE, WIDTH, drawing, plot
from trnqc.mp2.reference.molecule import Geometry
from trnqc.profiling.page.markup import Markup, document, element, table

# Colours of elements as in Jmol; others are pink.
COLOURS = {
    "H": "#d9d9d9", "C": "#5f6368", "N": "#3050f8", "O": "#f0200d", "F": "#6cc24a", "Si": "#d9b38c", "P": "#ff8000",
    "S": "#e6c81e", "Cl": "#1fc01f", "Br": "#a62929", "I": "#940094", "Li": "#b562e0", "Na": "#9a55e0", "Mg": "#6fb300",
    "Fe": "#e06633", "Cu": "#c88033", "Zn": "#7d80b0",
}  # fmt: skip
OTHER_COLOUR = "#d48fb0"
# Atoms are drawn with this part of their covalent radius; those nearer than this multiple of the sum of both radii are
# bonded, as in most viewers.
DRAWN, BONDED = 0.45, 1.25
STYLE = """
#viewer, .still svg { width: 100%; height: 380px; touch-action: none; cursor: grab; display: none; }
.live #viewer, .still svg { display: block; } .live .still { display: none; }
.controls { display: none; gap: 18px; flex-wrap: wrap; align-items: center; } .live .controls { display: flex; }
.stick { stroke: var(--accent); stroke-width: 2; } .curve { fill: none; stroke: var(--warn); stroke-width: 1.5; }
.level { stroke-width: 2; } .level.filled { stroke: var(--accent); } .level.empty { stroke: var(--warn); }
"""


def page(result: SCFResult) -> str:
    """Return the HTML text. The structure turns where scripts run, and is a drawing elsewhere."""
    title = f"{result.method}, {result.geometry.name}"
    body = [
        element("p", f"{result.geometry.formula}, {len(result.geometry.symbols)} atoms", class_="kicker"),
        element("h1", title),
        _cards(result),
        *(element("p", message, class_="path") for message in result.warnings),
        *(element("section", element("h2", heading), *content) for heading, *content in _sections(result)),
    ]
    script = files(__package__).joinpath("viewer.js").read_text(encoding="utf-8")
    return document(title, body, PLOT_STYLE + STYLE, script)


def _cards(result: SCFResult) -> Markup:
    gap = min((one.gap for one in result.orbitals if one.gap is not None), default=None)
    facts = {
        "total energy": f"{result.e_tot:.8f} Hartree",
        "gap": "" if gap is None else f"{gap * HARTREE2EV:.2f} eV",
        "dipole": f"{np.linalg.norm(result.dipole):.3f} Debye",
        "⟨S²⟩": "" if result.spin_square is None else f"{result.spin_square:.4f}",
        "J and K": result.ran_on,
    }
    cards = [
        element("div", element("dt", name), element("dd", value), class_="card")
        for name, value in facts.items()
        if value
    ]
    return element("dl", *cards, class_="cards")


def _sections(result: SCFResult) -> Iterator[tuple[object, ...]]:
    yield ("Structure", *_structure(result))
    gradients = [math.log10(max(cycle.orbital_gradient, 1e-12)) for cycle in result.cycles]
    yield "Norm of the orbital gradient", plot(gradients, "orbital gradient", powers=True, axis="cycle")
    steps = result.optimization.steps if result.optimization else ()
    if steps:
        above = [1e3 * (step.energy - steps[-1].energy) for step in steps]
        yield "Energy above the last step / millihartree", plot(above, "energy")
    yield "Orbital energies / eV", *(_levels(one) for one in result.orbitals)
    if result.vibrations:
        found = result.vibrations
        each = zip(found.wavenumbers, found.reduced_masses, found.intensities)
        rows = [(n, f"{w:.1f}", f"{m:.3f}", f"{i:.2f}") for n, (w, m, i) in enumerate(each, start=1)]
        names = ("mode", "1/cm", "reduced mass / amu", "IR intensity / km/mol")
        yield "Vibrations", *infrared(found), table(names, rows, "Harmonic vibrations")
        quantities = [(name, f"{value:.8g}", unit) for name, (value, unit) in result.vibrations.thermochemistry.items()]
        yield "Thermochemistry", table(("", "value", "unit"), quantities, "Ideal gas, rigid rotor, harmonic oscillator")
    if result.excitations:
        head = ("state", "eV", "oscillator strength")
        states = [(n, f"{s.energy:.4f}", _strength(s)) for n, s in enumerate(result.excitations, start=1)]
        spectrum = absorption(result.excitations)
        how = element("p", result.excitation_ran_on)
        yield f"Excited states ({result.excitation_method})", *spectrum, table(head, states, "Excited states"), how
    charges = [(f"{n + 1} {s}", *(f"{v[n]:.4f}" for v in result.charges.values())) for n, s in _atoms(result)]
    yield "Partial charges / e", table(("atom", *result.charges), charges, "Partial charges")
    times = [(name, f"{seconds:.2f}") for name, seconds in result.timings.items()]
    yield "Wall time / s", table(("part", "s"), times, "Wall time")
    if result.pyscf_estimate:
        yield "One SCF with PySCF, estimated / s", *_estimate(result)


def _estimate(result: SCFResult) -> Iterator[Markup]:
    """PySCF's estimated time for the last SCF beside the measured one, which contains more than the parts."""
    whole = sum(result.pyscf_estimate.values())
    rows = [(name, f"{seconds:.2f}") for name, seconds in result.pyscf_estimate.items()]
    here = "whole SCF here" + (f", by {result.ranks} processes; PySCF has one" if result.ranks > 1 else "")
    rows += [("these parts with PySCF, estimated", f"{whole:.2f}"), (here, f"{result.scf_seconds:.2f}")]
    yield table(("part", "s"), rows, "One SCF with PySCF, estimated")
    yield element(
        "p",
        "PySCF's code computed a sample of its integrals, J and K, and points of the grid on this machine, and the "
        "rest was taken to cost as much: the estimate is modelled, not measured.",
    )


def _strength(state: Excitation) -> str:
    return "" if state.oscillator_strength is None else f"{state.oscillator_strength:.4f}"


def _atoms(result: SCFResult) -> Iterator[tuple[int, str]]:
    return iter(enumerate(result.geometry.symbols))


def _structure(result: SCFResult) -> Iterator[Markup]:
    """The canvas with its data and controls, and the drawing that is shown where scripts do not run."""
    geometry = result.geometry
    optimum = result.optimization
    frames = [step.geometry.coordinates for step in optimum.steps] if optimum else [geometry.coordinates]
    radii = [_radius(symbol) for symbol in geometry.symbols]
    data = {
        "frames": frames,
        "bonds": bonds(geometry),
        "radii": [DRAWN * radius for radius in radii],
        "colours": [_colour(symbol) for symbol in geometry.symbols],
        "modes": result.vibrations.modes.tolist() if result.vibrations else [],
    }
    # A closing tag inside of the data would end the element.
    text = Markup(json.dumps(data).replace("</", "<\\/"))
    yield element("canvas", "", id="viewer", tabindex=0, role="img", aria_label=f"structure of {geometry.name}")
    yield element("div", _drawing(geometry, radii), class_="still")
    controls = []
    if optimum and len(frames) > 1:
        slider = element("input", id="steps", type="range", min=1, max=len(frames), value=optimum.best)
        controls += [slider, element("span", f"step {optimum.best} of {len(frames)}")]
    if result.vibrations:
        wavenumbers = enumerate(result.vibrations.wavenumbers)
        shown = [element("option", f"{n + 1}: {w:.0f} 1/cm", value=n) for n, w in wavenumbers]
        none = element("option", "no vibration", value=-1)
        controls.append(element("select", none, *shown, id="modes", aria_label="vibration"))
    yield element("div", *controls, class_="controls")
    yield element("script", text, type="application/json", id="molecule")


def bonds(geometry: Geometry) -> list[tuple[int, int]]:
    """Pairs of atoms that are drawn with a bond, by their covalent radii. Ghost atoms have none."""
    xyz, radii = np.array(geometry.coordinates), [_radius(symbol) for symbol in geometry.symbols]
    real = [n for n, symbol in enumerate(geometry.symbols) if not elements.is_ghost_atom(symbol)]
    return [
        (a, b) for a, b in combinations(real, 2) if np.linalg.norm(xyz[a] - xyz[b]) < BONDED * (radii[a] + radii[b])
    ]


def _radius(symbol: str) -> float:
    """The covalent radius of an element in Angstrom."""
    return float(COVALENT[elements.charge(elements._std_symbol_without_ghost(symbol))] * BOHR)


def _colour(symbol: str) -> str:
    return COLOURS.get(elements._std_symbol_without_ghost(symbol), OTHER_COLOUR)


def _drawing(geometry: Geometry, radii: list[float]) -> Markup:
    """A drawing of the structure in the plane of its largest extents, as SVG."""
    xyz = np.array(geometry.coordinates)
    xyz = xyz - xyz.mean(axis=0)
    flat = xyz @ np.linalg.svd(xyz)[2].T
    lines = [
        element("line", x1=a[0], y1=-a[1], x2=b[0], y2=-b[1], stroke="#8a8f98", stroke_width=0.16)
        for a, b in (flat[list(pair)].tolist() for pair in bonds(geometry))
    ]
    atoms = sorted(zip(flat.tolist(), radii, geometry.symbols), key=lambda atom: atom[0][2])
    discs = [
        element("circle", cx=x, cy=-y, r=DRAWN * radius, fill=_colour(symbol)) for (x, y, _), radius, symbol in atoms
    ]
    size = np.abs(flat[:, :2]).max(axis=0) + 1.0
    box = f"{-size[0]:.2f} {-size[1]:.2f} {2 * size[0]:.2f} {2 * size[1]:.2f}"
    return element("svg", *lines, *discs, viewBox=box, role="img", aria_label=f"structure of {geometry.name}")


def _levels(orbitals: Orbitals) -> Markup:
    """Lines at the energies of the orbitals from -30 to 10 eV; occupied ones on the left."""
    low, high = -30.0, 10.0

    def y(energy: float) -> float:
        return HEIGHT - 20 - (energy - low) / (high - low) * (HEIGHT - 40)

    grid = [
        element(
            "g",
            element("line", x1=MARGIN, x2=WIDTH - 20, y1=y(e), y2=y(e), class_="grid"),
            element("text", f"{e:g}", x=MARGIN - 8, y=y(e) + 4, class_="tick", text_anchor="end"),
        )
        for e in range(int(low), int(high) + 1, 10)
    ]
    lines = []
    for energy, occupation in zip(HARTREE2EV * orbitals.energies, orbitals.occupations):
        if low <= energy <= high:
            left, kind = (MARGIN + 120, "filled") if occupation > 0 else (MARGIN + 380, "empty")
            lines.append(element("line", x1=left, x2=left + 240, y1=y(energy), y2=y(energy), class_=f"level {kind}"))
    name = f"orbital energies {orbitals.spin}".strip()
    return drawing(element("title", name), *grid, *lines)
