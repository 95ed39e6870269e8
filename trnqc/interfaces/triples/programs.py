"""Generated loops of perturbative triples: operands of the matrix products, their sums, and the energy.

Virtual orbitals are padded to tiles of TILE. U[a, b, c] and Z[c, a, b] of three occupied orbitals are stored as blocks
[tile, tile, tile, TILE, TILE, TILE], so that all six permutations of a, b and c of a block lie in blocks of 4 kB.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import permutations

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder, dot
from trnqc.gen.statements import Function, Unpack
from trnqc.gen.values import eq, fma, select
from trnqc.jit import Recipe, Signature

# Orbitals of a tile: the doubles of a vector with AVX-512. The compiler splits vectors where they are narrower.
TILE = 8

_N, _O, _OV, _COUNT, _X = (Var(name, "i64") for name in ("tiles", "occupied", "occupied_tiles", "count", "x"))
_V = Var("virtual", "i64")


def _matrix(name: str) -> Array:
    return Array(name, "f64", (None, _N), lanes=True)


def _stack(name: str, rows: Value) -> Array:
    return Array(name, "f64", (None, rows, _N), lanes=True)


def _blocks(name: str) -> Array:
    return Array(name, "f64", (None, _N, _N, TILE, TILE), lanes=True)


_PADDED = _N * TILE
_SIDE = _N + 2 * _OV
_OPERAND = Array("operand", "f64", (None, _SIDE * TILE, _SIDE), lanes=True)
_M, _T, _AMPLITUDES = _stack("m", _V), _matrix("t"), _stack("amplitudes", _PADDED)
_EXCHANGED = Array("exchanged", "f64", (None, _V, _OV), lanes=True)
_PRODUCTS, _SQUARES, _SQUARE, _TARGET = (
    _stack("products", _PADDED),
    _stack("squares", _PADDED),
    _matrix("square"),
    _blocks("target"),
)
_OPERAND_PARAMETERS = (_N, _V, _O, _OV, _X, _COUNT, _OPERAND, _M, _T, _AMPLITUDES, _EXCHANGED)
_SUM_PARAMETERS = (_N, _V, _X, _COUNT, _PRODUCTS, _SQUARES, _SQUARE, _TARGET)

# Ordered pairs of three occupied orbitals 0, 1, 2; their integrals and then their doubles are the `matrices`.
PAIRS = tuple(permutations(range(3), 2))
# The `vectors`: singles of three occupied orbitals, their Fock elements, and the energies of virtual orbitals.
_SINGLES, _FOCK, _ENERGIES = (0, 1, 2), (3, 4, 5), 6
_U, _Z, _U_FLAT, _Z_FLAT = _blocks("u"), _blocks("z"), Array("u_flat", "f64"), Array("z_flat", "f64")
_MATRICES, _MATRICES_FLAT = _stack("matrices", _PADDED), Array("flat_matrices", "f64", (None, _PADDED, _PADDED))
_VECTORS, _VECTORS_FLAT = _matrix("vectors"), Array("flat_vectors", "f64", (None, _PADDED))
_OCCUPIED, _ENERGY = Var("occupied_energy", "f64"), Array("energy", "f64")
_ENERGY_PARAMETERS = (
    *(_N, _OCCUPIED, _U, _U_FLAT, _Z, _Z_FLAT),
    *(_MATRICES, _MATRICES_FLAT, _VECTORS, _VECTORS_FLAT, _ENERGY),
)
# Permutations of a, b and c, the even ones first.
ORDERS = ("abc", "bca", "cab", "acb", "bac", "cba")


def recipe() -> Recipe:
    """The programs of this module. Arrays without `lanes` whose names have `flat` are the same memory as those with.

    operands
        operand[s] = [[M_a + T, G_a, .], [., ., .], [G_a^T, ., .]] for the slices a = x + s, s < count.
    first, add_first, add_second
        X_a = products - squares - square for the slices a = x + s, s < count; U[a, ., .] = X_a, U[a, ., .] += X_a, and
        U[., a, .] += X_a.
    energy
        Adds to energy[0] the sum over all a, b, c of V R / D, see `energy.py`.
    """
    sums = ("first", "add_first", "add_second")
    signatures = (
        Signature.declared("operands", _OPERAND_PARAMETERS, ("operand",), group=False),
        *(Signature.declared(name, _SUM_PARAMETERS, ("target",), group=False) for name in sums),
        Signature.declared("energy", _ENERGY_PARAMETERS, ("energy",), group=False),
    )
    return Recipe("triples", signatures, _functions, __name__, lanes=TILE)


def _functions() -> tuple[Function, ...]:
    return _operands(), _sums("first"), _sums("add_first"), _sums("add_second"), _energy()


def _operands() -> Function:
    b = Builder()
    with b.loop("s", _COUNT) as s:
        a = b.let("a", _X + s)
        with b.loop("row", _V) as row:
            with b.loop("column", _N) as column:
                b.store(_OPERAND[s, row, column], _M[a, row, column] + _T[row, column])
            with b.loop("column", _OV) as column:
                b.store(_OPERAND[s, row, _N + column], _EXCHANGED[a, row, column])
        with b.loop("m", _O) as m, b.loop("column", _N) as column:
            b.store(_OPERAND[s, (_N + _OV) * TILE + m, column], _AMPLITUDES[m, a, column])
    return b.function("operands", _OPERAND_PARAMETERS, title="operands of the products of several slices")


def _sums(name: str) -> Function:
    b = Builder()
    with b.loop("s", _COUNT) as s:
        a = b.let("a", _X + s)
        outer, inner = b.let("outer", a // TILE), b.let("inner", a % TILE)
        with b.loop("tile", _N) as tile, b.loop("row", TILE) as row:
            y = b.let("y", tile * TILE + row)
            with b.loop("column", _N) as column:
                value = _PRODUCTS[s, y, column] - _SQUARES[a, y, column] - _SQUARE[y, column]
                second = name == "add_second"
                place = (tile, outer, column, row, inner) if second else (outer, tile, column, inner, row)
                (b.store if name == "first" else b.accumulate)(_TARGET[place], value)
    return b.function(name, _SUM_PARAMETERS, title="products of slices, added to those of three occupied orbitals")


def _energy() -> Function:
    b = Builder()
    total = b.declare("total", const(0.0))
    blocks = {order: b.array(f"w_{order}", "f64", (TILE, TILE), lanes=True) for order in ORDERS}
    unpacked = b.array("unpacked", "f64", (TILE,), lanes=True)
    with b.loop("A", _N) as A, b.loop("B", A + 1) as B, b.loop("C", B + 1) as C:
        _load(b, blocks, unpacked, {"a": A, "b": B, "c": C})
        part = b.declare("part", const(0.0))
        with b.loop("y", TILE) as y, b.loop("x", TILE) as x:
            _add(b, part, {o: blocks[o][x, y] for o in ORDERS}, A * TILE + x, B * TILE + y, C)
        # Blocks of three, two and one different tiles stand for six, three and one of them.
        once = select(eq(A, B), select(eq(B, C), const(1.0), const(3.0)), select(eq(B, C), const(3.0), const(6.0)))
        b.assign(total, fma(once, part, total))
    b.accumulate(_ENERGY[0], total * (1 / 6))
    return b.function("energy", _ENERGY_PARAMETERS, title="sum over virtual orbitals of the energies of triples")


def _load(b: Builder, blocks: Mapping[str, Array], unpacked: Array, tiles: Mapping[str, Value]) -> None:
    """W of a block in all six orders, as [a, b] with c in the lanes; W[x, y, z] = U[x, y, z] + Z[z, x, y]."""
    for order, block in blocks.items():
        for n, (array, flat, axes) in enumerate(((_U, _U_FLAT, order), (_Z, _Z_FLAT, order[2] + order[:2]))):
            _add_block(b, block, unpacked, array, flat, axes, [tiles[x] for x in axes], first=n == 0)


def _add_block(
    b: Builder,
    block: Array,
    unpacked: Array,
    array: Array,
    flat: Array,
    axes: str,
    tiles: list[Value],
    first: bool,
) -> None:
    write = b.store if first else b.accumulate
    if axes[2] == "c":
        with b.loop("x", TILE) as x, b.loop("y", TILE) as y:
            rows = (x, y) if axes[0] == "a" else (y, x)
            write(block[x, y], array[(*tiles, *rows)])
        return
    place = axes.index("c")
    strides = (TILE * TILE, TILE)
    start = b.let("start", ((tiles[0] * _N + tiles[1]) * _N + tiles[2]) * TILE**3)
    with b.loop("outer", TILE) as outer:
        b.add(Unpack(unpacked, const(0, "i64"), flat, start + outer * strides[1 - place], strides[place], TILE, TILE))
        with b.loop("inner", TILE) as inner:
            write(block[(inner, outer) if axes[2] == "a" else (outer, inner)], unpacked[inner])


def _add(b: Builder, part: Value, w: Mapping[str, Value], a: Value, second: Value, c: Value) -> None:
    """Add the sum over the six orders of V R / D for one a, one b and a vector of c."""
    w = {order: b.let(f"w_{order}", value) for order, value in w.items()}
    v = {order: b.let(f"v_{order}", _connected(w[order], order, {"a": a, "b": second, "c": c})) for order in ORDERS}
    even, odd = (b.let("w_sum", w[x] + w[y] + w[z]) for x, y, z in (ORDERS[:3], ORDERS[3:]))
    v_even, v_odd = (b.let("v_sum", v[x] + v[y] + v[z]) for x, y, z in (ORDERS[:3], ORDERS[3:]))
    products = dot([(v[order], w[order]) for order in ORDERS])
    rest = dot([(v_even, even - 2.0 * odd), (v_odd, odd - 2.0 * even)])
    below = _OCCUPIED - _VECTORS_FLAT[_ENERGIES, a] - _VECTORS_FLAT[_ENERGIES, second] - _VECTORS[_ENERGIES, c]
    b.assign(part, part + fma(const(3.0), products, rest) / below)


def _connected(w: Value, order: str, places: Mapping[str, Value]) -> Value:
    """V = W and the products of singles with integrals, and of Fock elements with doubles."""
    terms = []
    for n in range(3):
        others = tuple(m for m in range(3) if m != n)
        for vectors, matrices in ((_SINGLES, 0), (_FOCK, len(PAIRS))):
            pair = (order[others[0]], order[others[1]])
            terms.append((_of_vector(vectors[n], order[n], places), _of_matrix(matrices, others, pair, places)))
    return dot(terms, w)


def _of_vector(row: int, label: str, places: Mapping[str, Value]) -> Value:
    return (_VECTORS if label == "c" else _VECTORS_FLAT)[row, places[label]]


def _of_matrix(begin: int, pair: tuple[int, ...], labels: tuple[str, str], places: Mapping[str, Value]) -> Value:
    """Element [y, z] of a pair's matrix; that of the exchanged pair has the transposed matrix."""
    if labels[0] == "c":
        pair, labels = pair[::-1], labels[::-1]
    row, column = (places[label] for label in labels)
    return (_MATRICES if labels[1] == "c" else _MATRICES_FLAT)[begin + PAIRS.index((pair[0], pair[1])), row, column]
