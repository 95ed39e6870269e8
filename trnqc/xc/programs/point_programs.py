"""Programs that run over functions and points: densities from products, weighted functions, blocks added to matrices.

All arrays of points are arrays of lanes: v counts vectors of points. There are programs for numbers of the types "f64"
and "f32"; matrices are f64 for both.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import BYTES, cast, fma
from trnqc.jit import Recipe, Signature, find_compiler

# Functions whose products are added to the density before it is stored again.
TOGETHER = 4

N, VECTORS = Var("functions", "i64"), Var("vectors", "i64")
COMPONENTS = Var("components", "i64")
Parameters = tuple[Value | Array, ...]


def density(kind: str, dtype: str = "f64") -> Recipe:
    """Return the program that adds the density variables of products of functions.

    bra [components, functions, vectors] and ket [components or 1, functions, vectors] -> rho [variables, vectors]: the
    density sum_f bra_f ket_f; for "GGA" and "MGGA" also its gradient, 2 sum_f (d bra_f) ket_f; for "MGGA" also tau,
    1/2 sum_f (d bra_f) (d ket_f), with derivatives of the ket.
    """
    params: Parameters = (N, VECTORS, *_of_lanes(dtype, "bra", "ket", "rho"))
    return _recipe(f"density_{kind}", dtype, params, ("rho",), partial(_density, kind))


def _density(kind: str, b: Builder, params: Sequence[Array]) -> None:
    bra, ket, rho = params
    whole = b.let("whole", N // TOGETHER * TOGETHER)
    for begin, end, step in ((const(0, "i64"), whole, TOGETHER), (whole, N, 1)):
        with b.loop("f", end, begin, step) as f, b.loop("v", VECTORS) as v:
            for n, pairs in enumerate(_pairs(kind)):
                factor = {0: 1.0, 4: 0.5}.get(n, 2.0)
                terms = [(bra[N * i + f + m, v], ket[N * j + f + m, v]) for m in range(step) for i, j in pairs]
                b.store(rho[n, v], fma(dot(terms), factor, rho[n, v]))


def _pairs(kind: str) -> list[list[tuple[int, int]]]:
    """Return for each density variable the components of bra and ket whose products are summed."""
    gradient = [[(n, 0)] for n in (1, 2, 3)]
    return [[(0, 0)], *(gradient if kind != "LDA" else []), *([[(n, n) for n in (1, 2, 3)]] if kind == "MGGA" else [])]


def weighted(dtype: str = "f64") -> Recipe:
    """Return the program of weighted functions: out[f, v] = sum_c weights[c, v] ao[c, f, v] with four components."""
    return _recipe("weighted", dtype, (N, VECTORS, *_of_lanes(dtype, "ao", "weights", "out")), ("out",), _weighted)


def _weighted(b: Builder, params: Sequence[Array]) -> None:
    ao, weights, out = params
    with b.loop("f", N) as f, b.loop("v", VECTORS) as v:
        b.store(out[f, v], dot([(weights[c, v], ao[N * c + f, v]) for c in range(4)]))


def scaled(dtype: str = "f64") -> Recipe:
    """Return the program of scaled functions: out[f, c, v] = weights[v] ao[c, f, v]."""
    arrays = _of_lanes(dtype, "ao", "weights", "out")
    return _recipe("scaled", dtype, (COMPONENTS, N, VECTORS, *arrays), ("out",), _scaled)


def _scaled(b: Builder, params: Sequence[Array]) -> None:
    ao, weights, out = params
    with b.loop("c", COMPONENTS) as c, b.loop("f", N) as f, b.loop("v", VECTORS) as v:
        b.store(out[f * COMPONENTS + c, v], weights[0, v] * ao[c * N + f, v])


def scattered(dtype: str = "f64") -> Recipe:
    """Return the program that adds a block to a matrix: matrix[place_i, place_j] += block[i, j] for j <= i."""
    stride = Var("stride", "i64")
    arrays = Array("places", "i64"), Array("block", dtype, (None, N)), Array("matrix", "f64", (None, stride))
    return _recipe("scattered", dtype, (N, stride, *arrays), ("matrix",), _scattered)


def _scattered(b: Builder, params: Sequence[Array]) -> None:
    places, part, matrix = params
    with b.loop("i", N) as i:
        row = b.let("row", places[i])
        with b.loop("j", i + 1) as j:
            b.accumulate(matrix[row, places[j]], cast(part[i, j], "f64"))


def programs_for(kind: str, dtype: str = "f64") -> tuple[Recipe, ...]:
    """Return the programs of a kind of functional, in one precision."""
    return density(kind, dtype), weighted(dtype), scaled(dtype), scattered(dtype)


def _of_lanes(dtype: str, *names: str) -> tuple[Array, ...]:
    """Return arrays [rows, vectors] of lanes."""
    return tuple(Array(name, dtype, (None, VECTORS), lanes=True) for name in names)


def _recipe(
    name: str,
    dtype: str,
    params: Parameters,
    written: tuple[str, ...],
    write: Callable[[Builder, Sequence[Array]], None],
) -> Recipe:
    name = name if dtype == "f64" else f"{name}_{dtype}"
    signature = Signature.declared(name, params, written, group=False)
    lanes = find_compiler().lanes(BYTES[dtype])
    return Recipe(name, (signature,), partial(_functions, name, params, write), __name__, lanes=lanes)


def _functions(
    name: str, params: Parameters, write: Callable[[Builder, Sequence[Array]], None]
) -> tuple[st.Function, ...]:
    b = Builder()
    write(b, [p for p in params if isinstance(p, Array)])
    return (b.function(name, params),)
