"""Fused DF-MP2 pair energies: products on the tensor engine, and the energy expression as results leave PSUM.

For a pair i < j, T[a, b] = sum_P B_i[a, P] B_j[b, P]. Its partner T[b, a] is the same product with i and j swapped. For
a tile with rows A and columns B to the right of the diagonal, both have the same layout and the same denominators:

    T = B_i[A] . B_j[B]^T        U = B_j[A] . B_i[B]^T        D = eps_i + eps_j - eps_a - eps_b
    opposite spin += sum (T^2 + U^2) / D       exchange += sum 2 T U / D       same spin = opposite - exchange

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
from nki_kernels.mp2_plan import RUN, P, block_kinds
from nki_kernels.mp2_products import (
    PARTNERS,
    SAME,
    factors_on_chip,
    field,
    load_virtuals,
    resident,
    streamed,
    tile_list,
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
    bias: Any
    scratch: Any
    transposed: Any
    stats: Any
    result: Any
    turned: Any


def _scratch_tiles():
    names = ["delta", "inverse", "tr", "ur", "tt", "uu", "tu"]
    tiles = {}
    for name in names:
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
        bias=[nl.ndarray((P, rtiles), dtype=f32, buffer=nl.sbuf), nl.ndarray((P, rtiles), dtype=f32, buffer=nl.sbuf)],
        scratch=[_scratch_tiles(), _scratch_tiles()],
        transposed=[nl.ndarray((P, P), dtype=f32, buffer=nl.sbuf), nl.ndarray((P, P), dtype=f32, buffer=nl.sbuf)],
        stats=[
            nl.ndarray((P, 2, ntiles), dtype=f32, buffer=nl.sbuf),
            nl.ndarray((P, 2, ntiles), dtype=f32, buffer=nl.sbuf),
        ],
        result=nl.ndarray((P, group, 2), dtype=f32, buffer=nl.sbuf),
        turned=[nl.ndarray((P, P), dtype=f32, buffer=nl.psum), nl.ndarray((P, P), dtype=f32, buffer=nl.psum)],
    )


def _add_up(scratch, tile, terms, scale: float, lane):
    """lane[m, 1] = scale * sum over terms and columns, by the scalar engine's accumulators."""
    _, m, _, n, _ = tile
    for x in range(len(terms)):
        data = scratch[terms[x]][0:m, 0:n]
        first, last = x == 0, x == len(terms) - 1
        nisa.activation(
            dst=data,
            op=nl.copy,
            data=data,
            scale=scale,
            reduce_op=nl.add,
            reduce_res=lane if last else None,
            reduce_cmd=nisa.reduce_cmd.reset_reduce if first else nisa.reduce_cmd.reduce,
        )


def _multiply(scratch, name: str, tile, data1, data2):
    nisa.tensor_tensor(dst=scratch[name][0 : tile[1], 0 : tile[3]], data1=data1, data2=data2, op=nl.multiply)
    return scratch[name][0 : tile[1], 0 : tile[3]]


def _transposed(mem, turn: int, T, m: int):
    """The transpose of a finished square tile, in PSUM: the scalar engine copies it out, the tensor engine turns it."""
    flat, turned = mem.transposed[turn % 2][0:m, 0:m], mem.turned[turn % 2][0:m, 0:m]
    nisa.activation(dst=flat, op=nl.copy, data=T)
    nisa.nc_transpose(dst=turned, data=flat, engine=nisa.engine.tensor)
    return turned


