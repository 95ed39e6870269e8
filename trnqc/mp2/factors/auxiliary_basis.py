"""The auxiliary basis of the correlation step: the MP2-fitting (RI) set of the orbital basis, never the JK set.

Elements for which the library has none get a generated even-tempered set: AutoAux (Stoychev, Auer, Neese, J. Chem.
Theory Comput. 13, 554 (2017)), whose fitting error is a few times below that of PySCF's own even-tempered default.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

from pyscf import df, gto
from pyscf.data import elements
from pyscf.lib.exceptions import BasisNotFoundError

from trnqc.errors import MoleculeError

# Name of a generated set.
GENERATED = "autoaux"


@dataclass(frozen=True, eq=False)
class AuxiliaryBasis:
    """The functions that products of orbitals are fitted with.

    Attributes
    ----------
    auxmol
        PySCF's molecule with these functions.
    names
        The set of each element; "autoaux" where it was generated.
    generated
        Elements whose set was generated because the library has none.
    """

    auxmol: gto.Mole
    names: dict[str, str]
    generated: tuple[str, ...] = ()

    @property
    def warning(self) -> str | None:
        """What the user has to know about these sets, if anything."""
        if not self.generated:
            return None
        return (
            f"no MP2-fitting auxiliary set in the library for {', '.join(self.generated)} in this orbital basis: "
            "an even-tempered set was generated (AutoAux)"
        )


def auxiliary_basis(mol: gto.Mole, auxbasis: str | dict[str, Any] | None = None) -> AuxiliaryBasis:
    """The auxiliary functions for a molecule.

    Parameters
    ----------
    auxbasis
        None for the RI set of each element's orbital basis, a set's name for all elements, "autoaux" to generate all,
        or PySCF's dict by element.

    Raises
    ------
    MoleculeError
        If a set is unknown or lacks an element, which the message names.
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
    """A silent copy whose orbital basis has an entry for every label that has functions.

    PySCF's integrals take the functions of "O" for the labels "O1" and "GHOST-O"; its functions that make auxiliary
    sets do not. Nor do they know "6-31g**" where one name stands for all atoms.
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
    """The entry of `table` for an atom: by its label, else by its element, else by default."""
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
    """Sets and their names by element, as the caller asked for them."""
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
            f"no auxiliary basis {name!r} for {symbol} in PySCF's library; leave it out for the default RI set, "
            f"or take {GENERATED}"
        ) from None
    except (AssertionError, KeyError, ValueError, RuntimeError, OSError) as error:  # PySCF's parsers raise these.
        raise MoleculeError(f"auxiliary basis {name!r} cannot be made for {symbol}: {error}") from None
