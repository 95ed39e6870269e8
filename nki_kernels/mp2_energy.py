"""Fused DF-MP2 pair energies: products on the tensor engine, and the energy expression as results leave PSUM.

For a pair i < j, T[a, b] = sum_P B_i[a, P] B_j[b, P]. Its partner T[b, a] is the same product with i and j swapped. For
a tile with rows A and columns B to the right of the diagonal, both have the same layout and the same denominators:

    T = B_i[A] . B_j[B]^T        U = B_j[A] . B_i[B]^T        D = eps_i + eps_j - eps_a - eps_b
    opposite spin += sum (T^2 + U^2) / D       exchange += sum 2 T U / D       same spin = opposite - exchange

Pairs of one i with several j are computed side by side where a bank of PSUM has columns for them. ScalarE forms the
denominators and sums columns, one tile behind VectorE, which forms reciprocals and products; GpSimd adds the tiles.

Every element of T is computed once. A 128 x 128 tile on the diagonal contains both halves, so that U is the transpose
of T, which the tensor engine computes on the chip in one pass instead of naux / 128. For i = j, U = T and the same-spin
part is zero. In terms of RHF, E_os(ij) = (2 - delta_ij) sum_ab T^2 / D, and the host multiplies by the weight.

Limits: any nvir and naux; the block is nvir or a multiple of 128; block numbers are int32.
Program: one device loop for each class of work items (see ``mp2_plan.WorkList``). The static instruction count depends
only on block, naux and group, and not on the number of occupied orbitals or pairs.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.lang import nisa, nki, nl
from nki_kernels.mp2_plan import RUN, P, block_kinds, pairs_at_once, same_group, tile_list
from nki_kernels.mp2_products import (
    PARTNERS,
    SAME,
    add_energies,
    factors_on_chip,
    field,
    load_virtuals,
    resident,
    streamed,
)
from nki_kernels.precision.splits import products_of


@dataclass
class Memory(nl.NKIObject):
    """Arguments in HBM and the tiles on chip that all loops share; lists of two are used in turn."""

    factors: Any
    e_pair: Any
    work: Any
    out: Any
    fields: Any
    e: Any
    bias: Any  # eps_i + eps_j - eps_a [128, row tiles, group]
    scratch: Any
    stats: Any  # sums over the columns of each tile [128, tiles, group, 2]: opposite spin, and exchange
    result: Any  # their sums over tiles [128, group, 2]
    turned: Any  # PSUM tiles of the transposes of diagonal tiles


def _scratch_tiles():
    tiles = {}
    for name in ["inverse", "tr", "ur", "tt", "flat"]:
        tiles[name] = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf)
    return tiles


def _memory(factors, e_pair, work, out, nvir: int):
    block, group, rtiles = factors.ev_row.shape[1], e_pair.shape[1], factors.ev_col.shape[2]
    ntiles = 1
    for kind in block_kinds(nvir, block):
        ntiles = max(ntiles, len(tile_list(kind[0], kind[1], kind[2])))
    f32 = nl.float32
    return Memory(
        factors=factors,
        e_pair=e_pair,
        work=work,
        out=out,
        fields=nl.ndarray((1, work.shape[1]), dtype=nl.int32, buffer=nl.sbuf),
        e=nl.ndarray((P, group), dtype=f32, buffer=nl.sbuf),
        bias=nl.ndarray((P, rtiles, group), dtype=f32, buffer=nl.sbuf),
        scratch=[_scratch_tiles(), _scratch_tiles()],
        stats=nl.ndarray((P, ntiles, group, 2), dtype=f32, buffer=nl.sbuf),
        result=nl.ndarray((P, group, 2), dtype=f32, buffer=nl.sbuf),
        turned=[nl.ndarray((P, RUN), dtype=f32, buffer=nl.psum), nl.ndarray((P, RUN), dtype=f32, buffer=nl.psum)],
    )


def _prepare(mem, banks, turn: int, slots, tile, same_pair: bool):
    """The steps of a tile that need no product of the vector engine: transposes of T, and the denominators.

    The scalar engine copies T out of PSUM, and the tensor engine transposes the square of each pair.
    """
    a0, m, b0, n, diagonal = tile
    scratch, width = mem.scratch[turn % 2], n * (slots[1] - slots[0])
    if diagonal and not same_pair:
        flat = scratch["flat"][0:m, 0:width]
        nisa.activation(dst=flat, op=nl.copy, data=banks[0][0:m, 0:width])
        for c in range(0, width, n):
            turned = mem.turned[turn % 2][0:m, c : c + n]
            nisa.nc_transpose(dst=turned, data=flat[:, c : c + n], engine=nisa.engine.tensor)
    row = mem.factors.row[0:m, b0 : b0 + n]
    for g in range(slots[0], slots[1]):
        c = (g - slots[0]) * n
        bias = mem.bias[0:m, a0 // P, g : g + 1]
        nisa.activation(dst=scratch["inverse"][0:m, c : c + n], op=nl.copy, data=row, bias=bias)


def _multiply(mem, banks, turn: int, slots, tile, same_pair: bool):
    """tt = T T / D, ur = U U / D and tr = T U / D of a tile for the pairs of slots, side by side."""
    _, m, _, n, diagonal = tile
    scratch, width = mem.scratch[turn % 2], n * (slots[1] - slots[0])
    inverse, tr, ur = scratch["inverse"][0:m, 0:width], scratch["tr"][0:m, 0:width], scratch["ur"][0:m, 0:width]
    T, U = banks[0][0:m, 0:width], banks[1][0:m, 0:width]
    if diagonal:
        U = mem.turned[turn % 2][0:m, 0:width]
    nisa.reciprocal(dst=inverse, data=inverse)
    nisa.tensor_tensor(dst=tr, data1=T, data2=inverse, op=nl.multiply)
    nisa.tensor_tensor(dst=scratch["tt"][0:m, 0:width], data1=tr, data2=T, op=nl.multiply)
    if not diagonal and not same_pair:
        nisa.tensor_tensor(dst=ur, data1=U, data2=inverse, op=nl.multiply)
        nisa.tensor_tensor(dst=ur, data1=ur, data2=U, op=nl.multiply)
    if not same_pair:
        nisa.tensor_tensor(dst=tr, data1=tr, data2=U, op=nl.multiply)


def _add_up(mem, turn: int, slots, tile, x: int, names, column: int, scale: float):
    """Sums over the columns of each pair and over terms, into stats of tile x, by the scalar engine's accumulators."""
    _, m, _, n, _ = tile
    for g in range(slots[0], slots[1]):
        c = (g - slots[0]) * n
        for t in range(len(names)):
            data = mem.scratch[turn % 2][names[t]][0:m, c : c + n]
            nisa.activation(
                dst=data,
                op=nl.copy,
                data=data,
                scale=scale,
                reduce_op=nl.add,
                reduce_res=mem.stats[0:m, x, g, column : column + 1] if t == len(names) - 1 else None,
                reduce_cmd=nisa.reduce_cmd.reset_reduce if t == 0 else nisa.reduce_cmd.reduce,
            )


