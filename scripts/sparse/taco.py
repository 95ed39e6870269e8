"""TACO's code of a loop nest as a contestant, compiled with the flags of our own kernels and called in this process.

nest of taco_nests.cpp -> TACO -> C -> compiled -> called with operands in CSR or CSF -> result

TACO_HOME names a source tree of TACO (github.com/tensor-compiler/taco) whose library has been built in its folder
`build`. Without it there are no contestants. TACO computes a sparse result in two ways: the number of its elements
first and the elements in a second pass, or both in one pass. A contestant uses the faster one. TACO's own flags allow
the compiler to reorder sums (-ffast-math) and ours do not: TACO's code is compiled both ways, and the faster competes.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path

import numpy as np

from trnqc.errors import InputError
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import find_compiler
from trnqc.sparse.tensors.levels import Compressed
from trnqc.sparse.tensors.storage import SparseTensor

SOURCE = Path(__file__).with_name("taco_nests.cpp")
VARIABLE = "TACO_HOME"
# Ways to compute, and flags beside ours.
WAYS, FLAGS = (("evaluate",), ("assemble", "compute")), ((), ("-ffast-math",))
# Runs by which the fastest of them is chosen.
TRIALS = 2

_libc = ctypes.CDLL(None)
_libc.free.argtypes = [ctypes.c_void_p]
_Pointers = ctypes.POINTER(ctypes.c_void_p)


class Tensor(ctypes.Structure):
    """taco_tensor_t of TACO's generated code."""

    _fields_ = (
        ("order", ctypes.c_int32),
        ("dimensions", ctypes.c_void_p),
        ("csize", ctypes.c_int32),
        ("mode_ordering", ctypes.c_void_p),
        ("mode_types", ctypes.c_void_p),
        ("indices", ctypes.POINTER(_Pointers)),
        ("vals", ctypes.c_void_p),
        ("fill_value", ctypes.c_void_p),
        ("vals_size", ctypes.c_int32),
    )


class Packed:
    """A tensor as TACO's code reads or writes it. It owns what that code has allocated in it.

    Parameters
    ----------
    shape
        The extents of its levels, outermost first.
    kinds
        The kind of each level.
    arrays
        Positions and coordinates of the compressed levels, by level; none for a result.
    values
        Its values; None for a result.
    """

    def __init__(
        self,
        shape: Sequence[int],
        kinds: Sequence[str],
        arrays: Mapping[int, tuple[np.ndarray, np.ndarray]] | None = None,
        values: np.ndarray | None = None,
    ) -> None:
        self.shape, self.kinds = tuple(shape), tuple(kinds)
        self._dimensions = np.array(shape, np.int32)
        self._levels = [(ctypes.c_void_p * 2)() for _ in kinds]
        self._pointers = (_Pointers * len(kinds))(*(ctypes.cast(level, _Pointers) for level in self._levels))
        self._kept = (arrays, values)
        self.tensor = Tensor(len(kinds), self._dimensions.ctypes.data, 8, indices=self._pointers)
        for level, both in (arrays or {}).items():
            self._levels[level][:] = [array.ctypes.data for array in both]
        if values is not None:
            self.tensor.vals = values.ctypes.data
            self.tensor.vals_size = len(values)

    @classmethod
    def of(cls, tensor: SparseTensor) -> Packed:
        """Return an operand whose levels are in the order of the tensor's."""
        arrays = {
            n: (level.positions.astype(np.int32), level.coordinates.astype(np.int32))
            for n, level in enumerate(tensor.levels)
            if isinstance(level, Compressed)
        }
        values = tensor.values if tensor.values is not None else np.ones(tensor.size)
        return cls([tensor.shape[mode] for mode in tensor.order], tensor.kinds, arrays, values)

    def __del__(self) -> None:
        if self._kept[1] is None:
            for pointer in (self.tensor.vals, *(p for level in self._levels for p in level)):
                _libc.free(pointer)

    def to_dense(self) -> np.ndarray:
        """Return the elements of a result, which TACO's code has written."""
        size, rows = 1, np.empty((0, 1), np.int64)
        for n, (kind, extent) in enumerate(zip(self.kinds, self.shape)):
            if kind == "dense":
                own = np.tile(np.arange(extent), size)
                rows = np.vstack([np.repeat(rows, extent, axis=1), own])
                size *= extent
                continue
            positions = self._array(self._levels[n][0], ctypes.c_int32, size + 1)
            size = int(positions[-1])
            own = self._array(self._levels[n][1], ctypes.c_int32, size)
            rows = np.vstack([np.repeat(rows, np.diff(positions), axis=1), own])
        values = self._array(self.tensor.vals, ctypes.c_double, size)
        if "compressed" not in self.kinds:
            return values.reshape(self.shape).copy()
        dense = np.zeros(self.shape)
        dense[tuple(rows)] = values
        return dense

    def _array(self, address: int | None, kind: type, count: int) -> np.ndarray:
        if not count:
            return np.empty(0)
        return np.ctypeslib.as_array(ctypes.cast(address or 0, ctypes.POINTER(kind)), (count,))


