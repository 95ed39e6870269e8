"""Interaction energies of molecular complexes with the counterpoise correction.

complex, fragments -> the complex, each fragment in the basis of the complex and in its own -> InteractionEnergy
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from pyscf import gto
from pyscf.data import elements

from trnqc.errors import InputError, MoleculeError
from trnqc.interfaces.energy import Energy
from trnqc.interfaces.method import default_method

Method = Callable[[gto.Mole], Any]
"""Computes the energies of a molecule: returns an object with e_hf and e_corr in Hartree."""


@dataclass(frozen=True)
class Fragment:
    """A part of a complex.

    Attributes
    ----------
    atoms
        Indices of its atoms in the complex, from 0.
    charge
        Its charge in elementary charges.
    spin
        Its number of unpaired electrons.
    """

    atoms: tuple[int, ...]
    charge: int = 0
    spin: int = 0


@dataclass(frozen=True)
class InteractionEnergy:
    """The energies of a complex and of its fragments, Hartree.

    Attributes
    ----------
    complex
        The complex.
    in_own_basis
        Each fragment with its own basis functions.
    in_full_basis
        Each fragment with the basis functions of all atoms of the complex.
    """

    complex: Energy
    in_own_basis: tuple[Energy, ...]
    in_full_basis: tuple[Energy, ...]

    @property
    def uncorrected(self) -> Energy:
        """Interaction energy without the counterpoise correction."""
        return self.complex - sum(self.in_own_basis, Energy(0.0, 0.0))

    @property
    def corrected(self) -> Energy:
        """Interaction energy with the counterpoise correction."""
        return self.complex - sum(self.in_full_basis, Energy(0.0, 0.0))

    @property
    def superposition_error(self) -> Energy:
        """Basis-set superposition error, which is negative if it makes the complex too stable."""
        return self.uncorrected - self.corrected


def counterpoise(
    mol: gto.Mole,
    fragments: Sequence[Fragment | Sequence[int]],
    method: Method | None = None,
    progress: Callable[[str, int, int], None] | None = None,
) -> InteractionEnergy:
    """Compute the interaction energy of the fragments of a complex at its geometry.

    Parameters
    ----------
    mol
        The complex. Its atoms, basis set and core potentials are those of the fragments.
    fragments
        The fragments, or the indices of their atoms if they are neutral closed shells. Each atom belongs to one
        fragment.
    method
        Computes the energies of a molecule; by default DF-MP2 with a frozen core on density-fitted Hartree-Fock.
    progress
        Called as progress("energies", done, total).

    Raises
    ------
    MoleculeError
        If the fragments overlap, miss atoms, have other charges in total than the complex, or impossible spins.

    Notes
    -----
    The corrected energy is E(complex) - Σ_F E(F in the basis of the complex) (S. F. Boys, F. Bernardi, Mol. Phys. 19,
    553 (1970)); for several fragments this is the site-site function counterpoise method (B. H. Wells, S. Wilson, Chem.
    Phys. Lett. 101, 429 (1983)). Energies of the fragments' own relaxation are not included.
    """
    parts = tuple(f if isinstance(f, Fragment) else Fragment(tuple(f)) for f in fragments)
    check_fragments(mol, parts)
    compute = default_method if method is None else method
    molecules = [mol]
    for ghosts in (False, True):
        molecules += [fragment_molecule(mol, part, ghosts) for part in parts]
    energies: list[Energy] = []
    for molecule in molecules:
        if progress:
            progress("energies", len(energies), len(molecules))
        energies.append(Energy.of(compute(molecule)))
    n = len(parts)
    return InteractionEnergy(energies[0], tuple(energies[1 : n + 1]), tuple(energies[n + 1 :]))


def check_fragments(mol: gto.Mole, fragments: Sequence[Fragment], first: int = 0) -> None:
    """Check that every atom belongs to one fragment, and charges and spins.

    Parameters
    ----------
    mol, fragments
        The complex and its fragments.
    first
        The number of the first atom in messages, 0 or 1, as the user counts.

    Raises
    ------
    MoleculeError
        If they do not; see `counterpoise`.
    """
    if len(fragments) < 2:
        raise MoleculeError(f"at least two fragments were expected, got {len(fragments)}")
    owner: dict[int, int] = {}
    for number, fragment in enumerate(fragments, start=1):
        if not fragment.atoms:
            raise MoleculeError(f"fragment {number} has no atoms")
        for atom in fragment.atoms:
            if not 0 <= atom < mol.natm:
                raise MoleculeError(
                    f"fragment {number}: atom {atom + first} is not one of the {mol.natm} atoms, which are counted "
                    f"from {first}"
                )
            if atom in owner:
                raise MoleculeError(
                    f"fragments {owner[atom]} and {number} overlap: both have atom {atom + first} (from {first})"
                )
            owner[atom] = number
    if missing := sorted(set(range(mol.natm)) - set(owner)):
        atoms = ", ".join(str(atom + first) for atom in missing)
        raise MoleculeError(f"the fragments miss atoms {atoms} (from {first}) of the complex")
    for number, fragment in enumerate(fragments, start=1):
        _check_electrons(mol, number, fragment)
    if (total := sum(fragment.charge for fragment in fragments)) != mol.charge:
        raise MoleculeError(f"the charges of the fragments add up to {total:+d}, the complex has {mol.charge:+d}")


def _check_electrons(mol: gto.Mole, number: int, fragment: Fragment) -> None:
    electrons = sum(int(mol.atom_charge(atom)) for atom in fragment.atoms) - fragment.charge
    if electrons < 1 or not 0 <= fragment.spin <= electrons or (electrons - fragment.spin) % 2:
        raise MoleculeError(
            f"fragment {number} with charge {fragment.charge:+d} has {electrons} electrons, which is impossible with "
            f"{fragment.spin} unpaired electrons: give the fragment another charge or spin"
        )


def fragment_molecule(mol: gto.Mole, fragment: Fragment, ghosts: bool) -> gto.Mole:
    """Build the molecule of a fragment.

    Parameters
    ----------
    mol
        The complex.
    fragment
        The fragment.
    ghosts
        Whether the other atoms of the complex are present as ghosts, which have basis functions only.
    """
    own, atoms = set(fragment.atoms), []
    for atom, position in enumerate(mol.atom_coords().tolist()):
        symbol = mol.atom_symbol(atom)
        if atom in own:
            atoms.append((symbol, position))
        elif ghosts:
            atoms.append((symbol if elements.is_ghost_atom(symbol) else f"GHOST-{symbol}", position))
    return gto.Mole(
        atom=atoms,
        unit="Bohr",
        basis=_with_ghosts(mol.basis),
        ecp=_core_potentials(mol, own),
        charge=fragment.charge,
        spin=fragment.spin,
        cart=mol.cart,
        verbose=mol.verbose,
        max_memory=mol.max_memory,
    ).build(parse_arg=False, dump_input=False)


def _with_ghosts(basis: Any) -> Any:
    """The basis sets, where those given by element are those of its ghost atoms too."""
    if not isinstance(basis, dict):
        return basis
    return basis | {f"GHOST-{symbol}": value for symbol, value in basis.items() if symbol != "default"}


def _core_potentials(mol: gto.Mole, own: set[int]) -> dict[str, Any]:
    """The core potentials of the atoms of a fragment; ghost atoms have none."""
    symbols = {mol.atom_symbol(atom) for atom in own}
    return {symbol: mol._ecp[symbol] for symbol in symbols if symbol in mol._ecp}


def parse_fragments(text: str) -> tuple[Fragment, ...]:
    """Read fragments as the command line has them, with atoms counted from 1.

    Parameters
    ----------
    text
        ATOMS[:CHARGE[:SPIN]] for each fragment, separated by slashes, where ATOMS are numbers and ranges.

    Raises
    ------
    InputError
        If the text has another form.

    Examples
    --------
    >>> parse_fragments("1-3/4,6:+1:1")
    (Fragment(atoms=(0, 1, 2), charge=0, spin=0), Fragment(atoms=(3, 5), charge=1, spin=1))
    """
    try:
        return tuple(_fragment(part) for part in text.split("/"))
    except ValueError:
        raise InputError(
            f"fragments were expected as ATOMS[:CHARGE[:SPIN]]/..., such as 1-3/4-6 or 1:+1/2-4:-1, got {text!r}"
        ) from None


def _fragment(text: str) -> Fragment:
    atoms, *numbers = text.split(":")
    indices: list[int] = []
    for item in atoms.split(","):
        first, dash, last = item.partition("-")
        indices += range(int(first) - 1, int(last if dash else first))
    if len(numbers) > 2:
        raise ValueError
    return Fragment(tuple(indices), *map(int, numbers))
