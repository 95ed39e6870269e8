"""A folder with the operators in C++ and the compiled kernels of a model, from which programs without Python load them.

modules -> problem and kernels of each -> compiled files, copied to the folder -> index (kernels.h describes it)
"""

from __future__ import annotations

import platform
import shutil
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.cg.programs.directions import CONVOLUTIONS
from trnqc.cg.torch.contraction import PolynomialContraction
from trnqc.cg.torch.cpp.library import operators_library
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.cg.torch.product_module import ProductModule
from trnqc.errors import InputError, UnsupportedError
from trnqc.jit import find_compiler
from trnqc.jit.features import cpu_features

INDEX, LIBRARY = "index", "libtrnqc_operators.so"
VERSION = 1


@dataclass(frozen=True)
class Entry:
    """A kernel of the index.

    Parameters
    ----------
    name : str
        Name of the function.
    dtype : {"float32", "float64"}
        Type of its operands.
    problem : TPProblem
        The tensor product.
    """

    name: str
    dtype: str
    problem: TPProblem

    def line(self, file: str) -> str:
        """Return the line of the index, for the kernel in `file`."""
        p = self.problem
        fields = (self.name, self.dtype, file, *p.dims, p.weight_numel, int(p.shared_weights), text_of(p))
        return "\t".join(map(str, fields))


def write_kernels(model: nn.Module, folder: str | Path, *, dtype: str = "", training: bool = False) -> Path:
    """Write the kernels of a model and the operators in C++ to a folder, for programs without Python.

    Parameters
    ----------
    model : torch.nn.Module
        A model with modules `TensorProduct` or `TensorProductConv`, such as one that `accelerate` has changed.
    folder : path
        The folder, which is made if it does not exist. If it has kernels of other models, they stay.
    dtype : {"float32", "float64"}, optional
        Type of the operands; by default, that of the model's parameters.
    training : bool, optional
        Whether to write the kernels of second derivatives too.

    Returns
    -------
    Path
        The library of operators in the folder. A program loads it (by `dlopen` or `torch.ops.load_library`) before it
        loads the model. The kernels have to stay beside it.

    Raises
    ------
    InputError
        If the model has no tensor product of trnqc, or parameters of other types.
    UnsupportedError
        If the model has symmetric contractions of trnqc, which have no operator in C++.
    CompilerError
        If there is no C or C++ compiler, or if it fails.
    """
    if any(isinstance(module, PolynomialContraction) for module in model.modules()):
        raise UnsupportedError(
            "expected convolutions and products, found symmetric contractions, which have no operator in C++: call "
            "undo, and accelerate with without_python=True"
        )
    entries = list(_entries(model, dtype or _dtype(model), training))
    if not entries:
        raise InputError(f"expected a model with modules of trnqc.cg, found none in {type(model).__name__}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    lines = dict.fromkeys((*_lines(folder), *(entry.line(_copied(entry, folder)) for entry in entries)))
    shutil.copyfile(operators_library(), folder / LIBRARY)
    (folder / INDEX).write_text("\n".join((_header(), *lines)) + "\n")
    return folder / LIBRARY


def _entries(model: nn.Module, dtype: str, training: bool) -> Iterator[Entry]:
    directions = ("forward", "backward", *["double_backward"] * training)
    for module in model.modules():
        if not isinstance(module, ProductModule):
            continue
        names: Iterable[str] = directions
        if isinstance(module, TensorProductConv):
            names = [name + "_kahan" * module.kahan for key in directions for name in CONVOLUTIONS[key]]
        yield from (Entry(name, dtype, module.problem) for name in names)


def _dtype(model: nn.Module) -> str:
    """Return the type of the model's parameters, which must have one type."""
    tensors = (*model.parameters(), *model.buffers())
    types = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype.is_floating_point and t.numel()})
    if types not in (["float32"], ["float64"]):
        raise InputError(f"expected parameters of type float32 or float64, found {', '.join(types)}: pass dtype")
    return types[0]


def _copied(entry: Entry, folder: Path) -> str:
    """Copy the compiled kernel to the folder, and return the name of the file."""
    path = engine_for(entry.problem, entry.dtype, torch.get_num_threads()).build(entry.name).path
    shutil.copyfile(path, folder / path.name)
    return path.name


def _header() -> str:
    return f"trnqc-kernels\t{VERSION}\t{platform.machine()}\t{' '.join(cpu_features(find_compiler()))}"


def _lines(folder: Path) -> list[str]:
    """Return the lines of the kernels that the folder has already. Raises InputError if they are for another CPU."""
    if not (folder / INDEX).exists():
        return []
    header, *lines = (folder / INDEX).read_text().splitlines()
    if header != _header():
        raise InputError(f"{folder}: expected kernels for this machine ({_header()!r}), found {header!r}")
    return lines