def _energies(mem, banks, turn: int, slot: int, tile, x: int, same_pair: bool):
    """Sums of one tile into column x of stats: opposite spin, and exchange for i < j."""
    a0, m, b0, n, diagonal = tile
    scratch, stats = mem.scratch[turn % 2], mem.stats[slot % 2]
    T, U = banks[0][0:m, 0:n], banks[1][0:m, 0:n]
    if diagonal and not same_pair:
        U = _transposed(mem, turn, T, m)
    delta, inverse = scratch["delta"][0:m, 0:n], scratch["inverse"][0:m, 0:n]
    bias = mem.bias[slot % 2][0:m, a0 // P : a0 // P + 1]
    nisa.tensor_scalar(dst=delta, data=mem.factors.row[0:m, b0 : b0 + n], op0=nl.add, operand0=bias)
    nisa.reciprocal(dst=inverse, data=delta)
    tr = _multiply(scratch, "tr", tile, T, inverse)
    _multiply(scratch, "tt", tile, tr, T)
    if same_pair:
        _add_up(scratch, tile, ["tt"], 1.0 if diagonal else 2.0, stats[0:m, 0, x : x + 1])
        return
    if not diagonal:
        ur = _multiply(scratch, "ur", tile, U, inverse)
        _multiply(scratch, "uu", tile, ur, U)
    _multiply(scratch, "tu", tile, tr, U)
    _add_up(scratch, tile, ["tt"] if diagonal else ["tt", "uu"], 1.0, stats[0:m, 0, x : x + 1])
    _add_up(scratch, tile, ["tu"], 1.0 if diagonal else 2.0, stats[0:m, 1, x : x + 1])


def _open_pair(mem, slot: int):
    nisa.memset(dst=mem.stats[slot % 2], value=0.0)
    nisa.tensor_scalar(dst=mem.bias[slot % 2], data=mem.factors.col, op0=nl.add, operand0=mem.e[0:P, slot : slot + 1])


def _close_pair(mem, slot: int, same_pair: bool):
    """The pair's two sums over its tiles into result[:, slot]."""
    stats = mem.stats[slot % 2]
    opposite, same = mem.result[0:P, slot, 0:1], mem.result[0:P, slot, 1:2]
    nisa.tensor_reduce(dst=opposite, op=nl.add, data=stats[0:P, 0, :], axis=1)
    if same_pair:
        nisa.memset(dst=same, value=0.0)
    else:
        nisa.tensor_reduce(dst=same, op=nl.add, data=stats[0:P, 1, :], axis=1)
        nisa.tensor_tensor(dst=same, data1=opposite, data2=same, op=nl.subtract)


def _pairs(mem, i_blocks, j_blocks, kind, same_pair: bool):
    """Pairs of i with each j, through products and energies."""
    tiles = tile_list(kind[0], kind[1], kind[2])
    mode = SAME if same_pair else PARTNERS

    def begin(slot):
        _open_pair(mem, slot)

    def finish(banks, turn, slot, tile, x):
        _energies(mem, banks, turn, slot, tile, x, same_pair)
        if x == len(tiles) - 1:
            _close_pair(mem, slot, same_pair)

    if len(mem.factors.left) == 1:
        resident(mem.factors, tiles, i_blocks, j_blocks, kind, mode, begin, finish)
    else:
        streamed(mem.factors, tiles, i_blocks, j_blocks[0], kind, mode, begin, finish)


def _item(mem, it, count: int, same_pair: bool, kind):
    """One work item: ``count`` pairs that share i, on one block pair."""
    nfields, group = mem.work.shape[1], mem.e_pair.shape[1]
    nisa.dma_copy(
        dst=mem.fields, src=mem.work.ap(pattern=[[nfields, 1], [1, nfields]], scalar_offset=it, indirect_dim=0)
    )
    nisa.dma_copy(dst=mem.e, src=mem.e_pair.ap(pattern=[[0, P], [1, group]], scalar_offset=it, indirect_dim=0))
    if mem.factors.ev_row.shape[0] > 1:
        load_virtuals(mem.factors, field(mem.fields, nfields - 2), field(mem.fields, nfields - 1))
    i_blocks = [field(mem.fields, 0), field(mem.fields, 1)]
    j_blocks = []
    for g in range(count):
        j_blocks.append([field(mem.fields, 2 + 2 * g), field(mem.fields, 3 + 2 * g)])
    _pairs(mem, i_blocks, j_blocks, kind, same_pair)
    nisa.dma_copy(
        dst=mem.out.ap(pattern=[[2 * group, P], [1, 2 * count]], scalar_offset=it, indirect_dim=0),
        src=mem.result[0:P, 0:count, 0:2],
    )


def _loop(mem, limits, c: int, count: int, same_pair: bool, kind):
    """The device loop over the items of class c."""
    first, last = nisa.register_alloc(), nisa.register_alloc()
    nisa.register_load(first, limits[0:1, 2 * c : 2 * c + 1])
    nisa.register_load(last, limits[0:1, 2 * c + 1 : 2 * c + 2])

    def body(it):
        _item(mem, it, count, same_pair, kind)

    nl.fori_loop(first, last, body)


@nki.jit
def mp2_energy(bt, ev_row, ev_col, e_pair, work, bounds, nvir, naux, kchunk):
    """Partial sums of the opposite- and same-spin pair energies, one a partition, without the weight 2 - delta_ij.

    bt [parts, nocc * nblk, 128, nk, block] fp32 or bf16: one part, or those of a split (``precision.splits``);
    ev_row [nblk, block], ev_col [nblk, 128, row tiles], e_pair [n, group] fp32; work [n, 4 + 2 group],
    bounds [cores, 2 classes] int32, all as made by ``mp2_plan``; nvir, naux, kchunk compile-time integers.
    Returns out [n, 128, group, 2] fp32, opposite spin then same spin; slots that no item owns are left unwritten.
    """
    out = nl.ndarray((work.shape[0], P, e_pair.shape[1], 2), dtype=nl.float32, buffer=nl.shared_hbm)
    core = nl.program_id(0)
    limits = nl.ndarray((1, bounds.shape[1]), dtype=nl.int32, buffer=nl.sbuf)
    nisa.dma_copy(dst=limits, src=bounds[core : core + 1, :])
    mem = _memory(factors_on_chip(bt, ev_row, ev_col, naux, kchunk), e_pair, work, out, nvir)
    if ev_row.shape[0] == 1:
        load_virtuals(mem.factors, nisa.register_alloc(0), nisa.register_alloc(0))
    kinds = block_kinds(nvir, ev_row.shape[1])
    pair_kinds = [(e_pair.shape[1], False), (1, False), (1, True)]
    for p in range(3):
        for k in range(len(kinds)):
            if p > 0 or pair_kinds[0][0] > 1:
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
                ia, ib, a, b = *work[it, :2], *work[it, -2:]
                for g in range(group if pair_kind == 0 else 1):
                    ja, jb = (ia, ib) if pair_kind == 2 else work[it, 2 + 2 * g : 4 + 2 * g]
                    T, U = product(ia, jb, rows, cols), product(ja, ib, rows, cols)
                    D = e_pair[it, g] + ev_row[a, :rows, None].astype(np.float64) + ev_row[b, None, :cols]
                    once, twice = _halves(rows, cols, same)
                    os, x = (once * T * T + twice * (T * T + U * U)) / D, (once + 2 * twice) * T * U / D
                    lanes = np.zeros((-(-rows // P) * P, 2))
                    lanes[:rows, 0], lanes[:rows, 1] = os.sum(1), (os - x).sum(1)
                    out[it, :, g] = lanes.reshape(-1, P, 2).sum(0)
    return out