def _sums(mem, turn: int, slots, tile, x: int, same_pair: bool):
    """Sums of a tile whose products are complete: opposite spin, and exchange for i < j."""
    diagonal = tile[4]
    scale = 1.0 if diagonal else 2.0  # an element right of the diagonal also stands for its partner
    if same_pair:
        _add_up(mem, turn, slots, tile, x, ["tt"], 0, scale)
    else:
        _add_up(mem, turn, slots, tile, x, ["tt"] if diagonal else ["tt", "ur"], 0, 1.0)
        _add_up(mem, turn, slots, tile, x, ["tr"], 1, scale)


def _last_sums(mem, turn: int, slots, tile, x: int, same_pair: bool):
    """The same for the last tile of an item, by the vector engine if it is diagonal.

    The scalar engine is then free for the first tile of the next item while the vector engine is at this one.
    """
    _, m, _, n, diagonal = tile
    if not diagonal:
        _sums(mem, turn, slots, tile, x, same_pair)
        return
    names, count = ["tt"] if same_pair else ["tt", "tr"], slots[1] - slots[0]
    for column in range(len(names)):
        data = mem.scratch[turn % 2][names[column]][0:m, 0 : n * count].reshape((m, count, n))
        sums = mem.stats[0:m, x, slots[0] : slots[1], column]
        nisa.tensor_reduce(dst=sums, op=nl.add, data=data, axis=2)


@dataclass
class Tiles(nl.NKIObject):
    """The tiles of one work item, and those whose products have been formed."""

    mem: Any
    tiles: Any
    same_pair: bool
    done: Any  # (slots, number of the tile) of each turn


