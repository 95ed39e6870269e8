"""The products T_j = B_i B_j^T of the pair step, either compiled for packed factors or by NumPy's BLAS."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from importlib import resources
from typing import Any, Protocol

import numpy as np

from trnqc import jit
from trnqc.backends.cpu.formats import FORMATS, encode
from trnqc.host.arrays import zeros
from trnqc.host.blas import numpy_blas, single_threaded

LINE = 64
"""Bytes of a cache line."""
C_TYPES = {"float64": "double", "float32": "float"}

Map = Callable[..., Any]
"""The built-in map, or that of a pool of threads."""


@dataclass(frozen=True)
class Slab:
    """T_j[a, b] of consecutive j, the last being i if `symmetric`, at data[a, column + (j - j0) * nvir + b].

    Of a symmetric T_j only the lower half need be there.
    """

    data: np.ndarray
    column: int
    symmetric: bool


class PairProducts(Protocol):
    """How the pair loop computes T.

    Attributes
    ----------
    orbital_bytes, slab_bytes, scratch_bytes : int
        Bytes of one loaded B_i, of T of one pair, and of a thread's temporaries.
    label : str
        What computes the products, in words.
    """

    orbital_bytes: int
    slab_bytes: int
    scratch_bytes: int
    label: str

    def alone(self) -> AbstractContextManager[Any]:
        """A context in which a product runs on the thread that calls it only."""
        ...

    def load(self, i0: int, i1: int, map: Map = map) -> Any:
        """Rows i0 .. i1 - 1 of B, ready to be multiplied."""
        ...

    def slab(self, pairs: int) -> np.ndarray:
        """An array for T of so many pairs."""
        ...

    def multiply(self, left: Any, right: Any, i: int, j0: int, j1: int, out: np.ndarray) -> Slab:
        """T of one i in `left` and of j0 <= j < j1 in `right`, j1 <= i + 1, written to `out`."""
        ...


def make_products(B: Any, precision: str, compiled: bool, columns: int | None = None) -> PairProducts:
    """Compiled products if they are requested and written for this machine, else those of NumPy.

    bf16x3 multiplies two different arrangements of its parts, which NumPy does. Raises CompilerError.

    Parameters
    ----------
    B
        The rows [nocc, nvir, naux] of the left operand.
    precision
        The format of the operands.
    compiled
        Whether compiled products are requested.
    columns
        Virtual orbitals of an orbital j of the right operand; by default those of `B`.
    """
    if compiled and FORMATS[precision].copies == 1 and "#define __AVX__ 1" in jit.find_compiler().target:
        return CompiledProducts(B, precision, columns)
    return NumpyProducts(B, precision, columns)


def _encoded(B: Any, i: int, precision: str) -> np.ndarray:
    return encode(np.asarray(B[i], dtype=np.float64), precision)


def _encoding_bytes(B: Any, precision: str) -> int:
    """Temporaries of `_encoded`: the row in fp64, the encoded row, and what lies between."""
    if precision == "fp64" and isinstance(B, np.ndarray):
        return 0
    return B.shape[1] * B.shape[2] * 8 * (1 + FORMATS[precision].copies)


@dataclass(frozen=True)
class _Rows:
    """Rows of B as NumPy multiplies them, from orbital `first` on."""

    data: np.ndarray
    first: int


class NumpyProducts:
    """Rows of B as they are, with one ``np.matmul`` per pair.

    A BLAS sums in an order that depends on the shape of its operands, and a pair's energy must not depend on what is
    computed beside it.
    """

    def __init__(self, B: Any, precision: str, columns: int | None = None) -> None:
        self.B, self.precision, self.form = B, precision, FORMATS[precision]
        _, self.nvir, naux = B.shape
        self.columns = columns or self.nvir
        self.reuses = precision == "fp64" and isinstance(B, np.ndarray)
        self.orbital_bytes = 0 if self.reuses else self.nvir * naux * self.form.copies * self.form.itemsize
        self.slab_bytes = self.nvir * self.columns * self.form.itemsize
        # Besides the encoding, T and its weighted copies in the unfused energy expression.
        self.scratch_bytes = _encoding_bytes(B, precision) + 32 * self.nvir * self.columns
        self.label = f"products by {numpy_blas()}"

    def alone(self) -> AbstractContextManager[Any]:
        return single_threaded()

    def load(self, i0: int, i1: int, map: Map = map) -> _Rows:
        if self.reuses:
            return _Rows(self.B[i0:i1], i0)
        data = np.empty((i1 - i0, self.nvir, self.form.copies * self.B.shape[2]), dtype=self.form.dtype)

        def fill(i: int) -> None:
            data[i - i0] = _encoded(self.B, i, self.precision)

        list(map(fill, range(i0, i1)))
        return _Rows(data, i0)

    def slab(self, pairs: int) -> np.ndarray:
        return np.empty(pairs * self.nvir * self.columns, dtype=self.form.dtype)

    def multiply(self, left: _Rows, right: _Rows, i: int, j0: int, j1: int, out: np.ndarray) -> Slab:
        width = self.columns
        columns = (j1 - j0) * width
        T = out[: self.nvir * columns].reshape(self.nvir, columns)
        one = self.form.left_of(left.data[i - left.first])
        for n, j in enumerate(range(j0, j1)):
            # B_i B_i^T from one array, as in `mp2_pairs`: NumPy takes another routine for it, with other digits.
            row = left.data[i - left.first] if j == i else right.data[j - right.first]
            np.matmul(one, self.form.right_of(row).T, out=T[:, n * width : (n + 1) * width])
        return Slab(T, 0, j1 == i + 1)


@dataclass(frozen=True)
class _Panels:
    """Rows of B in `count` packed panels, from orbital `first` on."""

    data: np.ndarray
    count: int
    first: int


class CompiledProducts:
    """Rows of B packed once for all products, which pair_product.c computes."""

    def __init__(self, B: Any, precision: str, columns: int | None = None) -> None:
        self.B, self.precision = B, precision
        self.dtype = np.dtype(FORMATS[precision].dtype)
        _, self.nvir, self.naux = B.shape
        self.columns = columns or self.nvir
        self.library = product_library(self.dtype.name)
        self.width = int(self.library.panel_rows())
        # The widest row of T starts and ends inside a panel.
        self.slab_bytes = self.nvir * (self.columns + 2 * self.width) * self.dtype.itemsize + LINE
        self.orbital_bytes = (self.nvir + self.width) * self.naux * self.dtype.itemsize
        self.scratch_bytes = _encoding_bytes(B, precision)
        self.label = f"compiled products ({jit.find_compiler().label})"

    def alone(self) -> AbstractContextManager[Any]:
        return nullcontext()

    def load(self, i0: int, i1: int, map: Map = map) -> _Panels:
        count = -(-(i1 - i0) * self.nvir // self.width)
        data = zeros(count * self.width * self.naux, self.dtype)

        def pack(i: int) -> None:
            rows = np.ascontiguousarray(_encoded(self.B, i, self.precision))
            first = (i - i0) * self.nvir
            self.library.pack(rows, self.nvir, self.naux, first, count, data)

        list(map(pack, range(i0, i1)))
        return _Panels(data, count, i0)

    def slab(self, pairs: int) -> np.ndarray:
        return zeros(self.nvir * (pairs * self.columns + 2 * self.width), self.dtype)

    def multiply(self, left: _Panels, right: _Panels, i: int, j0: int, j1: int, out: np.ndarray) -> Slab:
        start, end = (j0 - right.first) * self.columns, (j1 - right.first) * self.columns
        panel = start // self.width
        stride, column = (-(-end // self.width) - panel) * self.width, start - panel * self.width
        symmetric = column + (i - j0) * self.columns if j1 == i + 1 else stride
        T = out[: self.nvir * stride].reshape(self.nvir, stride)
        row = (i - left.first) * self.nvir
        self.library.product(
            left.data, left.count, row, self.nvir, right.data, right.count, panel, self.naux, symmetric, T, stride
        )
        return Slab(T, column, j1 == i + 1)


def source_of(name: str) -> str:
    """The text of a C file of this folder."""
    return resources.files("trnqc.backends.cpu").joinpath(name).read_text()


def integers(*names: str) -> tuple[jit.Parameter, ...]:
    """Parameters of the type int64_t."""
    return tuple(jit.Parameter(name, "i64") for name in names)


@functools.cache
def product_library(dtype: str) -> jit.Library:
    """pair_product.c for products of `dtype`."""

    def array(name: str, ndim: int, written: bool = False) -> jit.Parameter:
        return jit.Parameter(name, jit.TYPES[dtype], array=True, ndim=ndim, written=written)

    pack = (array("source", 2), *integers("rows", "K", "row", "panels"), array("data", 1, written=True))
    product = (
        array("left", 1),
        *integers("left_panels", "row", "rows"),
        array("right", 1),
        *integers("right_panels", "panel", "K", "symmetric"),
        array("t", 2, written=True),
        *integers("stride"),
    )
    signatures = (
        jit.Signature("panel_rows", returns="i64"),
        jit.Signature("pack", pack),
        jit.Signature("product", product),
    )
    defines = (f"REAL={C_TYPES[dtype]}",)
    return jit.compile_c(source_of("pair_product.c"), signatures, name="pair_product", defines=defines)
