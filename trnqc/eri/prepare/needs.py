"""The programs that a molecule needs for a purpose, those that take longest to compile first.

molecule -> one shell of each kind -> classes of shell pairs -> programs
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np
from pyscf import gto

from trnqc.eri.charges import gaussian_charges
from trnqc.eri.fitting import half_transform
from trnqc.eri.jk import quick
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.prepare import prebuild
from trnqc.jit import Recipe

Programs = tuple[Recipe, ...]


def operator_of(omega: float) -> str:
    """Return the name of the operator for an omega of PySCF."""
    return "erf" if omega > 0 else "erfc" if omega < 0 else "coulomb"


def one_of_each(mol: gto.Mole) -> gto.Mole:
    """Return the molecule with one shell of each angular momentum and kind of contraction, which has the same
    classes.
    """
    kinds = np.stack([mol._bas[:, gto.ANG_OF], mol._bas[:, gto.NCTR_OF] > 1])
    first = np.unique(kinds, axis=1, return_index=True)[1]
    copy = mol.copy(deep=False)
    copy._bas = mol._bas[np.sort(first)]
    return copy


def for_jk(mol: gto.Mole, omega: float, with_j: bool, with_k: bool) -> Programs:
    """Return the programs of `JKBuilder.get_jk` with these arguments."""
    classes = JKBuilder(one_of_each(mol), omega=omega).classes()
    return tuple(quick.programs(classes, with_j, with_k).values())


def for_memory(mol: gto.Mole) -> Programs:
    """Return the programs of `int2e` with aosym="s8"."""
    return longest_first(prebuild.programs(one_of_each(mol), ("memory",)))


def for_gradients(mol: gto.Mole, omega: float) -> Programs:
    """Return the programs of `GradientBuilder`."""
    return longest_first(prebuild.programs(one_of_each(mol), ("gradient",), operator_of(omega)))


def for_hessians(mol: gto.Mole, omega: float) -> Programs:
    """Return the programs of `HessianBuilder`, including the programs of `GradientBuilder`."""
    return longest_first(prebuild.programs(one_of_each(mol), ("gradient", "hessian"), operator_of(omega)))


def for_fitting(mol: gto.Mole, auxmol: gto.Mole) -> Programs:
    """Return the programs of `int3c2e` and `int2c2e`, and of J and K from fitted integrals."""
    operator = operator_of(mol.omega or 0.0)
    integrals = prebuild.programs(one_of_each(mol), ("fitting",), operator, one_of_each(auxmol))
    return half_transform.recipes() + longest_first(integrals)


def for_charges(mol: gto.Mole) -> Programs:
    """Return the programs of interactions with Gaussian charges, see `trnqc.eri.charges`, and of their gradients."""
    charge = gaussian_charges(np.zeros((1, 3)), np.ones(1), mol.cart)
    return longest_first(prebuild.programs(one_of_each(mol), ("fitting", "fitted gradient"), auxmol=charge))


def for_core_gradients(mol: gto.Mole) -> Programs:
    """Return the programs of `core_gradient`."""
    return longest_first(prebuild.programs(one_of_each(mol), ("core gradient",)))


def for_fitted_gradients(mol: gto.Mole, auxmol: gto.Mole, omegas: Iterable[float] = (0.0,)) -> Programs:
    """Return the programs of `fitted_jk_gradient` for the operators of several omegas."""
    molecules = one_of_each(mol), one_of_each(auxmol)
    wanted: prebuild.Wanted = {}
    for omega in omegas:
        kinds = ("fitting", "fitted gradient")
        wanted |= prebuild.programs(molecules[0], kinds, operator_of(omega), molecules[1])
    return longest_first(wanted)


def for_mp2_gradients(
    mol: gto.Mole, auxmol: gto.Mole, fitting: gto.Mole | None, omegas: Iterable[float] = (0.0,)
) -> prebuild.Wanted:
    """Return the programs of an MP2 gradient with the fitting functions of the correlation, and with those of the SCF
    if it is density-fitted. `omegas` are those of the operators of J and K.
    """
    small = one_of_each(mol)
    wanted = dict(prebuild.programs(small, ("fitted gradient",), auxmol=one_of_each(auxmol)))
    for omega in omegas:
        if fitting is None:
            wanted |= prebuild.programs(small, ("gradient",), operator_of(omega))
        else:
            kinds = ("fitting", "fitted gradient")
            wanted |= prebuild.programs(small, kinds, operator_of(omega), one_of_each(fitting))
    return wanted


def seconds_to_compile(wanted: prebuild.Wanted) -> float:
    """Estimate the seconds of a Sapphire Rapids core for compiling programs.

    A program took 0.1 + 0.03 exp(0.44 L) s for the angular momenta of its class of sum L, and 1.7 times as long for
    gradients of four-centre integrals.
    """
    return sum(
        (1.7 if kind == "gradient" else 1.0) * (0.1 + 0.03 * math.exp(0.44 * cls.order))
        for kind, cls in wanted.values()
    )


def for_fitted_hessians(mol: gto.Mole, auxmol: gto.Mole, omega: float) -> Programs:
    """Return the programs of `FittedHessian` and of `FittedOrbitalResponse`."""
    molecules = one_of_each(mol), one_of_each(auxmol)
    kinds = ("fitting", "fitted hessian")
    return longest_first(prebuild.programs(molecules[0], kinds, operator_of(omega), molecules[1]))


def longest_first(wanted: prebuild.Wanted) -> Programs:
    """Return programs in the order of decreasing angular momenta."""
    return tuple(sorted(wanted, key=lambda program: -wanted[program][1].order))
