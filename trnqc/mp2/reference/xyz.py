"""Reader of geometry files in the xyz format, with the file and the line in every error."""

from __future__ import annotations

import math
from pathlib import Path

from pyscf.data import elements
from pyscf.data.nist import BOHR

from trnqc.errors import MoleculeError

# Length in Angstrom of each unit that coordinates can have; PySCF's value of the Bohr radius (CODATA).
UNITS = {"angstrom": 1.0, "bohr": BOHR}
# Chemical symbols by their lower-case form.
_SYMBOLS = {symbol.lower(): symbol for symbol in elements.ELEMENTS[1:]}


def read_xyz(path: Path, unit: str = "angstrom") -> tuple[tuple[str, ...], tuple[tuple[float, float, float], ...]]:
    """Read an xyz file: the number of atoms, a comment, and a line ``symbol x y z`` for each atom.

    Parameters
    ----------
    path
        The file. Ghost atoms are written as in PySCF (Ghost-O, ghost.O, X-O, ...).
    unit
        Unit of the coordinates: "angstrom" or "bohr".

    Returns
    -------
    tuple
        Chemical symbols, and coordinates in Angstrom.

    Raises
    ------
    MoleculeError
        If the file is not valid; the message names file and line.
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
    """PySCF's label of a ghost atom, without its number: GHOST-O for ghost.O1, X-O for xO."""
    try:
        label = str(elements._std_symbol(text))
    except (KeyError, RuntimeError):  # PySCF raises these for an unknown element.
        label = ""
    if "-" not in label:
        raise MoleculeError(f"{path}:{number}: a ghost atom names its element, such as Ghost-O or X-O; found {text!r}")
    return label
