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
from torch.utils import cpp_extension

from trnqc.cg.cpp import SHARED
from trnqc.cg.cpu.contraction import kernel_name
from trnqc.cg.cpu.contraction_engine import contraction_engine
from trnqc.cg.cpu.engine import compiled_engine
from trnqc.cg.problem.contraction import ContractionProblem, contraction_text
from trnqc.cg.problem.text import text_of
from trnqc.cg.programs.directions import CONVOLUTIONS
from trnqc.cg.torch.contraction import PolynomialContraction
from trnqc.cg.torch.modules import TensorProductConv
from trnqc.cg.torch.product_module import ProductModule
from trnqc.errors import InputError
from trnqc.jit import find_compiler
from trnqc.jit.cpp import shared_library
from trnqc.jit.shipped import cpu_features

INDEX, LIBRARY = "index", "libtrnqc_operators.so"
VERSION = 2


@dataclass(frozen=True)
class IndexedKernel:
    """A kernel of the index, with its compiled file and the five sizes of its problem, which kernels.h describes."""

    name: str
    dtype: str
    built: Path
    sizes: tuple[int, ...]
    problem: str

    def line(self) -> str:
        """Return the line of the index."""
        return "\t".join(map(str, (self.name, self.dtype, self.built.name, *self.sizes, self.problem)))


def write_kernels(model: nn.Module, folder: str | Path, *, dtype: str = "", training: bool = False) -> Path:
    """Write the kernels of a model and the operators in C++ to a folder, for programs without Python.

    Parameters
    ----------
    model : torch.nn.Module
        A model with modules `TensorProduct`, `TensorProductConv` or `SymmetricContraction`, such as one that
        `accelerate` has changed.
    folder : path
        The folder, which is made if it does not exist. If it has kernels of other models, they stay.
    dtype : {"float32", "float64"}, optional
        Type of the operands; by default, that of the model's parameters.
    training : bool, optional
        Whether to write the kernels of second derivatives, and those of the weights of symmetric contractions, too.

    Returns
    -------
    Path
        The library of operators in the folder. A program loads it (by `dlopen` or `torch.ops.load_library`) before it
        loads the model. The kernels have to stay beside it.

    Raises
    ------
    InputError
        If the model has no tensor product of trnqc, or parameters of other types.
    CompilerError
        If there is no C or C++ compiler, or if it fails.
    """
    entries = list(_entries(model, dtype or _dtype(model), training))
    if not entries:
        raise InputError(f"expected a model with modules of trnqc.cg, found none in {type(model).__name__}")
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    for entry in entries:
        shutil.copyfile(entry.built, folder / entry.built.name)
    lines = dict.fromkeys((*_lines(folder), *(entry.line() for entry in entries)))
    shutil.copyfile(operators_library(), folder / LIBRARY)
    (folder / INDEX).write_text("\n".join((_header(), *lines)) + "\n")
    return folder / LIBRARY


def _entries(model: nn.Module, dtype: str, training: bool) -> Iterator[IndexedKernel]:
    for module in model.modules():
        if isinstance(module, ProductModule):
            yield from _of_product(module, dtype, training)
        elif isinstance(module, PolynomialContraction):
            yield from _of_contraction(module.problem, dtype, training)


def _of_product(module: ProductModule, dtype: str, training: bool) -> Iterator[IndexedKernel]:
    names: Iterable[str] = ("forward", "backward", *["double_backward"] * training)
    if isinstance(module, TensorProductConv):
        names = [name + "_kahan" * module.kahan for key in names for name in CONVOLUTIONS[key]]
    problem = module.problem
    engine = compiled_engine(problem, dtype, torch.get_num_threads())
    sizes = (*problem.dims, problem.weight_numel, int(problem.shared_weights))
    for name in names:
        yield IndexedKernel(name, dtype, engine.build(name).path, sizes, text_of(problem))


def _of_contraction(problem: ContractionProblem, dtype: str, training: bool) -> Iterator[IndexedKernel]:
    engine = contraction_engine(problem, dtype, torch.get_num_threads())
    sizes = (*problem.dims, len(problem.terms), problem.channels, engine.lanes)
    for directions in range(1 + training):
        for kind in ("value", "gradient", *["gradients"] * training):
            name = kernel_name(kind, directions)
            yield IndexedKernel(name, dtype, engine.build(kind, directions).path, sizes, contraction_text(problem))


def _dtype(model: nn.Module) -> str:
    """Return the type of the model's parameters, which must have one type."""
    tensors = (*model.parameters(), *model.buffers())
    types = sorted({str(t.dtype).removeprefix("torch.") for t in tensors if t.dtype.is_floating_point and t.numel()})
    if types not in (["float32"], ["float64"]):
        raise InputError(f"expected parameters of type float32 or float64, found {', '.join(types)}: pass dtype")
    return types[0]


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


FOLDER = Path(__file__).parent
HEADERS = (
    *(FOLDER / name for name in ("products.h", "contractions.h", "kernels.h")),
    *(SHARED / name for name in ("graph.h", "contraction.h", "call.h", "cpu.h")),
)
# The libraries of PyTorch that programs with its operators are linked with.
LINKED = ("-ltorch", "-ltorch_cpu", "-lc10")


def operators_library() -> Path:
    """Return the library of operators in the cache, compiled at the first call.

    Raises CompilerError if there is no C++ compiler, or if the compiler fails.
    """
    version = f'-DTRNQC_TORCH="{torch.__version__}"'
    flags = ("-fopenmp", "-DAT_PARALLEL_OPENMP=1", version, *torch_defines())
    return shared_library("cg-operators", FOLDER / "operators.cpp", HEADERS, flags, LINKED, torch_folders())


def torch_defines() -> tuple[str, ...]:
    """Return the macros that the headers of PyTorch and ours expect."""
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return f"-D_GLIBCXX_USE_CXX11_ABI={abi}", f'-DTRNQC_MACHINE="{platform.machine()}"'


def torch_folders() -> tuple[str, ...]:
    """Return the options that name the folders of PyTorch's headers and libraries."""
    folders = cpp_extension.library_paths()
    places = [option for folder in folders for option in (f"-L{folder}", f"-Wl,-rpath,{folder}")]
    return *(f"-isystem{path}" for path in cpp_extension.include_paths()), *places
