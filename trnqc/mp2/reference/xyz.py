"""Reader of geometry files in the xyz format, plain or extended, with the file and the line in every error."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from pathlib import Path

from pyscf.data import elements
from pyscf.data.nist import BOHR

from trnqc.errors import MoleculeError, UnsupportedError

# Length in Angstrom of each unit that coordinates can have; PySCF's value of the Bohr radius (CODATA).
UNITS = {"angstrom": 1.0, "bohr": BOHR}
# How the list of columns of an extended xyz file begins if its atoms are lines ``symbol x y z``.
FIRST_COLUMNS = "species:s:1:pos:r:3"
# Chemical symbols by their lower-case form.
_SYMBOLS = {symbol.lower(): symbol for symbol in elements.ELEMENTS[1:]}


@dataclass(frozen=True)
class XyzFrame:
    """One geometry of an xyz file: chemical symbols, coordinates in Angstrom, and the line of its first atom."""

    symbols: tuple[str, ...]
    coordinates: tuple[tuple[float, float, float], ...]
    line: int


def read_xyz(path: Path, unit: str = "angstrom") -> tuple[tuple[str, ...], tuple[tuple[float, float, float], ...]]:
    """Read chemical symbols and coordinates in Angstrom from an xyz file: the number of atoms, a comment, and a line
    ``symbol x y z`` for each atom.

    `unit` is the unit in the file, "angstrom" or "bohr". Ghost atoms are written as in PySCF (Ghost-O, ghost.O, X-O,
    ...). Raises MoleculeError, which names file and line, if the file is not valid or has more than one frame.
    """
    scale, lines = _scale(unit), _lines(path)
    frame, end = _frame(path, lines, 0, scale)
    if (after := _next_line(lines, end)) < len(lines):
        raise MoleculeError(
            f"{path}:{after + 1}: nothing was expected after the {len(frame.symbols)} atoms that line 1 promises, "
            f"found {lines[after].strip()!r}"
        )
    return frame.symbols, frame.coordinates


def read_frames(path: Path, unit: str = "angstrom") -> tuple[XyzFrame, ...]:
    """Read an xyz file with one or more frames, each as `read_xyz` reads it.

    Extended xyz files are read too, if symbol and position are their first columns; energies, forces and other columns
    are ignored. Raises MoleculeError, which names file, line and frame, counted from 1, if the file is not valid;
    UnsupportedError if a frame of an extended xyz file is periodic.
    """
    scale, lines = _scale(unit), _lines(path)
    frames: list[XyzFrame] = []
    start = 0
    while start < len(lines) or not frames:
        try:
            frame, end = _frame(path, lines, start, scale)
        except MoleculeError as error:
            raise MoleculeError(f"{error} (frame {len(frames) + 1})") from None
        frames.append(frame)
        start = _next_line(lines, end)
    return tuple(frames)


def _scale(unit: str) -> float:
    """Length of the unit in Angstrom."""
    if unit.lower() not in UNITS:
        raise MoleculeError(f"unit must be one of {', '.join(UNITS)}, got {unit!r}")
    return UNITS[unit.lower()]


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8-sig").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise MoleculeError(f"{path}: cannot be read as text: {error}") from error


def _next_line(lines: list[str], start: int) -> int:
    """Index of the first line from `start` on that is not blank."""
    return next((n for n in range(start, len(lines)) if lines[n].strip()), len(lines))


def _frame(path: Path, lines: list[str], start: int, scale: float) -> tuple[XyzFrame, int]:
    """Read the frame whose first line has the index `start`; also returns the index of the line after it."""
    count = _atom_count(path, lines, start)
    if start + 1 < len(lines):
        _check_comment(path, start + 2, lines[start + 1])
    first, end = start + 2, start + 2 + count
    if end > len(lines):
        raise MoleculeError(
            f"{path}:{len(lines)}: line {start + 1} promises {count} atoms, "
            f"the file ends after {max(len(lines) - first, 0)}"
        )
    atoms = [_atom(path, number, line, scale) for number, line in enumerate(lines[first:end], start=first + 1)]
    return XyzFrame(tuple(symbol for symbol, _ in atoms), tuple(xyz for _, xyz in atoms), first + 1), end


def _atom_count(path: Path, lines: list[str], start: int) -> int:
    text = lines[start].strip() if lines else ""
    if not text.isdecimal() or int(text) == 0:
        raise MoleculeError(f"{path}:{start + 1}: the number of atoms was expected, found {text!r}")
    return int(text)


def _check_comment(path: Path, number: int, comment: str) -> None:
    """Check that a frame of an extended xyz file is a molecule whose first columns are symbols and positions."""
    columns = re.search(r"(?i)\bProperties=(\S+)", comment)
    if columns and not columns[1].lower().startswith(FIRST_COLUMNS):
        raise MoleculeError(
            f"{path}:{number}: the columns of an extended xyz file must begin with {FIRST_COLUMNS}, "
            f"found {columns[1]!r}"
        )
    periodic = re.search(r"(?i)\bpbc=(\"[^\"]*\"|\S+)", comment)
    if periodic and {"t", "true", "1"} & set(periodic[1].strip('"').lower().split()):
        raise UnsupportedError(f"{path}:{number}: the frame is periodic ({periodic[0]}); only molecules are supported")


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
