"""Matrix products C = A B or C += A B for layers of a model, as programs that other programs call.

b -> `pack` -> panels of a few vectors;  a, panels -> `product` -> tiles of c, whose sums are in registers

Vectors run over the columns of b, so a number of a is broadcast to all lanes. The weights of a model are packed once.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

import numpy as np

from trnqc.gen import Array, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import Value, eq, fma, minimum
from trnqc.jit import Compiler

# Number of products that are added one after another in float32. Longer sums are sums of such sums, whose rounding
# errors are smaller: half as large for 128 products.
TOGETHER = 32
# Dimensions and strides: rows of a, rows of b, vectors of a row of c, and the steps in memory.
M, K, VECTORS = (Var(name, "i64") for name in ("m", "k", "vectors"))
A_ROW, C_ROW, C_VECTOR = (Var(name, "i64") for name in ("a_row", "c_row", "c_vector"))


@dataclass(frozen=True)
class RegisterTile:
    """The sums that stay in registers: rows of a and c, and vectors of a row of c (the width of a panel of b)."""

    rows: int
    vectors: int
    lanes: int

    @classmethod
    def of(cls, compiler: Compiler, dtype: str) -> RegisterTile:
        """The tile for the vectors that a compiler uses. Of 32 registers, 24 hold sums, and of 16, 12."""
        rows = 6 if compiler.vector_bytes == 32 else 12
        return cls(rows, 2, compiler.lanes(8 if dtype == "f64" else 4))

    @property
    def width(self) -> int:
        """Number of columns of a panel."""
        return self.vectors * self.lanes

    def vectors_of(self, columns: int) -> int:
        """Number of vectors that hold so many columns."""
        return -(-columns // self.lanes)


def pack(b: np.ndarray, tile: RegisterTile) -> np.ndarray:
    """Return a matrix [k, columns] as vectors [k * vectors, lanes], in the order in which `product` reads it.

    The last vector of the columns is filled up with zeros. Panels of `tile.vectors` vectors follow one another, and the
    last one may be narrower. In a panel, k is the slow index.
    """
    k, columns = b.shape
    vectors = tile.vectors_of(columns)
    padded = np.zeros((k, vectors, tile.lanes), b.dtype)
    padded.reshape(k, vectors * tile.lanes)[:, :columns] = b
    panels = [padded[:, v : v + tile.vectors].reshape(-1, tile.lanes) for v in range(0, vectors, tile.vectors)]
    return np.ascontiguousarray(np.concatenate(panels)) if panels else padded.reshape(0, tile.lanes)


@cache
def product(tile: RegisterTile, dtype: str, accumulate: bool = False) -> st.Function:
    """Return the program of c = a b, or c += a b if `accumulate`.

    Its parameters are ``m, k, vectors`` (rows of a, rows of b, vectors of a row of c), ``a``, ``a_row`` (elements from
    one row of a to the next), ``b`` (packed), ``c`` (an array of lanes), ``c_row`` and ``c_vector`` (vectors from one
    row, and from one vector of a row, to the next). c[i, j] = sum_k a[i, k] b[k, j], with k in order, in float32 as a
    sum of sums over 32 of them. The bits of a row of c do not depend on the other rows.
    """
    b, (left, right, c) = Builder(), _operands(dtype)
    whole = b.let("whole", VECTORS // tile.vectors * tile.vectors)
    with b.loop("first", whole, step=tile.vectors) as first:
        _rows(b, tile, tile.vectors, accumulate, (left, right, c), first)
    for width in range(1, tile.vectors):
        with b.when(eq(VECTORS - whole, width)):
            _rows(b, tile, width, accumulate, (left, right, c), whole)
    name = f"gemm_{dtype}_{tile.rows}x{tile.vectors}{'_add' * accumulate}"
    return b.function(name, (M, K, VECTORS, left, A_ROW, right, c, C_ROW, C_VECTOR))


def _operands(dtype: str) -> tuple[Array, Array, Array]:
    return Array("a", dtype), Array("b", dtype, lanes=True), Array("c", dtype, lanes=True)


def _rows(
    b: Builder,
    tile: RegisterTile,
    width: int,
    accumulate: bool,
    operands: tuple[Array, Array, Array],
    first: Value,
) -> None:
    """Multiply all rows with the panel that begins at a vector: by the tile, then four at a time, then one by one."""
    left, right, c = operands

    def add(rows: int, row: Value, p: Value, count: Value, accumulate: bool) -> None:
        places = st.view(left[row * A_ROW + p]), A_ROW, st.view(right[first * K + p * width])
        out = st.view(c[row * C_ROW + first * C_VECTOR])
        b.call(_tile(rows, width, left.dtype, accumulate), count, *places, out, C_ROW, C_VECTOR)

    begin = zero = const(0, "i64")
    for rows in (tile.rows, 4, 1):
        with b.loop("row", M - (rows - 1), begin=begin, step=rows) as row:
            if left.dtype == "f64":
                add(rows, row, zero, K, accumulate)
            else:
                add(rows, row, zero, minimum(K, TOGETHER), accumulate)
                with b.loop("p", K, begin=TOGETHER, step=TOGETHER) as p:
                    add(rows, row, p, minimum(K - p, TOGETHER), True)
        begin = b.let("begin", begin + (M - begin) // rows * rows)


@cache
def _tile(rows: int, width: int, dtype: str, accumulate: bool) -> st.Function:
    """The program of one tile of c."""
    b, (left, right, c) = Builder(), _operands(dtype)
    places = {(i, v): c[C_ROW * i + C_VECTOR * v] for i in range(rows) for v in range(width)}
    sums = {at: b.declare("sum", const(0, dtype)) for at in places}
    with b.loop("p", K) as p:
        columns = [b.let("column", right[p * width + v]) for v in range(width)]
        for i in range(rows):
            factor = b.let("factor", left[A_ROW * i + p])
            for v, column in enumerate(columns):
                b.assign(sums[i, v], fma(factor, column, sums[i, v]))
    for at, place in places.items():
        b.store(place, place + sums[at] if accumulate else sums[at])
    name = f"tile_{dtype}_{rows}x{width}{'_add' * accumulate}"
    return b.function(name, (K, left, A_ROW, right, c, C_ROW, C_VECTOR))