def _finish(item, banks, turn: int, slots, x: int):
    """What is left of a tile whose products are in PSUM, and the sums of the tile before it."""
    mem, tiles, same_pair = item.mem, item.tiles, item.same_pair
    _prepare(mem, banks, turn, slots, tiles[x], same_pair)
    if turn > 0:
        before, number = item.done[turn - 1]
        _sums(mem, turn - 1, before, tiles[number], number, same_pair)
    _multiply(mem, banks, turn, slots, tiles[x], same_pair)
    item.done.append((slots, x))


def _pairs(mem, i_blocks, j_blocks, kind, same_pair: bool):
    """Pairs of i with each j, or of each j with itself, through products and energies."""
    tiles = tile_list(kind[0], kind[1], kind[2])
    mode = SAME if same_pair else PARTNERS
    add_energies(mem.bias, mem.factors.col, mem.e)
    done = []
    item = Tiles(mem=mem, tiles=tiles, same_pair=same_pair, done=done)
    if len(mem.factors.left) == 1:
        resident(mem.factors, tiles, i_blocks, j_blocks, kind, mode, _finish, item)
    else:
        streamed(mem.factors, tiles, i_blocks, j_blocks[0], kind, mode, _finish, item)
    slots, x = done[len(done) - 1]
    _last_sums(mem, len(done) - 1, slots, tiles[x], x, same_pair)


def _sum_tiles(mem, count: int, ntiles: int, same_pair: bool):
    """Sums over tiles for the pairs of an item, on GpSimd, which has nothing else to do."""
    result = mem.result[0:P, 0:count, :]
    if ntiles == 1:
        nisa.tensor_copy(dst=result, src=mem.stats[0:P, 0, 0:count, :], engine=nisa.engine.gpsimd)
    for x in range(1, ntiles):
        before = mem.stats[0:P, 0, 0:count, :] if x == 1 else result
        data2 = mem.stats[0:P, x, 0:count, :]
        nisa.tensor_tensor(dst=result, data1=before, data2=data2, op=nl.add, engine=nisa.engine.gpsimd)
    if same_pair:
        nisa.tensor_copy(dst=result[:, :, 1:2], src=result[:, :, 0:1], engine=nisa.engine.gpsimd)


def _block_fields(mem, column: int, kind):
    """The blocks A and B of an orbital, in registers; one and the same register on the diagonal of blocks."""
    first = field(mem.fields, column)
    return [first, first if kind[2] else field(mem.fields, column + 1)]


def _item(mem, it, count: int, same_pair: bool, kind):
    """One work item on one block pair: ``count`` pairs that share i, or pairs i = j."""
    nfields, group = mem.work.shape[1], mem.e_pair.shape[1]
    nisa.dma_copy(
        dst=mem.fields, src=mem.work.ap(pattern=[[nfields, 1], [1, nfields]], scalar_offset=it, indirect_dim=0)
    )
    nisa.dma_copy(dst=mem.e, src=mem.e_pair.ap(pattern=[[0, P], [1, group]], scalar_offset=it, indirect_dim=0))
    if mem.factors.ev_row.shape[0] > 1:
        load_virtuals(mem.factors, field(mem.fields, nfields - 2), field(mem.fields, nfields - 1))
    j_blocks = []
    for g in range(count):
        j_blocks.append(_block_fields(mem, 2 + 2 * g, kind))
    i_blocks = j_blocks[0] if same_pair else _block_fields(mem, 0, kind)
    _pairs(mem, i_blocks, j_blocks, kind, same_pair)
    _sum_tiles(mem, count, len(tile_list(kind[0], kind[1], kind[2])), same_pair)
    nisa.dma_copy(
        dst=mem.out.ap(pattern=[[2 * group, P], [1, 2 * count]], scalar_offset=it, indirect_dim=0),
        src=mem.result[0:P, 0:count, 0:2],
    )


def _loop(mem, limits, c: int, count: int, same_pair: bool, kind):
    """The device loop over the items of class c."""
    first, last = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(first, limits[0:1, 2 * c : 2 * c + 1])
    nisa.register_load(last, limits[0:1, 2 * c + 1 : 2 * c + 2])
    nisa.memset(dst=mem.stats, value=0.0)  # no item of the loop writes the lanes beyond the rows of its tiles

    def body(it):
        _item(mem, it, count, same_pair, kind)

    nl.fori_loop(first, last, body)


