"""Models of others with our convolutions: the layers are swapped in place, nothing else of the model changes.

model -> its convolutions (doors) -> problems -> the same modules with another forward
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

from torch import nn

from trnqc.errors import InputError, UnsupportedError

# Package that a model's classes come from -> the door that knows its convolutions.
DOORS = {"mace": "trnqc.cg.doors.mace", "nequip": "trnqc.cg.doors.nequip"}


def accelerate(model: Any) -> tuple[str, ...]:
    """Swap the convolutions of a MACE or NequIP model, in place, for fused ones; the names of those swapped.

    model: a module, or an ASE calculator that holds one or several. Parameters, buffers, the state dict, devices and
    dtypes stay as they are; energies and forces agree to rounding. Models can be copied, pickled (and read where trnqc
    is installed), trained and moved afterwards; call `undo` before TorchScript. A model that was swapped before is left
    as it is. Kernels are compiled at the first call.
    Raises InputError for something that is no model, UnsupportedError for models of other packages, or for layers that
    another library has replaced, and UnsupportedMode; then nothing was swapped.
    """
    found = []
    for prefix, module in _models(model):
        door = _door(module)
        found += [(prefix + name, door, *rest) for name, *rest in door.prepare(module)]
    for _, door, owner, problem in found:
        door.swap(owner, problem)
    return tuple(name for name, *_ in found)


def undo(model: Any) -> tuple[str, ...]:
    """Put back, in place, the layers that `accelerate` swapped; their names."""
    return tuple(prefix + name for prefix, module in _models(model) for name in _door(module).undo(module))


def _models(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """(prefix of names, module): the model itself or those of a calculator."""
    if isinstance(model, nn.Module):
        yield "", model
        return
    held = getattr(model, "models", None) or [getattr(model, "model", None)]
    if not all(isinstance(module, nn.Module) for module in held):
        raise InputError(f"expected a torch module or an ASE calculator that holds some, found {type(model)}")
    for n, module in enumerate(held):
        yield f"models.{n}." if len(held) > 1 else "", module


def _door(model: nn.Module) -> Any:
    packages = {type(module).__module__.split(".")[0] for module in model.modules()}
    for package, door in DOORS.items():
        # Layers that were swapped belong to the door itself.
        if package in packages or any(type(module).__module__ == door for module in model.modules()):
            return importlib.import_module(door)
    raise UnsupportedError(
        f"expected a model of {' or '.join(DOORS)}, found {type(model)} made of {', '.join(sorted(packages))}: build "
        "trnqc.cg.TensorProductConv(trnqc.cg.from_e3nn(tp)) in the model's own layers instead"
    )
