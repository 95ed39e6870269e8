"""The programs that a basis set needs, for compiling them ahead of any calculation.

basis, elements -> one distant atom of each element -> classes of shell pairs -> programs
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence

import numpy as np
from pyscf import gto
from pyscf.data.elements import ELEMENTS
from pyscf.lib.exceptions import BasisNotFoundError

from trnqc.eri.arrays.writer import Writer
from trnqc.eri.charges import gaussian_charges
from trnqc.eri.classes import OPERATORS, QuartetClass
from trnqc.eri.gradient import digest, three_centre_program
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.gradient.fitting_blocks import segmented
from trnqc.eri.gradient.three_centre_classes import GradientClass, class_of
from trnqc.eri.hessian.digest import hessian_program as hessian_program
from trnqc.eri.hessian.passes import CROSS, CROSS_SWAPPED, FOCK, ONE_SIDE
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.kernels.recurrence import FITTED
from trnqc.eri.kernels.variants import STANDARD, Variant, form_of
from trnqc.eri.seminumerical.gradient_program import gradient_program
from trnqc.eri.seminumerical.pairs import point_pairs
from trnqc.eri.seminumerical.program import seminumerical_program as seminumerical_program
from trnqc.eri.shells.pairs import fitting_shells, pairs_between, pairs_of, quartet_class
from trnqc.errors import InputError, MoleculeError
from trnqc.jit import Recipe

KINDS = (
    *("jk", "memory", "gradient", "core gradient", "hessian", "seminumerical", "seminumerical gradient"),
    *("fitting", "fitted gradient", "fitted hessian"),
)
"""Purposes of programs: J and K; integrals in memory; gradients of J and K, and of the attraction by nuclei; Hessians,
beside the gradients' programs; seminumerical K and its gradient; integrals with a fitting set, their gradients, and
Hessians, beside the integrals."""

Wanted = dict[Recipe, tuple[str, QuartetClass]]


def atoms(basis: str, elements: Sequence[str], cartesian: bool = False) -> gto.Mole:
    """A molecule of one atom of each element, 10 Angstrom apart.

    Raises MoleculeError for unknown element symbols, and for elements that the basis set does not have.
    """
    known = {symbol.lower(): symbol for symbol in ELEMENTS[1:]}
    unknown = [symbol for symbol in elements if symbol.lower() not in known]
    if unknown or not elements:
        raise MoleculeError(f"expected element symbols, such as H C N O; found {', '.join(unknown) or 'none'}")
    symbols = list(dict.fromkeys(known[symbol.lower()] for symbol in elements))
    mol = gto.Mole(atom=[(symbol, (10.0 * n, 0, 0)) for n, symbol in enumerate(symbols)], basis=basis, verbose=0)
    mol.cart, mol.spin = cartesian, None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # PySCF advertises another package whenever a set is missing
            return mol.build(dump_input=False, parse_arg=False)
    except BasisNotFoundError as error:
        reason = " ".join(str(error).split())
        raise MoleculeError(f"{basis} is no basis set with {', '.join(symbols)}: {reason}") from error


def programs(
    mol: gto.Mole, kinds: Sequence[str] = ("jk", "memory"), operator: str = "coulomb", auxmol: gto.Mole | None = None
) -> Wanted:
    """The programs for the shells of a molecule.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    kinds : sequence of str
        Purposes, of KINDS.
    operator : str
        One of `classes.OPERATORS`.
    auxmol : pyscf.gto.Mole, optional
        The fitting set, for the purposes that begin with "fit".

    Returns
    -------
    dict
        The purpose and the class of each program.
    """
    if operator not in OPERATORS or not set(kinds) <= set(KINDS):
        raise InputError(f"operator is one of {OPERATORS}, kinds are of {KINDS}; found {operator!r} and {kinds}")
    if any(kind.startswith("fit") for kind in kinds) != (auxmol is not None):
        raise InputError("kernels for density fitting need a fitting set, and no others do")
    wanted: Wanted = {}
    for kind in kinds:
        for program, cls in _PROGRAMS[kind](mol, operator, auxmol):
            wanted.setdefault(program, (kind, cls))
    return wanted


def form(kind: str, cls: QuartetClass) -> str:
    """The form of a program's recurrence, one of `variants.FORMS`."""
    if kind in ("seminumerical", "seminumerical gradient"):
        return "straight"
    if kind in ("fitted gradient", "core gradient"):
        return GradientClass(cls.la, cls.lb, cls.lc, cls.cartesian, cls.general, cls.operator).form
    return form_of(cls, Variant(rule=FITTED) if kind == "fitting" and not cls.cartesian else STANDARD)


RecipesOfClasses = Iterator[tuple[Recipe, QuartetClass]]


