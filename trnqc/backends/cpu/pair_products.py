"""The products T_j = B_i B_j^T of the pair step, by compiled code for packed factors or by the BLAS of NumPy."""

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
"""The size of a cache line in bytes."""
C_TYPES = {"float64": "double", "float32": "float"}

Map = Callable[..., Any]
"""The built-in map, or the method map of a pool of threads."""


@dataclass(frozen=True)
class Slab:
    """The integrals T_j[a, b] of one i and consecutive j.

    Attributes
    ----------
    data : ndarray
        T_j[a, b] is data[a, column + (j - j0) * nvir + b], with j0 the first j.
    column : int
        The first column of the first T_j.
    symmetric : bool
        Whether the last j is i. Then the last T_j is symmetric, and only its lower half has to be valid.
    """

    data: np.ndarray
    column: int
    symmetric: bool


class PairProducts(Protocol):
    """A way to compute T.

    Attributes
    ----------
    orbital_bytes, slab_bytes, scratch_bytes : int
        The size of one loaded B_i, of T of one pair, and of the temporaries of a thread, in bytes.
    label : str
        What computes the products, in words.
    """

    orbital_bytes: int
    slab_bytes: int
    scratch_bytes: int
    label: str

    def alone(self) -> AbstractContextManager[Any]:
        """A context in which a product uses only the thread that calls it."""
        ...

    def load(self, i0: int, i1: int, map: Map = map) -> Any:
        """Load the rows i0 .. i1 - 1 of B in the format of the products. `map` may use several threads."""
        ...

    def slab(self, pairs: int) -> np.ndarray:
        """An array for T of this number of pairs."""
        ...

    def multiply(self, left: Any, right: Any, i: int, j0: int, j1: int, out: np.ndarray) -> Slab:
        """Compute T of orbital i of `left` and orbitals j0 <= j < j1 of `right` in `out`, with j1 <= i + 1."""
        ...


def make_products(B: Any, precision: str, compiled: bool, columns: int | None = None) -> PairProducts:
    """Choose compiled products if `compiled` is set and pair_product.c supports this CPU and precision, else NumPy's.

    bf16x3 multiplies two different arrangements of its parts, which only NumPy supports. Raises CompilerError.

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
    if compiled and supports(precision):
        return CompiledProducts(B, precision, columns)
    return NumpyProducts(B, precision, columns)


def supports(precision: str) -> bool:
    """Whether pair_product.c supports this CPU and precision. Raises CompilerError if there is no compiler."""
    return FORMATS[precision].copies == 1 and "#define __AVX__ 1" in jit.find_compiler().target


def _encoded(B: Any, i: int, precision: str) -> np.ndarray:
    return encode(np.asarray(B[i], dtype=np.float64), precision)


def _encoding_bytes(B: Any, precision: str) -> int:
    """The size of the temporaries of `_encoded` in bytes: the row in fp64, its parts, and the encoded row."""
    if precision == "fp64" and isinstance(B, np.ndarray):
        return 0
    return B.shape[1] * B.shape[2] * 8 * (1 + FORMATS[precision].copies)


@dataclass(frozen=True)
class _Unpacked:
    """Rows of B from orbital `first` on, [orbitals, nvir, copies * naux], as operands of NumPy."""

    data: np.ndarray
    first: int


class NumpyProducts:
    """Products by NumPy, with one ``np.matmul`` per pair.

    A BLAS sums in an order that depends on the shapes of its operands. With one call per pair, the energy of a pair
    does not depend on which pairs are computed with it.
    """

    def __init__(self, B: Any, precision: str, columns: int | None = None) -> None:
        self.B, self.precision, self.form = B, precision, FORMATS[precision]
        _, self.nvir, naux = B.shape
        self.columns = columns or self.nvir
        self.reuses = precision == "fp64" and isinstance(B, np.ndarray)
        self.orbital_bytes = 0 if self.reuses else self.nvir * naux * self.form.copies * self.form.itemsize
        self.slab_bytes = self.nvir * self.columns * self.form.itemsize
        # T in fp64 and its weighted copies in the energy expression of NumPy need the second term.
        self.scratch_bytes = _encoding_bytes(B, precision) + 32 * self.nvir * self.columns
        self.label = f"products by {numpy_blas()}"

    def alone(self) -> AbstractContextManager[Any]:
        return single_threaded()

    def load(self, i0: int, i1: int, map: Map = map) -> _Unpacked:
        if self.reuses:
            return _Unpacked(self.B[i0:i1], i0)
        data = np.empty((i1 - i0, self.nvir, self.form.copies * self.B.shape[2]), dtype=self.form.dtype)

        def fill(i: int) -> None:
            data[i - i0] = _encoded(self.B, i, self.precision)

        list(map(fill, range(i0, i1)))
        return _Unpacked(data, i0)

    def slab(self, pairs: int) -> np.ndarray:
        return np.empty(pairs * self.nvir * self.columns, dtype=self.form.dtype)

    def multiply(self, left: _Unpacked, right: _Unpacked, i: int, j0: int, j1: int, out: np.ndarray) -> Slab:
        width = self.columns
        columns = (j1 - j0) * width
        T = out[: self.nvir * columns].reshape(self.nvir, columns)
        one = self.form.left_of(left.data[i - left.first])
        for n, j in enumerate(range(j0, j1)):
            # For B_i B_i^T, both operands are the same array as in `triangle`, because NumPy then calls another
            # routine of the BLAS, with other digits.
            row = left.data[i - left.first] if j == i else right.data[j - right.first]
            np.matmul(one, self.form.right_of(row).T, out=T[:, n * width : (n + 1) * width])
        return Slab(T, 0, j1 == i + 1)


@dataclass(frozen=True)
class _Panels:
    """Rows of B from orbital `first` on, in `count` packed panels."""

    data: np.ndarray
    count: int
    first: int


class CompiledProducts:
    """Products by pair_product.c. The rows of B are packed once for all products."""

    def __init__(self, B: Any, precision: str, columns: int | None = None) -> None:
        self.B, self.precision = B, precision
        self.dtype = np.dtype(FORMATS[precision].dtype)
        _, self.nvir, self.naux = B.shape
        self.columns = columns or self.nvir
        self.library = product_library(self.dtype.name)
        self.width = int(self.library.panel_rows())
        # A row of T may begin and end inside a panel.
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
    """The text of a C file in this folder."""
    return resources.files("trnqc.backends.cpu").joinpath(name).read_text()


def integers(*names: str) -> tuple[jit.Parameter, ...]:
    """Parameters of the type int64_t."""
    return tuple(jit.Parameter(name, "i64") for name in names)


@functools.cache
def product_library(dtype: str) -> jit.Library:
    """The library compiled from pair_product.c for products of a dtype."""

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
