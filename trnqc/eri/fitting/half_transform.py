"""Half transformation of packed symmetric matrices: X_Q = B_Q C, generated C without unpacking B_Q.

tiles of rows of B_Q -> each element serves its row and, as its transpose, its column -> X_Q, summed in vector registers

A BLAS library would first write the whole square B_Q and then copy it into its own layout; with few orbitals both take
as long as the product.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function, flat_view, view
from trnqc.gen.values import BYTES, cast, eq, fma, maximum, minimum
from trnqc.host.arrays import zeros
from trnqc.jit import Library, Recipe, find_compiler, library
from trnqc.jit.signature import Signature

# Rows of X_Q whose sums are in registers together; an element of C is loaded once for all of them.
ROWS = 6
# Vectors of orbitals in registers together: ROWS times as many sums, the elements of C, and one element of B_Q.
VECTORS = {64: 4, 32: 2}
# Rows of B_Q of a tile, a multiple of ROWS. They stay in the cache from their use as rows to that as columns.
TILE = 192
# The arrays that the program writes.
WRITTEN = ("work", "out", "traces")
# The types by NumPy's names.
TYPES = {"float64": "f64", "float32": "f32"}


class HalfTransform:
    """X_Q = B_Q C for rows of the type of the orbitals C [nao, nocc]. Each thread has an object of its own.

    Raises CompilerError if there is no C compiler.
    """

    def __init__(self, orbitals: np.ndarray) -> None:
        (nao, nocc), dtype = orbitals.shape, orbitals.dtype
        lanes = find_compiler().lanes(dtype.itemsize)
        vectors = -(-nocc // lanes)
        # Vectors are read in half the time if they do not extend over two cache lines.
        padded = zeros((nao, vectors * lanes), dtype)
        padded[:, :nocc] = orbitals
        self._function = load(dtype).half_transform.bind(
            nao=nao,
            nocc=nocc,
            vectors=vectors,
            orbitals=padded,
            work=zeros(padded.shape, dtype),
            groups_begin=0,
        )

    def __call__(self, rows: np.ndarray, out: np.ndarray, first: int = 0) -> np.ndarray:
        """Write X_Q of packed rows B_Q [n, nao (nao + 1) / 2] and return tr(C^T X_Q) [n], float64.

        Rows that are not contiguous, as users' own integrals may be, are copied. X_Q is written into columns first ..
        first + n of `out` [nao, at least first + n, nocc].
        """
        rows, traces = np.ascontiguousarray(rows), np.empty(len(rows))
        size = {"n": len(rows), "columns": out.shape[1], "first": first}
        self._function(rows=rows, out=out, traces=traces, groups_end=len(rows), **size)
        return traces


def recipe(dtype: str) -> Recipe:
    """Return the recipe of the program for a type, "f64" or "f32"."""
    compiler = find_compiler()
    vectors = VECTORS.get(compiler.vector_bytes, 2)
    params = _Parameters(dtype).all
    return Recipe(
        f"half_transform_{dtype}",
        (Signature.declared("half_transform", params, WRITTEN),),
        partial(_functions, dtype, vectors),
        __name__,
        f"{dtype} {vectors}",
        lanes=compiler.lanes(BYTES[dtype]),
    )


def recipes() -> tuple[Recipe, ...]:
    """Return the recipes of the programs for all types, which SCFs with density fitting need."""
    return tuple(recipe(dtype) for dtype in TYPES.values())


def _functions(dtype: str, vectors: int) -> tuple[Function]:
    return (_Writer(dtype, vectors).function(),)


def load(dtype: np.dtype) -> Library:
    """Return the program for a NumPy type, compiled if necessary. Raises CompilerError."""
    return library(recipe(TYPES[dtype.name]))


class _Parameters:
    """The parameters of the program."""

    def __init__(self, dtype: str) -> None:
        self.nao, self.nocc, self.n = (Var(name, "i64") for name in ("nao", "nocc", "n"))
        self.columns, self.first = Var("columns", "i64"), Var("first", "i64")
        self.vectors = Var("vectors", "i64")
        self.rows = Array("rows", dtype, (None, self.nao * (self.nao + 1) // 2))
        self.orbitals = Array("orbitals", dtype, (self.nao, self.vectors), lanes=True)
        self.work = Array("work", dtype, (self.nao, self.vectors), lanes=True)
        self.out = Array("out", dtype, (self.nao, self.columns, self.nocc))
        self.traces = Array("traces", "f64", (self.n,))

    @property
    def all(self) -> tuple[Value | Array, ...]:
        arrays = (self.rows, self.orbitals, self.work, self.out, self.traces)
        sizes = (self.nao, self.nocc, self.n, self.columns, self.first, self.vectors)
        return *sizes, *arrays


@dataclass(frozen=True)
class _Block:
    """Sums in registers: `rows` rows of X_Q from `row` on, and `vectors` vectors of orbitals from `vector` on."""

    row: Value
    rows: int
    vector: Value
    vectors: int
    sums: tuple[tuple[Value, ...], ...]


class _Writer:
    """Writes the program for one type and the number of vectors that fit into the registers."""

    def __init__(self, dtype: str, most: int) -> None:
        self.dtype, self.most, self.b, self.of = dtype, most, Builder(), _Parameters(dtype)
        self.q = Var("q", "i64")

    def function(self) -> Function:
        b, of = self.b, self.of
        with b.loop("tile", of.nao, step=TILE) as begin:
            end = b.let("end", minimum(begin + TILE, of.nao))
            whole = b.let("whole", of.vectors // self.most * self.most)
            with b.loop("vector", whole, step=self.most) as vector:
                self._tile(begin, end, vector, self.most)
            for rest in range(1, self.most):
                with b.when(eq(of.vectors - whole, rest)):
                    self._tile(begin, end, whole, rest)
        with b.block("the rows of X_Q to their places in X"), b.loop("i", of.nao) as i:
            b.call(_copy(self.dtype), of.nocc, flat_view(of.work[i, 0]), view(of.out[i, of.first + self.q, 0]))
        self._trace()
        return b.function("half_transform", of.all, group=self.q, title="X_Q = B_Q C")

    def _trace(self) -> None:
        """Write tr(C^T X_Q): few terms in single precision, and their sum in double precision."""
        b, of = self.b, self.of
        b.store(of.traces[self.q], 0.0)
        with b.loop("i", of.nao) as i:
            total = b.declare("total", const(0, self.dtype))
            with b.loop("v", of.vectors) as v:
                b.assign(total, fma(of.orbitals[i, v], of.work[i, v], total))
            b.accumulate(of.traces[self.q], cast(total, "f64"))

    def _tile(self, begin: Value, end: Value, vector: Value, vectors: int) -> None:
        """Add the products of the rows begin .. end of B_Q. Their rows of X_Q are written first."""
        b = self.b
        blocks = b.let("blocks", begin + (end - begin) // ROWS * ROWS)
        for first, last, rows in ((begin, blocks, ROWS), (blocks, end, 1)):
            with b.loop("i", last, first, rows) as i:
                self._rows(i, rows, vector, vectors)
        for first, last, rows in ((const(0, "i64"), blocks, ROWS), (blocks, end, 1)):
            with b.loop("j", last, first, rows) as j:
                self._columns(j, rows, maximum(begin, j + rows), end, vector, vectors)

    def _rows(self, i: Value, rows: int, vector: Value, vectors: int) -> None:
        """Write X_Q[i ..] with the elements of B_Q on the left of the diagonal, and with the square on it."""
        b = self.b
        starts = [b.let("start", (i + n) * (i + n + 1) // 2) for n in range(rows)]
        block = self._zero(i, rows, vector, vectors)
        with b.loop("k", i) as k:
            self._add(block, k, [start + k for start in starts])
        for n in range(rows):
            self._add(block, i + n, [starts[max(m, n)] + i + min(m, n) for m in range(rows)])
        for element, total in self._elements(block):
            b.store(element, total)

    def _columns(self, j: Value, rows: int, begin: Value, end: Value, vector: Value, vectors: int) -> None:
        """Add to X_Q[j ..] the elements of B_Q in columns j .. and rows begin .. end, all below the diagonal."""
        b = self.b
        block = self._zero(j, rows, vector, vectors)
        with b.loop("k", end, begin) as k:
            start = b.let("start", k * (k + 1) // 2 + j)
            self._add(block, k, [start + n for n in range(rows)])
        for element, total in self._elements(block):
            b.store(element, element + total)

    def _zero(self, row: Value, rows: int, vector: Value, vectors: int) -> _Block:
        sums = tuple(tuple(self.b.declare("sum", const(0, self.dtype)) for _ in range(vectors)) for _ in range(rows))
        return _Block(row, rows, vector, vectors, sums)

    def _add(self, block: _Block, k: Value, places: list[Value]) -> None:
        """Add element `places[n]` of B_Q times C[k] to each row n of a block."""
        b, of = self.b, self.of
        elements = [b.let("c", of.orbitals[k, block.vector + v]) for v in range(block.vectors)]
        for place, sums in zip(places, block.sums):
            factor = b.let("b", of.rows[self.q, place])
            for element, total in zip(elements, sums):
                b.assign(total, fma(factor, element, total))

    def _elements(self, block: _Block) -> list[tuple[Value, Value]]:
        """Return the elements of X_Q that the sums of a block belong to, with the sums."""
        return [
            (self.of.work[block.row + n, block.vector + v], total)
            for n, sums in enumerate(block.sums)
            for v, total in enumerate(sums)
        ]


def _copy(dtype: str) -> Function:
    """Return the function that copies elements, without the elements that fill up a vector."""
    b, count, source, target = Builder(), Var("count", "i64"), Array("source", dtype), Array("target", dtype)
    with b.loop("m", count) as m:
        b.store(target[m], source[m])
    return b.function("copy", (count, source, target))
