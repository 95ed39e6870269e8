"""Dispersion energies by the pyscf-dispersion package."""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.errors import InputError, UnsupportedError
from trnqc.mp2.hybrids.recipes import Damping, HybridRecipe

Disp = bool | str | None
"""The dispersion: None for what the recipe has, False for none, "d3bj" or "VERSION:NAME", see `dispersion_energy`."""


def dispersion_energy(mol: gto.Mole, functional: HybridRecipe, disp: Disp = None) -> float:
    """Compute the dispersion energy of a double hybrid, Hartree.

    `disp` None adds D3(BJ) where it is part of the functional's definition, False adds nothing, and "d3bj" or True adds
    D3(BJ) with the parameters of the recipe. "VERSION:NAME" as on PySCF's objects, such as "d4:b2plyp", adds a version
    of the dispersion with the package's parameters for a functional. Raises InputError if there are no parameters;
    UnsupportedError if the package is not installed.
    """
    model = _model(mol, functional, disp)
    return 0.0 if model is None else float(model.get_dispersion()["energy"])


def dispersion_gradient(mol: gto.Mole, functional: HybridRecipe, disp: Disp = None) -> np.ndarray:
    """Compute the gradient of the dispersion energy, [natm, 3] in Hartree/Bohr; arguments as in `dispersion_energy`."""
    model = _model(mol, functional, disp)
    return np.zeros((mol.natm, 3)) if model is None else np.asarray(model.get_dispersion(grad=True)["gradient"])


def _model(mol: gto.Mole, functional: HybridRecipe, disp: Disp) -> Any:
    """The package's object, or None for no dispersion."""
    if disp is False or (disp is None and not functional.with_dispersion):
        return None
    if isinstance(disp, str) and ":" in disp:
        return _by_name(mol, *disp.lower().split(":", 1))
    if disp not in (None, True, "d3bj", "D3BJ"):
        raise InputError(f'disp must be None, False, "d3bj" or "VERSION:NAME" such as "d4:b2plyp", got {disp!r}')
    if functional.damping is None:
        raise InputError(
            f'no parameters of D3(BJ) are known for {functional.name}: set disp=False, or "VERSION:NAME" for those of '
            "another functional"
        )
    return _with_damping(mol, functional.damping)


def _package(version: str) -> Any:
    module = "dftd4" if version.startswith("d4") else "dftd3"
    try:
        return importlib.import_module(f"pyscf.dispersion.{module}")
    except ImportError as error:
        raise UnsupportedError(
            f"dispersion needs the package pyscf-dispersion ({error}): pip install pyscf-dispersion, or set disp=False"
        ) from error


def _by_name(mol: gto.Mole, version: str, name: str) -> Any:
    package = _package(version)
    try:
        if version == "d4":
            return package.DFTD4Dispersion(mol, xc=name)
        return package.DFTD3Dispersion(mol, xc=name, version=version)
    except (KeyError, RuntimeError) as error:
        raise InputError(f"the dispersion package has no {version} parameters for {name!r}: {error}") from error


def _with_damping(mol: gto.Mole, damping: Damping) -> Any:
    """D3(BJ) with any parameters, which PySCF's class takes by a functional's name only."""
    package = _package("d3bj")
    model = package.DFTD3Dispersion(mol, xc="b2plyp", version="d3bj")
    library = package.libdftd3
    library.dftd3_new_rational_damping.restype = package._d3_p
    error = library.dftd3_new_error()
    try:
        # s6, s8, s9 (no three-body term), a1, a2 and the exponent of the three-body damping, which is not used.
        numbers = (damping.s6, damping.s8, 0.0, damping.a1, damping.a2, 14.0)
        parameters = library.dftd3_new_rational_damping(error, *map(ctypes.c_double, numbers))
        package.error_check(error)
    finally:
        library.dftd3_delete_error(ctypes.byref(error))
    library.dftd3_delete_param(ctypes.byref(model._param))
    model._param = parameters
    return model
