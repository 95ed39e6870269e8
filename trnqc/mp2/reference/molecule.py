"""A geometry file or a molecule's name -> Geometry -> PySCF's Mole.

Geometries are Angstrom at the door (or Bohr when told so); whatever makes no molecule is a MoleculeError with file
and line.
"""

from __future__ import annotations

import difflib
import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.data import elements
from pyscf.data.nist import BOHR
from pyscf.lib.exceptions import BasisNotFoundError

from trnqc.errors import MoleculeError, UnsupportedError

MOLECULES = Path(__file__).resolve().parent / "molecules"
"""xyz files that are known by name; examples/molecules of a checkout leads there."""
UNITS = {"angstrom": 1.0, "bohr": BOHR}
_CLASH = 0.1
_SYMBOLS = {symbol.lower(): symbol for symbol in elements.ELEMENTS[1:]}


@dataclass(frozen=True)
class Geometry:
    """Atoms of a molecule; coordinates in Angstrom, charge in elementary charges, spin: unpaired electrons.

    Ghost atoms, which have functions but no charge, bear PySCF's labels, such as "GHOST-O".
    """

    name: str
    symbols: tuple[str, ...]
    coordinates: tuple[tuple[float, float, float], ...]
    charge: int = 0
    spin: int = 0

    @property
    def formula(self) -> str:
        """Hill order: C, H, then by alphabet; all by alphabet without carbon. Ghost atoms come after the others."""
        real = _hill([s for s in self.symbols if not elements.is_ghost_atom(s)])
        ghosts = [elements._std_symbol_without_ghost(s) for s in self.symbols if elements.is_ghost_atom(s)]
        return " + ".join(filter(None, [real, f"ghost {_hill(ghosts)}" if ghosts else ""]))

    @property
    def ghosts(self) -> int:
        """Number of ghost atoms."""
        return sum(map(elements.is_ghost_atom, self.symbols))

    @property
    def electrons(self) -> int:
        """Of the neutral atoms less the charge, before any effective core potential."""
        return sum(elements.charge(s) for s in self.symbols) - self.charge


def load_geometry(source: str | Path, charge: int = 0, spin: int = 0, unit: str = "angstrom") -> Geometry:
    """Read an xyz file, or that of a molecule known by name (`MOLECULES`) where no such file exists.

    unit: "angstrom" or "bohr", of the file's coordinates.
    """
    path = Path(source)
    if not path.is_file():
        path = _named(str(source))
    symbols, coordinates = read_xyz(path, unit)
    geometry = Geometry(path.stem, symbols, coordinates, charge, spin)
    _check_distances(geometry, path)
    return geometry


def read_xyz(path: Path, unit: str = "angstrom") -> tuple[tuple[str, ...], tuple[tuple[float, float, float], ...]]:
    """Symbols and coordinates (Angstrom) of an xyz file: count, comment, then one ``symbol x y z`` line an atom.

    Ghost atoms are written as PySCF takes them (Ghost-O, ghost.O, X-O, ...).
    """
    if unit.lower() not in UNITS:
        raise MoleculeError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}")
    try:
        lines = path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MoleculeError(f"{path}: cannot be read as text: {error}") from error
    count = _atom_count(path, lines)
    atoms = lines[2 : 2 + count]
    if len(atoms) < count:
        raise MoleculeError(f"{path}:{len(lines)}: line 1 promises {count} atoms, the file ends after {len(atoms)}")
    for number, line in enumerate(lines[2 + count :], start=3 + count):
        if line.strip():
            raise MoleculeError(
                f"{path}:{number}: nothing was expected after the {count} atoms that line 1 promises, "
                f"found {line.strip()!r}"
            )
    parsed = [_atom(path, number, line, UNITS[unit.lower()]) for number, line in enumerate(atoms, start=3)]
    return tuple(symbol for symbol, _ in parsed), tuple(xyz for _, xyz in parsed)


def build_mole(geometry: Geometry, basis: str) -> gto.Mole:
    """PySCF's Mole for a closed-shell geometry, silent (verbose=0).

    Elements whose ``basis`` comes with an effective core potential in PySCF's library get that potential.
    """
    check_closed_shell(geometry)
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


def check_closed_shell(geometry: Geometry) -> None:
    """MoleculeError for an impossible electron count, UnsupportedError for a sound open shell."""
    n, name = geometry.electrons, f"{geometry.name} ({geometry.formula}, charge {geometry.charge:+d})"
    if n <= 0:
        raise MoleculeError(f"{name} has {n} electrons; at least 2 are needed")
    if geometry.spin < 0 or geometry.spin > n or (n - geometry.spin) % 2:
        raise MoleculeError(
            f"{name} has {n} electrons, which cannot leave {geometry.spin} unpaired: "
            f"give a charge that makes the count {'odd' if geometry.spin % 2 else 'even'}, or another spin"
        )
    if geometry.spin:
        raise UnsupportedError(
            f"{name} with {geometry.spin} unpaired electrons is an open shell; "
            "only closed-shell RHF references are supported"
        )


