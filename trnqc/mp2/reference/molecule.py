"""Geometries from files or by name, and PySCF's molecules of them.

    xyz file or name -> Geometry -> PySCF's Mole

Files are in Angstrom, or in Bohr on request. An error in a file is a MoleculeError that names the file and the line.
"""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.data import elements
from pyscf.data.nist import BOHR
from pyscf.lib.exceptions import BasisNotFoundError

from trnqc.errors import MoleculeError
from trnqc.mp2.reference.xyz import XyzFrame, read_frames, read_xyz

# The folder of the xyz files that are known by name; examples/molecules is a link to it.
MOLECULES = Path(__file__).resolve().parent / "molecules"
# Smallest distance between two atoms in Angstrom. The shortest bond, that of H2, has 0.74; smaller distances are errors
# of the file, such as atoms that are listed twice.
_CLASH = 0.1


@dataclass(frozen=True)
class Geometry:
    """The atoms of a molecule.

    Attributes
    ----------
    name
        Name of the molecule in reports.
    symbols
        Chemical symbols. Ghost atoms, which have basis functions but no nucleus, have PySCF's labels, such as
        "GHOST-O".
    coordinates
        Positions in Angstrom, by atom.
    charge
        Charge of the molecule in elementary charges.
    spin
        Number of unpaired electrons.
    """

    name: str
    symbols: tuple[str, ...]
    coordinates: tuple[tuple[float, float, float], ...]
    charge: int = 0
    spin: int = 0

    @property
    def formula(self) -> str:
        """Formula in Hill's order: C, H, then the alphabet, or the alphabet if there is no C. Ghost atoms follow."""
        real = _hill([s for s in self.symbols if not elements.is_ghost_atom(s)])
        ghosts = [elements._std_symbol_without_ghost(s) for s in self.symbols if elements.is_ghost_atom(s)]
        return " + ".join(filter(None, [real, f"ghost {_hill(ghosts)}" if ghosts else ""]))

    @property
    def ghosts(self) -> int:
        """Number of ghost atoms."""
        return sum(map(elements.is_ghost_atom, self.symbols))

    @property
    def electrons(self) -> int:
        """Number of electrons, including those that an effective core potential replaces."""
        return sum(elements.charge(s) for s in self.symbols) - self.charge


def load_geometry(source: str | Path, charge: int = 0, spin: int | None = 0, unit: str = "angstrom") -> Geometry:
    """Read an xyz file or, if there is no such file, the molecule of that name.

    Parameters
    ----------
    source
        A path or a name, such as "benzene".
    charge
        Charge of the molecule in elementary charges.
    spin
        Number of unpaired electrons; None for the smallest possible number, 0 or 1.
    unit
        Unit of the coordinates in the file: "angstrom" or "bohr".

    Raises
    ------
    MoleculeError
        If there is no such file or molecule, or the file is not valid.
    """
    path = _path(source)
    symbols, coordinates = read_xyz(path, unit)
    return _geometry(path, path.stem, XyzFrame(symbols, coordinates, 3), charge, spin)


def load_geometries(
    source: str | Path, charge: int = 0, spin: int | None = 0, unit: str = "angstrom"
) -> tuple[Geometry, ...]:
    """Read an xyz file with one or more frames, plain or extended, or the molecule of that name.

    The arguments are those of `load_geometry`, and charge and spin are those of every frame. The frames of a file with
    several are named by their numbers, such as "path-03".

    Raises
    ------
    MoleculeError
        If there is no such file or molecule, or the file is not valid; the message names file, line and frame.
    UnsupportedError
        If a frame is periodic.
    """
    path = _path(source)
    frames = read_frames(path, unit)
    digits = len(str(len(frames)))
    names = [path.stem] if len(frames) == 1 else [f"{path.stem}-{n:0{digits}}" for n in range(1, len(frames) + 1)]
    return tuple(_geometry(path, name, frame, charge, spin) for name, frame in zip(names, frames))


def build_mole(geometry: Geometry, basis: str) -> gto.Mole:
    """Build PySCF's molecule of a geometry, which prints nothing (verbose=0).

    Elements get the effective core potential that belongs to their basis set in PySCF's library, if there is one.

    Raises
    ------
    MoleculeError
        If charge and spin are not possible, or if the basis set is unknown or lacks an element.
    """
    check_electrons(geometry)
    kinds = sorted(set(geometry.symbols))
    for symbol in kinds:
        _check_basis(basis, elements._std_symbol_without_ghost(symbol))
    mol = gto.Mole(
        atom=list(zip(geometry.symbols, geometry.coordinates)),
        unit="Angstrom",
        basis=basis,
        ecp={symbol: basis for symbol in kinds if _has_core_potential(basis, symbol)},
        charge=geometry.charge,
        spin=geometry.spin,
        verbose=0,
    )
    return mol.build(parse_arg=False, dump_input=False)


