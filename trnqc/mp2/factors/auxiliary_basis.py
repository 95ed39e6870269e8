"""The auxiliary basis of the correlation step: the MP2-fitting (RI) set of the orbital basis, never the JK set.

Elements for which the library has no RI set get a generated even-tempered set: AutoAux (Stoychev, Auer, Neese, J. Chem.
Theory Comput. 13, 554 (2017)). Its fitting error is a few times smaller than that of PySCF's even-tempered default.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from pyscf import df, gto
from pyscf.data import elements
from pyscf.lib.exceptions import BasisNotFoundError

from trnqc.errors import MoleculeError

# Name of a generated set in arguments and results.
GENERATED = "autoaux"


@dataclass(frozen=True, eq=False)
class AuxiliaryBasis:
    """The functions in which products of orbitals are expanded.

    Attributes
    ----------
    auxmol
        PySCF's molecule with these functions.
    names
        The name of the set of each element; "autoaux" for a generated set.
    generated
        Elements whose set was generated because the library has none.
    """

    auxmol: gto.Mole
    names: dict[str, str]
    generated: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """A message about generated sets, or None."""
        if not self.generated:
            return None
        return (
            f"no MP2-fitting auxiliary set in the library for {', '.join(self.generated)} in this orbital basis: "
            "an even-tempered set was generated (AutoAux)"
        )


def auxiliary_basis(mol: gto.Mole, auxbasis: str | dict[str, Any] | None = None) -> AuxiliaryBasis:
    """Choose the auxiliary functions of a molecule.

    Parameters
    ----------
    mol
        The molecule with its orbital basis.
    auxbasis
        None for the RI set of each element's orbital basis, the name of a set for all elements, "autoaux" to generate
        all sets, or PySCF's dict by element.

    Raises
    ------
    MoleculeError
        If a set is unknown or lacks an element; the message names both.
    """
    mol = _with_labels(mol)
    kinds = sorted(mol._basis)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing.
        if auxbasis is None:
            sets, missing = _default(mol, kinds)
            names = {symbol: GENERATED if symbol in missing else sets[symbol] for symbol in kinds}
        else:
            if not isinstance(auxbasis, str | dict):
                raise MoleculeError(f"auxbasis must be None, a set's name or a dict by element, got {auxbasis!r}")
            requested = auxbasis if isinstance(auxbasis, dict) else dict.fromkeys(kinds, auxbasis)
            (sets, names), missing = _requested(mol, kinds, requested), []
        return AuxiliaryBasis(df.addons.make_auxmol(mol, sets), names, tuple(missing))


def _with_labels(mol: gto.Mole) -> gto.Mole:
    """A copy, with verbose = 0, whose orbital basis has an entry for every label that has functions.

    PySCF's integrals use the functions of "O" for the labels "O1" and "GHOST-O", but its functions that choose
    auxiliary sets do not. They also do not recognise a name such as "6-31g**" that is the basis of all atoms.
    """
    copy = mol.copy(deep=False)
    copy.verbose = 0
    labels = {mol.atom_symbol(a) for a in range(mol.natm)}
    copy._basis = {label: functions for label in labels if (functions := _entry(mol._basis, label))}
    if isinstance(mol.basis, str | dict):
        named = mol.basis if isinstance(mol.basis, dict) else {"default": mol.basis}
        copy.basis = {label: _entry(named, label) for label in copy._basis}
    return copy


def _entry(table: dict[str, Any], label: str) -> Any:
    """The entry of `table` for an atom, by its label, its element or "default", in this order."""
    by_label = {key if key == "default" else elements._atom_symbol(key): value for key, value in table.items()}
    for key in (label, elements._std_symbol(label), elements._std_symbol_without_ghost(label), "default"):
        if key in by_label:
            return by_label[key]
    return None


def _default(mol: gto.Mole, kinds: list[str]) -> tuple[dict[str, Any], list[str]]:
    """Sets by element, and the elements whose set had to be generated."""
    library = df.make_auxbasis(mol, mp2fit=True)
    sets = {symbol: library[symbol] for symbol in kinds if isinstance(library.get(symbol), str)}
    missing = [symbol for symbol in kinds if symbol not in sets]
    return sets | _generate(mol, missing), missing


def _requested(mol: gto.Mole, kinds: list[str], requested: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """The requested sets and their names, by element."""
    chosen = {symbol: _entry(requested, symbol) for symbol in kinds}
    if missing := [symbol for symbol, name in chosen.items() if name is None]:
        raise MoleculeError(f"the auxiliary basis has no entry for {', '.join(missing)}")
    for symbol, name in chosen.items():
        if isinstance(name, str) and name.lower() != GENERATED:
            _check_library(name, symbol)
    generate = [symbol for symbol, name in chosen.items() if isinstance(name, str) and name.lower() == GENERATED]
    names = {symbol: name if isinstance(name, str) else "given functions" for symbol, name in chosen.items()}
    return chosen | _generate(mol, generate), names


def _generate(mol: gto.Mole, kinds: list[str]) -> dict[str, Any]:
    return {symbol: functions for symbol, functions in df.autoaux(mol).items() if symbol in kinds} if kinds else {}


def _check_library(name: str, symbol: str) -> None:
    try:
        gto.basis.load(name, symbol)
    except BasisNotFoundError:
        raise MoleculeError(
            f"no auxiliary basis {name!r} for {symbol} in PySCF's library; name none to use the default RI set, "
            f"or use {GENERATED}"
        ) from None
    except (AssertionError, KeyError, ValueError, RuntimeError, OSError) as error:  # PySCF's parsers raise these.
        raise MoleculeError(f"auxiliary basis {name!r} cannot be built for {symbol}: {error}") from None
