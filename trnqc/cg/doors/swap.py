"""Swap layers of MACE, NequIP and SevenNet models in place for fused ones; nothing else of a model changes.

The modules mace.py, nequip.py and sevenn.py find the layers of a model and replace their forward functions.
"""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import torch
from torch import nn

from trnqc import jit
from trnqc.cg.problem.contraction import contraction_text
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.cg.programs.directions import CONVOLUTIONS
from trnqc.cg.torch.engines import contraction_engine_of, cpu_engine
from trnqc.cg.torch.storage import COMPUTED
from trnqc.errors import InputError, UnsupportedError
from trnqc.host.threads import cpus

# Module that swaps the layers of a model, by the package that defines the model's classes.
DOORS = {package: f"trnqc.cg.doors.{package}" for package in ("mace", "nequip", "sevenn")}

# PyTorch has no derivative of special.chebyshev_polynomial_t, with which mace-torch computes them.
CHEBYSHEV = (
    "the radial functions of this model are Chebyshev polynomials, which PyTorch does not differentiate: mace-torch's "
    "forces and stress are not the derivative of its energy, and the accelerated model repeats them. Those of "
    "trnqc.mace.Calculator are the derivative, and differ"
)


def accelerate(model: Any) -> tuple[str, ...]:
    """Swap the convolutions of MACE, NequIP and SevenNet models, and MACE's contractions, in place, for fused ones.

    Parameters
    ----------
    model : torch.nn.Module or ase.calculators.calculator.Calculator
        A model, or a calculator that holds one or several. A model that was swapped before is not changed.

    Returns
    -------
    tuple of str
        The names of the layers that were swapped.

    Raises
    ------
    InputError
        For an object that is neither a model nor a calculator with models.
    UnsupportedError
        For models of other packages, and for layers that another library has replaced.
    UnsupportedMode
        For a mode that has no kernel. After any error the model is unchanged.

    Notes
    -----
    Parameters, buffers, the state dict, devices and dtypes stay as they are; energies and forces agree to rounding.
    Models can be copied, pickled (and read where trnqc is installed), trained and moved afterwards.
    Models of mace-torch with Chebyshev polynomials as radial functions have forces that are not the derivative of their
    energy, with a warning; they stay as they are.
    Kernels of a model on the CPU are compiled on threads from now on, and the first call waits for them. Without a C
    compiler such a model is not changed, with a warning.
    """
    swaps = []
    for prefix, module in _models(model):
        door = _door(module)
        swaps += [(prefix + name, door, *rest) for name, *rest in door.prepare(module)]
        if not any(parameter.is_cuda for parameter in module.parameters()) and _lacks_compiler():
            return ()
    for _, door, owner, replacement in swaps:
        door.swap(owner, replacement)
    for prefix, module in _models(model):
        _start_kernels(module, [new for name, _, _, new in swaps if name.startswith(prefix)])
    if any(type(part).__name__ == "ChebychevBasis" for _, module in _models(model) for part in module.modules()):
        warnings.warn(CHEBYSHEV, stacklevel=2)
    return tuple(name for name, *_ in swaps)


def _start_kernels(model: nn.Module, replacements: Iterable[Any]) -> None:
    """Start compiling what energies and forces on the CPU need, first the energies'; not for parameters elsewhere.

    Errors are left to the call that needs the kernel.
    """
    values: list[Callable[[], Any]] = []
    gradients: list[Callable[[], Any]] = []
    dtype = next((COMPUTED[p.dtype] for p in model.parameters() if p.is_cpu and p.dtype in COMPUTED), None)
    for replacement in replacements if dtype else ():
        if isinstance(replacement, TPProblem):
            product = cpu_engine(text_of(replacement), dtype, torch.get_num_threads())
            values.append(partial(product.function, *CONVOLUTIONS["forward"]))
            gradients.append(partial(product.function, *CONVOLUTIONS["backward"]))
        else:
            contraction = contraction_engine_of(contraction_text(replacement.problem), dtype, torch.get_num_threads())
            values.append(partial(contraction.function, "value", 0))
            gradients.append(partial(contraction.function, "gradient", 0))
    pool = ThreadPoolExecutor(max_workers=cpus())
    for build in (*values, *reversed(gradients)):
        pool.submit(build)
    pool.shutdown(wait=False)


def _lacks_compiler() -> bool:
    """Return whether there is no C compiler, and warn then."""
    reason = jit.lacks_compiler()
    if reason:
        warnings.warn(f"the model is left to PyTorch: {reason}", RuntimeWarning, stacklevel=3)
    return bool(reason)


def undo(model: Any) -> tuple[str, ...]:
    """Restore, in place, the layers that `accelerate` swapped, and return their names."""
    return tuple(prefix + name for prefix, module in _models(model) for name in _door(module).undo(module))


def _models(model: Any) -> Iterator[tuple[str, nn.Module]]:
    """Yield (prefix of names, module) for the model itself or for the models of a calculator."""
    if isinstance(model, nn.Module):
        yield "", model
        return
    models = getattr(model, "models", None) or [getattr(model, "model", None)]
    if not all(isinstance(module, nn.Module) for module in models):
        raise InputError(f"expected a torch module or an ASE calculator that holds some, found {type(model)}")
    for n, module in enumerate(models):
        yield f"models.{n}." if len(models) > 1 else "", module


def _door(model: nn.Module) -> Any:
    packages = {type(module).__module__.split(".")[0] for module in model.modules()}
    for package, door in DOORS.items():
        # The classes of swapped layers are defined in the module that swaps them.
        if package in packages or any(type(module).__module__ == door for module in model.modules()):
            return importlib.import_module(door)
    raise UnsupportedError(
        f"expected a model of {' or '.join(DOORS)}, found {type(model)} made of {', '.join(sorted(packages))}: build "
        "trnqc.cg.TensorProductConv(trnqc.cg.from_e3nn(tp)) in the model's own layers instead"
    )
