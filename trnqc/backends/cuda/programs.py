"""Programs of MP2 on GPUs: energies of pairs of orbitals, and weighted amplitudes, from the integrals T.

T[i, a, j, b] = (ia|jb) of a block of orbitals i and j is one matrix. A group of lanes has one pair ij and one tile of
rows a, and visits TILE by TILE elements at a time. Where T[b, a] is needed too, the tiles (A, B) and (B, A) are visited
together, and the second one is transposed in shared memory. Every element is read once, in the order of memory.

A lane adds up the elements of a tile in the type of T, and tiles in fp64. The order of all sums is fixed.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trnqc.gen.arrays import Array
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import Value, Var, both, cast, const, eq, lane, lt, minimum, select
from trnqc.jit import Recipe, Signature
from trnqc.jit.device import Device

TILE = 32
"""Rows and columns of a tile. A warp reads one row of it."""
LANES = 256
"""Lanes of a group on a GPU."""
# Elements from one row of a tile to the next in shared memory: one more than TILE puts a column into different banks.
PITCH = TILE + 1

ENERGIES = ("same_spin_energies", "opposite_spin_energies")
AMPLITUDES = ("same_spin_amplitudes", "opposite_spin_amplitudes")

GROUP = Var("group", "i64")
ORBITALS, ROWS, COLUMNS, STRIDE = (Var(name, "i64") for name in ("orbitals", "rows", "columns", "stride"))
I0, J0, PLACE = (Var(name, "i64") for name in ("i0", "j0", "place"))
OUT = Array("out", "f64", (None, 2))


def recipe(name: str, dtype: str, lanes: int) -> Recipe:
    """The recipe of a program.

    Parameters
    ----------
    name
        One of ENERGIES or AMPLITUDES.
    dtype
        The type of T, "f64" or "f32".
    lanes
        The lanes of a group, a power of two from TILE to TILE squared.

    Notes
    -----
    The arguments are ``orbitals``, the number of orbitals j of the block; ``rows`` and ``columns``, the numbers of
    virtual orbitals a and b; ``stride``, the elements from one row of T to the next; ``i0`` and ``j0``, the numbers of
    the first orbitals i and j; ``t``, the integrals [i, rows, orbitals, columns]; and the energies in Hartree of all
    virtual orbitals (``e_row``, ``e_column``) and of all occupied ones (``e_left``, ``e_right``). Group g has tile
    g % tiles of the rows of pair g // tiles.

    Energies are written to ``out`` [.., 2], group g to row ``place`` + g: the sums over a tile of rows of T[a, b]² / D
    and of T[a, b] T[b, a] / D, with D = ε_i + ε_j - ε_a - ε_b. The second one is zero for pairs of opposite spin.

    Amplitudes, (``direct`` T[a, b] - ``exchange`` T[b, a]) / D, replace T.
    """
    written = ("t",) if name in AMPLITUDES else ("out",)
    signature = Signature.declared(name, parameters(name, dtype), written)
    return Recipe(name, (signature,), lambda: (pair_program(name, dtype, lanes),), __name__, f"{dtype} {lanes}")


def lanes_on(device: Device) -> int:
    """The lanes of a group on a device."""
    return max(TILE, min(LANES, device.most_lanes))


def tiles_of(rows: int) -> int:
    """The tiles of the rows of a pair, each of which is a group."""
    return -(-rows // TILE)


def parameters(name: str, dtype: str) -> tuple[Value | Array, ...]:
    """The parameters of a program."""
    arrays = (Array(x, dtype) for x in ("t", "e_row", "e_column", "e_left", "e_right"))
    own = (PLACE, OUT) if name in ENERGIES else (Var("direct", dtype), Var("exchange", dtype))
    return (ORBITALS, ROWS, COLUMNS, STRIDE, I0, J0, *arrays, *own)


def pair_program(name: str, dtype: str, lanes: int) -> Function:
    """The function of a recipe."""
    writers = {
        "same_spin_energies": _same_spin_energies,
        "opposite_spin_energies": _opposite_spin_energies,
        "same_spin_amplitudes": _same_spin_amplitudes,
        "opposite_spin_amplitudes": _opposite_spin_amplitudes,
    }
    pair = _Pair(dtype, lanes)
    writers[name](pair)
    return pair.b.function(name, parameters(name, dtype), group=GROUP)


class _Pair:
    """The matrix T[a, b] of the pair of a group, in a program under construction."""

    def __init__(self, dtype: str, lanes: int) -> None:
        self.b, self.dtype, self.lanes = Builder(), dtype, lanes
        let = self.b.let
        self.t, self.e_row, self.e_column = (Array(name, dtype) for name in ("t", "e_row", "e_column"))
        self.tiles = let("tiles", (COLUMNS + (TILE - 1)) // TILE)
        row_tiles = let("row_tiles", (ROWS + (TILE - 1)) // TILE)
        pair = let("pair", GROUP // row_tiles)
        i, j = let("i", pair // ORBITALS), let("j", pair % ORBITALS)
        self.tile_of_rows = let("tile_of_rows", GROUP % row_tiles)
        self.origin = let("origin", i * ROWS * STRIDE + j * COLUMNS)
        self.e_pair = let("e_pair", Array("e_left", dtype)[I0 + i] + Array("e_right", dtype)[J0 + j])
        self.row, self.column = let("row", lane() // TILE), let("column", lane() % TILE)

    @contextmanager
    def rows_of_a_tile(self) -> Iterator[Value]:
        """A loop over the rows of a tile that a lane visits, 0, 1, ... of the tile."""
        with self.b.loop("step", TILE, step=self.lanes // TILE) as step:
            yield self.b.let("r", self.row + step)

    def element(self, a: Value, b: Value) -> Value:
        """T[a, b], or the nearest element if that is outside of the matrix."""
        return self.t[self.origin + minimum(a, ROWS - 1) * STRIDE + minimum(b, COLUMNS - 1)]

    def inside(self, a: Value, b: Value) -> Value:
        """Whether T[a, b] is an element of the matrix."""
        return self.b.let("inside", both(lt(a, ROWS), lt(b, COLUMNS)))

    def element_or_zero(self, a: Value, b: Value, inside: Value) -> Value:
        """T[a, b], or zero outside of the matrix: the nearest element may just be overwritten by its own lane."""
        return self.b.let("t_ab", select(inside, self.element(a, b), const(0.0, self.dtype)))

    def store(self, a: Value, b: Value, inside: Value, value: Value) -> None:
        """T[a, b] = value, if that is an element of the matrix."""
        self.b.store(self.t[self.origin + a * STRIDE + b], value, where=inside)

    def denominator(self, a: Value, b: Value) -> Value:
        """ε_i + ε_j - ε_a - ε_b, with the nearest orbitals if one is outside of the matrix."""
        return self.e_pair - self.e_row[minimum(a, ROWS - 1)] - self.e_column[minimum(b, COLUMNS - 1)]

    @contextmanager
    def tile_pairs(self) -> Iterator[tuple[Value, Array]]:
        """A loop over tiles B from that of the group on; yields B, and the tile (B, A) in shared memory.

        A lane writes the elements that it reads by rows. A body that reads those of other lanes ends with a barrier.
        """
        b = self.b
        shared = b.array("transposed", self.dtype, (TILE * PITCH,), "shared")
        with b.loop("tile", self.tiles, begin=self.tile_of_rows) as tile:
            with self.rows_of_a_tile() as r:
                value = self.element(tile * TILE + r, self.tile_of_rows * TILE + self.column)
                b.store(shared[r * PITCH + self.column], value)
            b.barrier()
            yield tile, shared

    def write_sums(self, sums: tuple[Value, ...]) -> None:
        """Add up each sum over the lanes in a binary tree, and write it to ``out``.

        Node n of the tree is the sum of the nodes 2n and 2n + 1, and the leaves are the lanes.
        """
        tree = self.b.array("tree", "f64", (2 * self.lanes,), "shared")
        for n, total in enumerate(sums):
            self.b.store(tree[lane() + self.lanes], total)
            level = self.lanes
            while level > 1:
                level //= 2
                self.b.barrier()
                # Lanes beyond this level do the same as others, so that each has written the sum of all.
                node = self.b.let("node", lane() % level + level)
                self.b.store(tree[node], tree[node * 2] + tree[node * 2 + 1])
            self.b.store(OUT[PLACE + GROUP, n], tree[1])


def _same_spin_energies(pair: _Pair) -> None:
    b, zero = pair.b, const(0.0, pair.dtype)
    totals = b.declare("direct_total", const(0.0)), b.declare("exchange_total", const(0.0))
    with pair.tile_pairs() as (tile, transposed):
        direct, exchange = b.declare("direct", zero), b.declare("exchange", zero)
        # A tile on the diagonal has every element twice, as T[a, b] and as T[b, a] of its transpose.
        weight = b.let("weight", select(eq(tile, pair.tile_of_rows), const(0.5, pair.dtype), const(1.0, pair.dtype)))
        with pair.rows_of_a_tile() as r:
            row, column = pair.tile_of_rows * TILE + r, tile * TILE + pair.column
            t, u = b.let("t_ab", pair.element(row, column)), b.let("t_ba", transposed[pair.column * PITCH + r])
            scale = b.let("scale", select(pair.inside(row, column), weight / pair.denominator(row, column), zero))
            b.assign(direct, direct + (t * t + u * u) * scale)
            b.assign(exchange, exchange + t * u * 2.0 * scale)
        for total, part in zip(totals, (direct, exchange)):
            b.assign(total, total + cast(part, "f64"))
        b.barrier()
    pair.write_sums(totals)


def _opposite_spin_energies(pair: _Pair) -> None:
    b, zero = pair.b, const(0.0, pair.dtype)
    total = b.declare("total", const(0.0))
    with b.loop("tile", pair.tiles) as tile:
        part = b.declare("part", zero)
        with pair.rows_of_a_tile() as r:
            row, column = pair.tile_of_rows * TILE + r, tile * TILE + pair.column
            t = b.let("t_ab", pair.element(row, column))
            scale = select(pair.inside(row, column), 1.0 / pair.denominator(row, column), zero)
            b.assign(part, part + t * t * scale)
        b.assign(total, total + cast(part, "f64"))
    pair.write_sums((total, const(0.0)))


def _same_spin_amplitudes(pair: _Pair) -> None:
    b, (direct, exchange) = pair.b, (Var(name, pair.dtype) for name in ("direct", "exchange"))
    with pair.tile_pairs() as (tile, transposed):
        with pair.rows_of_a_tile() as r:
            row, column = pair.tile_of_rows * TILE + r, tile * TILE + pair.column
            own, inside = transposed[pair.column * PITCH + r], pair.inside(row, column)
            t, u = pair.element_or_zero(row, column, inside), b.let("t_ba", own)
            scale = b.let("scale", 1.0 / pair.denominator(row, column))
            pair.store(row, column, inside, (direct * t - exchange * u) * scale)
            b.store(own, (direct * u - exchange * t) * scale)
        b.barrier()
        with pair.rows_of_a_tile() as r:
            row, column = tile * TILE + r, pair.tile_of_rows * TILE + pair.column
            pair.store(row, column, pair.inside(row, column), transposed[r * PITCH + pair.column])


def _opposite_spin_amplitudes(pair: _Pair) -> None:
    b, direct = pair.b, Var("direct", pair.dtype)
    with b.loop("tile", pair.tiles) as tile, pair.rows_of_a_tile() as r:
        row, column = pair.tile_of_rows * TILE + r, tile * TILE + pair.column
        inside = pair.inside(row, column)
        value = pair.element_or_zero(row, column, inside)
        pair.store(row, column, inside, direct * value / pair.denominator(row, column))
