"""Read a MACE model, a module of PyTorch, into a description (`trnqc.mace.model`).

torch file -> module -> basis (radial.py), interactions and products (blocks.py), readouts (readouts.py, dipoles.py)
           -> Model

Only the attributes of the modules are read, so that this package imports neither mace nor e3nn. Modules are identified
by the names of their classes, and one that is not known is an error that names it.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import InputError, UnsupportedError
from trnqc.mace.model import DipoleReadout, InteractionBlock, Model, ProductBlock, Readout
from trnqc.mace.reader.blocks import element_table, interaction, product
from trnqc.mace.reader.dipoles import energy_and_dipole
from trnqc.mace.reader.linears import array, expect
from trnqc.mace.reader.radial import basis, repulsion
from trnqc.mace.reader.readouts import readout

# The version of mace-torch whose modules are read.
VERSION = "0.3.16"
# Attributes of models with inputs or terms of the energy that a description does not have.
EXTRAS = ("joint_embedding", "embedding_readout", "les", "lammps_class")


def load(path: str | Path, head: str | None = None) -> Model:
    """Read a model file of mace-torch, ``torch.save(model, path)``.

    Parameters
    ----------
    path : str or Path
        The file. PyTorch unpickles it, which can run any code: open files only that you trust.
    head : str, optional
        As in `read`.

    Raises
    ------
    InputError
        If the file does not contain a module.
    UnsupportedError
        If mace-torch is not installed, or as in `read`.
    """
    import torch

    try:
        module = torch.load(path, map_location="cpu", weights_only=False)
    except ModuleNotFoundError as error:
        raise UnsupportedError(
            f"{path}: unpickling needs {error.name}: install mace-torch, or write a file with 'trnqc mace' where it is"
        ) from error
    except Exception as error:
        raise InputError(
            f"{path}: expected a model saved by mace-torch, and PyTorch cannot read it: {error}"
        ) from error
    if not isinstance(module, torch.nn.Module):
        raise InputError(f"{path}: expected a module of PyTorch, found {type(module).__name__}")
    return read(module, head)


def read(module: Any, head: str | None = None) -> Model:
    """Read a MACE model.

    Parameters
    ----------
    module : torch.nn.Module
        A `MACE`, `ScaleShiftMACE` or `EnergyDipolesMACE` of mace-torch.
    head : str, optional
        The head whose energy is described, by default the only one.

    Returns
    -------
    Model
        The description.

    Raises
    ------
    UnsupportedError
        If the model has a block that cannot be described; the message names the block.
    InputError
        If the model does not have the head, or if it has several and none is named, or if a module of the model lacks
        an attribute, as those of other versions of mace-torch may.
    """
    try:
        return _read(module, head)
    except AttributeError as error:
        raise InputError(
            f"model: expected the modules of mace-torch {VERSION}, found other ones: {error}: load the model with the "
            f"version that has written it, and save it again with {VERSION}"
        ) from error


def _read(module: Any, head: str | None) -> Model:
    kind = expect("model", module, "MACE", "ScaleShiftMACE", "EnergyDipolesMACE")
    for extra in EXTRAS:
        if getattr(module, extra, None) is not None:
            raise UnsupportedError(f"model: {extra} is not supported: evaluate this model with mace-torch")
    number, name, heads = _head(module, head)
    numbers = tuple(int(z) for z in array(module.atomic_numbers))
    scale, shift = _scale_shift(module, number) if kind == "ScaleShiftMACE" else (1.0, 0.0)
    radial = basis(module.radial_embedding, numbers)
    products = _products(module, len(numbers))
    energies = np.atleast_2d(array(module.atomic_energies_fn.atomic_energies))
    repels = bool(getattr(module, "pair_repulsion", False))
    dipoles: tuple[DipoleReadout, ...] = ()
    if kind == "EnergyDipolesMACE":
        readouts, dipoles = _with_dipoles(module)
    else:
        readouts = _readouts(module, number, heads, scale)
    return Model(
        numbers,
        radial,
        element_table("node_embedding.linear", module.node_embedding.linear),
        _interactions(module, radial.size),
        products,
        readouts,
        energies[number if len(energies) > 1 else 0],
        shift,
        repulsion(module.pair_repulsion_fn, numbers, scale) if repels else None,
        name,
        str(next(iter(module.parameters())).dtype).removeprefix("torch."),
        dipoles,
    )


def _head(module: Any, head: str | None) -> tuple[int, str, int]:
    """Number and name of the head, and the number of heads."""
    heads = list(getattr(module, "heads", None) or ["Default"])
    if head is None and len(heads) == 1:
        head = heads[0]
    if head is None or head not in heads:
        raise InputError(f"head: expected one of {', '.join(heads)}; found {head}")
    return heads.index(head), head, len(heads)


def _scale_shift(module: Any, head: int) -> tuple[float, float]:
    scale, shift = (np.atleast_1d(array(part)) for part in (module.scale_shift.scale, module.scale_shift.shift))
    return float(scale[head if len(scale) > 1 else 0]), float(shift[head if len(shift) > 1 else 0])


def _interactions(module: Any, size: int) -> tuple[InteractionBlock, ...]:
    """The interaction blocks; a self-connection that the product block ignores is left out."""
    blocks = [interaction(f"interactions.{n}", block, size) for n, block in enumerate(module.interactions)]
    used = [block.use_sc for block in module.products]
    return tuple(block if use else replace(block, skip=None) for block, use in zip(blocks, used, strict=True))


def _products(module: Any, elements: int) -> tuple[ProductBlock, ...]:
    return tuple(product(f"products.{n}", block, elements) for n, block in enumerate(module.products))


def _readouts(module: Any, head: int, heads: int, scale: float) -> tuple[Readout, ...]:
    """The readouts; a single one reads the features of the last layer."""
    count = len(module.readouts)
    sources = range(count) if count > 1 else [len(module.interactions) - 1]
    return tuple(
        readout(f"readouts.{n}", block, source, head, heads, scale)
        for n, (block, source) in enumerate(zip(module.readouts, sources))
    )


def _with_dipoles(module: Any) -> tuple[tuple[Readout, ...], tuple[DipoleReadout, ...]]:
    """The readouts of energies and of dipole moments, one for each layer."""
    pairs = [energy_and_dipole(f"readouts.{n}", block, n) for n, block in enumerate(module.readouts)]
    dipoles = tuple(dipole for _, dipole in pairs if dipole is not None)
    if not dipoles:
        raise UnsupportedError("model: expected features with vectors, of which dipole moments consist; found scalars")
    return tuple(energy for energy, _ in pairs), dipoles