def batches(mol: gto.Mole, operator: str = "coulomb") -> Iterator[Batch]:
    """Yield the batches of quartets that J and K of a molecule need, on CPUs and on GPUs."""
    # Range-separated functionals need K alone.
    omega = {"coulomb": 0.0, "erf": 1.0, "erfc": -1.0}[operator]
    for cls in JKBuilder(mol, omega=omega).classes():
        for with_j, with_k in ((True, True), (True, False)) if operator == "coulomb" else ((False, True),):
            yield Batch(cls, with_j, with_k)


def _jk(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    for batch in batches(mol, operator):
        yield batch.program, batch.cls


def _memory(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    pairs = pairs_of(mol)
    for n, a in enumerate(pairs):
        for b in pairs[: n + 1]:
            bra, ket = (a, b) if (a.la, a.lb) >= (b.la, b.lb) else (b, a)
            cls = quartet_class(bra, ket, operator)
            yield Writer(cls, triangular=True).program, cls


def _gradient(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    basis = derivative_basis(mol)
    for bra in pairs_between(basis.mol, basis.cartesian):
        for ket in pairs_of(basis.cartesian):
            cls = quartet_class(bra, ket, operator)
            yield digest.mixed_basis_program(cls), cls


def _hessian(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    basis = derivative_basis(mol)
    mixed, plain = pairs_between(basis.mol, basis.cartesian), pairs_of(basis.cartesian)
    one_side = pairs_between(basis.mol, basis.mol)
    kinds = [(FOCK, bra, ket) for bra in mixed for ket in plain] + [(ONE_SIDE, b, k) for b in one_side for k in plain]
    kinds += [(CROSS_SWAPPED if b.swapped else CROSS, a, b) for n, a in enumerate(mixed) for b in mixed[: n + 1]]
    for kind, bra, ket in kinds:
        cls = quartet_class(bra, ket, operator)
        yield hessian_program(kind, cls), cls


def _seminumerical(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    for pairs in point_pairs(mol):
        cls = QuartetClass(pairs.la, pairs.lb, 0, 0, True, pairs.n_ab > 1, operator)
        yield seminumerical_program(cls.la, cls.lb, cls.general, operator), cls


def _seminumerical_gradient(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    for pairs in point_pairs(mol):
        cls = QuartetClass(pairs.la, pairs.lb, 0, 0, True, pairs.n_ab > 1, operator)
        yield gradient_program(cls.la, cls.lb, cls.general, operator), cls


def _fitting(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    shells = fitting_shells(auxmol)
    for side, ket in ((pairs_of(mol), shells), (shells, shells)):
        for a in side:
            for b in ket:
                if side is shells and (a.la, a.lb) < (b.la, b.lb):
                    continue
                cls = quartet_class(a, b, operator)
                yield Writer(cls, fitted=True).program, cls


def _fitted_gradient(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    shells = fitting_shells(segmented(auxmol))
    for bra in (*pairs_of(mol), *shells):
        for ket in shells:
            yield _contracted(class_of(bra, ket, operator))


def _core_gradient(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    nucleus = gaussian_charges(np.zeros((1, 3)), np.ones(1), mol.cart)
    for bra in pairs_of(mol):
        for ket in fitting_shells(nucleus):
            # J and K of another operator do not change the attraction.
            yield _contracted(class_of(bra, ket, "coulomb"))


def _contracted(cls: GradientClass) -> tuple[Recipe, QuartetClass]:
    same = QuartetClass(cls.la, cls.lb, cls.lc, 0, cls.cartesian, cls.general, cls.operator)
    return three_centre_program.three_centre_program(cls), same


def _fitted_hessian(mol: gto.Mole, operator: str, auxmol: gto.Mole | None) -> RecipesOfClasses:
    basis, aux = derivative_basis(mol), derivative_basis(auxmol)
    mixed, shells = pairs_between(basis.mol, basis.cartesian), fitting_shells(aux.cartesian)
    moved = fitting_shells(aux.mol)
    both = (*shells, *moved)
    sides = [(mixed, shells), (pairs_of(basis.cartesian), moved), (both, both)]
    for bras, kets in sides:
        for bra in bras:
            for ket in kets:
                if bras is kets and (bra.la, bra.lb) < (ket.la, ket.lb):
                    continue
                cls = quartet_class(bra, ket, operator)
                yield Writer(cls, fitted=True).program, cls
    for bra in mixed:
        for ket in fitting_shells(segmented(aux.cartesian)):
            yield _contracted(class_of(bra, ket, operator))


_PROGRAMS = {
    "jk": _jk,
    "memory": _memory,
    "gradient": _gradient,
    "core gradient": _core_gradient,
    "hessian": _hessian,
    "seminumerical": _seminumerical,
    "seminumerical gradient": _seminumerical_gradient,
    "fitting": _fitting,
    "fitted gradient": _fitted_gradient,
    "fitted hessian": _fitted_hessian,
}