@nki.jit
def mp2_energy(bt, ev_row, ev_col, e_pair, work, bounds, nvir, naux, kchunk):
    """Partial sums of the opposite-spin and exchange pair energies, one a partition, without the weight 2 - delta_ij.

    bt [parts, nocc * nblk, 128, nk, block] fp32 or bf16: one part, or those of a split (``precision.splits``);
    ev_row [nblk, block], ev_col [nblk, 128, row tiles], e_pair [n, group] fp32; work [n, 4 + 2 group],
    bounds [cores, 2 classes] int32, all as made by ``mp2_plan``; nvir, naux, kchunk compile-time integers.
    Returns out [n, 128, group, 2] fp32, opposite spin then exchange, which is the opposite-spin energy for i = j; slots
    that no item owns are left unwritten.
    """
    out = nl.ndarray((work.shape[0], P, e_pair.shape[1], 2), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    limits = nl.ndarray((1, bounds.shape[1]), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=limits, src=bounds[core : core + 1, :])
    count = pairs_at_once(ev_row.shape[1], ev_row.shape[0], bt.shape[3], kchunk, e_pair.shape[1])
    mem = _memory(factors_on_chip(bt, ev_row, ev_col, naux, kchunk, count), e_pair, work, out, nvir)
    if ev_row.shape[0] == 1:
        load_virtuals(mem.factors, nisa.register_alloc(0), nisa.register_alloc(0))
    kinds = block_kinds(nvir, ev_row.shape[1])
    group = e_pair.shape[1]
    pair_kinds = [(group, False), (1, False), (same_group(ev_row.shape[0], group), True), (1, True)]
    for p in range(4):
        for k in range(len(kinds)):
            if p % 2 == 1 or pair_kinds[p][0] > 1:  # there are no groups of one
                _loop(mem, limits, p * len(kinds) + k, pair_kinds[p][0], pair_kinds[p][1], kinds[k])
    return out


def _halves(rows: int, cols: int, same: bool):
    """Masks [rows, cols] of the elements that stand for themselves (diagonal tiles) and for their partners too."""
    a, b = np.arange(rows)[:, None] // P, np.arange(cols) // P
    return (same & (a == b)).astype(float), ((not same) | (a < b)).astype(float)


def reference_mp2_energy(bt, ev_row, ev_col, e_pair, work, bounds, nvir, naux, kchunk):
    """The same partial sums in NumPy, fp64 arithmetic on the given (rounded) factors; unowned slots are NaN."""
    n, group = e_pair.shape
    kinds = block_kinds(nvir, ev_row.shape[1])
    out = np.full((n, P, group, 2), np.nan)
    parts = [np.asarray(part, np.float64).transpose(0, 3, 2, 1) for part in bt]

    def factor(part, index, width):
        return part[index, :width].reshape(width, -1)

    def product(x, y, rows, cols):
        pairs = products_of(len(parts), len(parts))
        return sum(factor(parts[p], x, rows) @ factor(parts[q], y, cols).T for p, q in pairs)

    for core in range(bounds.shape[0]):
        for c in range(bounds.shape[1] // 2):
            (rows, cols, same), pair_kind = kinds[c % len(kinds)], c // len(kinds)
            for it in range(bounds[core, 2 * c], bounds[core, 2 * c + 1]):
                a, b = work[it, -2:]
                for g in range(1 if pair_kind % 2 else group):
                    ja, jb = work[it, 2 + 2 * g : 4 + 2 * g]
                    ia, ib = (ja, jb) if pair_kind > 1 else work[it, :2]
                    T, U = product(ia, jb, rows, cols), product(ja, ib, rows, cols)
                    D = e_pair[it, g] + ev_row[a, :rows, None].astype(np.float64) + ev_row[b, None, :cols]
                    once, twice = _halves(rows, cols, same)
                    os, x = (once * T * T + twice * (T * T + U * U)) / D, (once + 2 * twice) * T * U / D
                    lanes = np.zeros((-(-rows // P) * P, 2))
                    lanes[:rows, 0], lanes[:rows, 1] = os.sum(1), (os if pair_kind > 1 else x).sum(1)
                    out[it, :, g] = lanes.reshape(-1, P, 2).sum(0)
    return out