@dataclass(frozen=True, eq=False)
class Nest:
    """One of TACO's nests with its operands. Calling it computes the result.

    Parameters
    ----------
    name
        The name of the nest in taco_nests.cpp, the functions that are called and the flags beside ours.
    library
        The compiled code.
    steps
        The functions to call, in order.
    parameters
        The names of their tensors, by function.
    operands
        The operands by name.
    shape, kinds
        Extents and kinds of the levels of the result.
    modes
        The modes of the network's result in the order of these levels.
    """

    name: str
    library: ctypes.CDLL
    steps: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]
    operands: Mapping[str, Packed]
    shape: tuple[int, ...]
    kinds: tuple[str, ...]
    modes: tuple[int, ...]

    def __call__(self) -> Result:
        result = Packed(self.shape, self.kinds)
        for step in self.steps:
            tensors = [self.operands.get(name, result) for name in self.parameters[step]]
            getattr(self.library, step)(*(ctypes.byref(tensor.tensor) for tensor in tensors))
        return Result(result, self.modes)


@dataclass(frozen=True, eq=False)
class Result:
    """A result of TACO's code, and the modes of the network's result in the order of its levels."""

    packed: Packed
    modes: tuple[int, ...]

    def to_dense(self) -> np.ndarray:
        """Return the elements, with axes in the order of the network's result."""
        return self.packed.to_dense().transpose(np.argsort(self.modes))


def installed() -> bool:
    """Return whether TACO_HOME is set. Raises InputError if it names no built tree of TACO."""
    home = os.environ.get(VARIABLE)
    if home is not None and not (Path(home) / "build" / "lib" / "libtaco.so").exists():
        raise InputError(
            f"{VARIABLE} must name a source tree of TACO with build/lib/libtaco.so; found {home}: build it there, by "
            "cmake with -DCMAKE_BUILD_TYPE=Release and make taco"
        )
    return home is not None


def fastest(
    name: str,
    extent: int,
    operands: Mapping[str, SparseTensor],
    shape: Sequence[int],
    kinds: Sequence[str],
    modes: Sequence[int],
) -> Nest:
    """Return the nest in the fastest of TACO's ways to compile and to call it.

    Parameters
    ----------
    name, extent
        The nest of taco_nests.cpp, and the extent of its workspace.
    operands
        The operands by their names in the nest, packed with levels in the order that it reads.
    shape, kinds, modes
        Extents, kinds and modes of the levels of the result.
    """
    packed = {operand: Packed.of(tensor) for operand, tensor in operands.items()}
    found: list[tuple[float, Nest]] = []
    text = source(name, extent)
    for flags, steps in product(FLAGS, WAYS):
        library = ctypes.CDLL(str(compiled(text, flags)))
        how = " ".join((name, *steps, *flags))
        nest = Nest(how, library, steps, signatures(text), packed, tuple(shape), tuple(kinds), tuple(modes))
        seconds = min(_timed(nest) for _ in range(TRIALS))
        found.append((seconds, nest))
    return min(found, key=lambda each: each[0])[1]


def _timed(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def signatures(text: str) -> dict[str, tuple[str, ...]]:
    """Return the names of the tensors that each function of TACO's C text takes."""
    found: Iterator[re.Match[str]] = re.finditer(r"^int (\w+)\((taco_tensor_t \*.*)\) \{", text, re.MULTILINE)
    return {each[1]: tuple(re.findall(r"\*(\w+)", each[2])) for each in found}


@cache
def source(name: str, extent: int) -> str:
    """Return the C text that TACO generates for a nest."""
    home = Path(os.environ[VARIABLE])
    text, library = SOURCE.read_text(encoding="utf-8"), home / "build" / "lib"

    def build(output: Path) -> None:
        include = [f"-I{home / folder}" for folder in ("include", "src", "build/include")]
        link = [f"-L{library}", f"-Wl,-rpath,{library}", "-ltaco"]
        command = ["c++", "-std=c++14", "-w", *include, str(SOURCE), "-o", str(output), *link]
        subprocess.run(command, check=True)

    program = library_cache().get(f"taco-nests-{key_of(text, str(home))}", build, "")
    return subprocess.run([str(program), name, str(extent)], check=True, capture_output=True, text=True).stdout


def compiled(text: str, flags: tuple[str, ...]) -> Path:
    """Return the library of C text, compiled with the flags of our kernels and `flags`."""
    compiler = find_compiler()
    key = key_of(compiler.identity, *flags, text)
    return library_cache().get(f"taco-{key}", lambda output: compiler.build(text, output, (*flags, "-w")))