def describe(mol: gto.Mole) -> Geometry:
    """The geometry of a PySCF molecule, Angstrom, under its formula."""
    symbols = tuple(mol.atom_symbol(a) for a in range(mol.natm))
    xyz = tuple(tuple(row) for row in (mol.atom_coords() * BOHR).tolist())
    nameless = Geometry("", symbols, xyz, int(mol.charge), int(mol.spin))
    return Geometry(nameless.formula, symbols, xyz, int(mol.charge), int(mol.spin))


def basis_name(basis: Any) -> str:
    """A basis in words: its name, names by element, or that its functions were given."""
    if isinstance(basis, dict):
        return ", ".join(f"{symbol}: {basis_name(basis[symbol])}" for symbol in sorted(basis))
    return basis if isinstance(basis, str) else "default" if basis is None else "given functions"


def _named(name: str) -> Path:
    path = MOLECULES / f"{name}.xyz"
    if Path(name).name == name and path.is_file():
        return path
    known = sorted(p.stem for p in MOLECULES.glob("*.xyz"))
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"did you mean {near[0]!r}? " if near else ""
    raise MoleculeError(f"no file {name!r} and no molecule of that name; {hint}known names: {', '.join(known)}")


def _atom_count(path: Path, lines: list[str]) -> int:
    first = lines[0].strip() if lines else ""
    if not first.isdecimal() or int(first) == 0:
        raise MoleculeError(f"{path}:1: the number of atoms was expected, found {first!r}")
    return int(first)


def _atom(path: Path, number: int, line: str, scale: float) -> tuple[str, tuple[float, float, float]]:
    fields = line.split()
    if len(fields) < 4:
        raise MoleculeError(f"{path}:{number}: 'symbol x y z' was expected, found {line.strip()!r}")
    try:
        x, y, z = (scale * float(text) for text in fields[1:4])
    except ValueError:
        raise MoleculeError(
            f"{path}:{number}: three coordinates were expected, found {' '.join(fields[1:4])!r}"
        ) from None
    if not all(map(math.isfinite, (x, y, z))):
        raise MoleculeError(f"{path}:{number}: coordinates must be finite, found {' '.join(fields[1:4])!r}")
    return _symbol(path, number, fields[0]), (x, y, z)


def _symbol(path: Path, number: int, text: str) -> str:
    if text.isdecimal() and 0 < int(text) < len(elements.ELEMENTS):
        return elements.ELEMENTS[int(text)]
    if text.lower() in _SYMBOLS:
        return _SYMBOLS[text.lower()]
    if elements.is_ghost_atom(text.upper()):
        return _ghost(path, number, text)
    raise MoleculeError(f"{path}:{number}: a chemical symbol or atomic number was expected, found {text!r}")


def _ghost(path: Path, number: int, text: str) -> str:
    """PySCF's label of a ghost atom: GHOST-O of ghost.O, X-O of xO, without a number that follows."""
    try:
        label = str(elements._std_symbol(text))
    except (KeyError, RuntimeError):  # PySCF's ways of not knowing an element
        label = ""
    if "-" not in label:
        raise MoleculeError(f"{path}:{number}: a ghost atom names its element, such as Ghost-O or X-O; found {text!r}")
    return label


def _hill(symbols: Sequence[str]) -> str:
    first = ("C", "H") if "C" in symbols else ()
    order = sorted(set(symbols), key=lambda s: (first.index(s) if s in first else len(first), s))
    return "".join(s + (str(n) if (n := symbols.count(s)) > 1 else "") for s in order)


def _check_distances(geometry: Geometry, path: Path) -> None:
    xyz = np.array(geometry.coordinates)
    distances = np.linalg.norm(xyz[:, None] - xyz, axis=-1) + np.diag(np.full(len(xyz), np.inf))
    i, j = sorted(np.unravel_index(distances.argmin(), distances.shape))
    if distances[i, j] < _CLASH:
        raise MoleculeError(
            f"{path}:{j + 3}: atom {j + 1} lies {distances[i, j]:.3g} Angstrom from atom {i + 1} (line {i + 3}); "
            f"atoms must be at least {_CLASH} Angstrom apart"
        )


def _check_basis(basis: str, symbol: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing
            gto.basis.load(basis, symbol)
    except BasisNotFoundError:
        raise MoleculeError(
            f"no basis set {basis!r} for {symbol} in PySCF's library; check the spelling (cc-pvdz, def2-tzvp, ...) "
            "or take another set"
        ) from None
    except (AssertionError, KeyError, ValueError, RuntimeError, OSError) as error:  # of PySCF's parsers
        raise MoleculeError(f"basis set {basis!r} cannot be made for {symbol}: {error}") from None


def _has_core_potential(basis: str, symbol: str) -> bool:
    if elements.is_ghost_atom(symbol):
        return False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return bool(gto.basis.load_ecp(basis, symbol))
    except (BasisNotFoundError, KeyError, ValueError, RuntimeError, OSError):
        return False