def check_electrons(geometry: Geometry) -> None:
    """Raise MoleculeError if charge and number of unpaired electrons are not possible."""
    n, name = geometry.electrons, f"{geometry.name} ({geometry.formula}, charge {geometry.charge:+d})"
    if n <= 0:
        raise MoleculeError(f"{name} has {n} electrons; at least 1 is needed")
    if geometry.spin < 0 or geometry.spin > n or (n - geometry.spin) % 2:
        raise MoleculeError(
            f"{name} has {n} electrons, which is impossible with {geometry.spin} unpaired electrons: choose a charge "
            f"that makes the number of electrons {'odd' if geometry.spin % 2 else 'even'}, or another spin"
        )


def describe(mol: gto.Mole) -> Geometry:
    """The geometry of a PySCF molecule in Angstrom; its name is its formula."""
    symbols = tuple(mol.atom_symbol(a) for a in range(mol.natm))
    xyz = tuple(tuple(row) for row in (mol.atom_coords() * BOHR).tolist())
    nameless = Geometry("", symbols, xyz, int(mol.charge), int(mol.spin))
    return Geometry(nameless.formula, symbols, xyz, int(mol.charge), int(mol.spin))


def basis_name(basis: Any) -> str:
    """The name of a basis set, or its names by element; "given functions" if it has no name."""
    if isinstance(basis, dict):
        return ", ".join(f"{symbol}: {basis_name(basis[symbol])}" for symbol in sorted(basis))
    return basis if isinstance(basis, str) else "default" if basis is None else "given functions"


def _path(source: str | Path) -> Path:
    path = Path(source)
    return path if path.is_file() else _named(str(source))


def _geometry(path: Path, name: str, frame: XyzFrame, charge: int, spin: int | None) -> Geometry:
    geometry = Geometry(name, frame.symbols, frame.coordinates, charge)
    geometry = replace(geometry, spin=geometry.electrons % 2 if spin is None else spin)
    _check_distances(geometry, path, frame.line)
    return geometry


def _named(name: str) -> Path:
    path = MOLECULES / f"{name}.xyz"
    if Path(name).name == name and path.is_file():
        return path
    known = sorted(p.stem for p in MOLECULES.glob("*.xyz"))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise MoleculeError(f"no file {name!r} and no molecule of that name; {hint}known names: {', '.join(known)}")


def _hill(symbols: Sequence[str]) -> str:
    first = ("C", "H") if "C" in symbols else ()
    order = sorted(set(symbols), key=lambda s: (first.index(s) if s in first else len(first), s))
    return "".join(s + (str(n) if (n := symbols.count(s)) > 1 else "") for s in order)


def _check_distances(geometry: Geometry, path: Path, line: int) -> None:
    xyz = np.array(geometry.coordinates)
    distances = np.linalg.norm(xyz[:, None] - xyz, axis=-1) + np.diag(np.full(len(xyz), np.inf))
    i, j = sorted(np.unravel_index(distances.argmin(), distances.shape))
    if distances[i, j] < _CLASH:
        raise MoleculeError(
            f"{path}:{j + line}: atom {j + 1} lies {distances[i, j]:.3g} Angstrom from atom {i + 1} (line {i + line}); "
            f"atoms must be at least {_CLASH} Angstrom apart"
        )


def _check_basis(basis: str, symbol: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing.
            gto.basis.load(basis, symbol)
    except BasisNotFoundError:
        raise MoleculeError(
            f"no basis set {basis!r} for {symbol} in PySCF's library; check the spelling (cc-pvdz, def2-tzvp, ...) "
            "or take another set"
        ) from None
    except (AssertionError, KeyError, ValueError, RuntimeError, OSError) as error:  # PySCF's parsers raise these.
        raise MoleculeError(f"basis set {basis!r} cannot be built for {symbol}: {error}") from None


def _has_core_potential(basis: str, symbol: str) -> bool:
    if elements.is_ghost_atom(symbol):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(gto.basis.load_ecp(basis, symbol))
    except (BasisNotFoundError, KeyError, ValueError, RuntimeError, OSError):
        return False
