"""Density-fitted exchange: half transformation and rank-n update in one launch.

    X_Q[i, m] = sum_n C[n, i] B_Q[n, m]              for every fitting function Q, in PSUM
    K[m, l]   = sum_Qi X_Q[i, m] X_Q[i, l]           summed over a group of Q in PSUM, over all groups in SBUF

X never leaves the chip. The functions n lie on the partitions, several of them on each in a row, so that a load of B_Q
reads long runs of memory. The orbitals i of X lie on the partitions as well, which is how the second product contracts
them; two functions Q share the 128 partitions where there are at most 64 orbitals, and four where there are at most 32.
More than 128 orbitals take several tiles. Only the tiles of K on and below the diagonal are computed.

Program: one device loop over groups of fitting functions. The static instruction count depends on the functions and
orbitals of the molecule, and not on the number of fitting functions. Limits: ``plan.exchange_sizes`` must not be None;
fewer than 2^31 elements in each array. On two cores, each takes half of the fitting functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.blas.blocks import round_to_parts
from nki_kernels.jk.plan import RUN, STAGES, P, ceil, lane_of
from nki_kernels.lang import nisa, nki, nl
from nki_kernels.precision.splits import products_of, split_like, sum_of_products

HALVES = 4  # PSUM banks of the half transformation
SUMS = 4  # PSUM banks of the rank-n update


@dataclass
class Work(nl.NKIObject):
    """Arguments in HBM, their extents, and the tiles on chip."""

    rows: Any  # integrals, one row for each part and fitting function
    parts: int
    naux: int
    height: int  # partitions of B_Q
    blocks: int  # functions n on each of these partitions
    nao: int
    nocc: int
    ring: Any  # tiles of integrals, used in turn; each a list over parts of [height, blocks nao]
    orbitals: Any  # tiles over parts [height, blocks nocc]
    halves: Any  # X, a list over tiles of 128 partitions of lists over parts of [128, nao]
    stage: Any  # X in fp32 before it is split
    sums: Any  # K, a list over blocks of 128 rows
    half_banks: Any
    sum_banks: Any
    products: Any  # (part, part) of each product


def _tiles(count: int, shape, dtype, buffer):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return tiles


def _zeros(count: int, shape, dtype):
    tiles = _tiles(count, shape, dtype, nl.sbuf)
    for tile in tiles:
        nisa.memset(dst=tile, value=0.0)
    return tiles


def _work(rows, orbitals, blocks: int, group: int, ring: int):
    parts, naux, height, width = rows.shape
    nao, dtype = width // blocks, rows.dtype
    nocc = orbitals.shape[2] // blocks
    buffers = []
    for _ in range(ring):
        buffers.append(_tiles(parts, (height, width), dtype, nl.sbuf))
    halves = []
    for _ in range(ceil(nocc, P) * group * lane_of(nocc) // P):
        # Partitions between the orbitals of two functions stay zero.
        halves.append(_zeros(parts, (P, nao), dtype))
    sums = []
    for m in range(ceil(nao, P)):
        sums.append(_zeros(1, (P, min(P * (m + 1), nao)), nl.float32)[0])
    return Work(
        rows=rows.reshape((parts * naux, height * width)),
        parts=parts,
        naux=naux,
        height=height,
        blocks=blocks,
        nao=nao,
        nocc=nocc,
        ring=buffers,
        orbitals=_tiles(parts, (height, blocks * nocc), dtype, nl.sbuf),
        halves=halves,
        stage=_tiles(STAGES if parts > 1 else 0, (P, RUN), nl.float32, nl.sbuf),
        sums=sums,
        half_banks=_tiles(HALVES, (P, RUN), nl.float32, nl.psum),
        sum_banks=_tiles(SUMS, (P, RUN), nl.float32, nl.psum),
        products=products_of(parts, parts),
    )


def _load(mem, tiles, it, g: int):
    """B of fitting function ``it`` + g, every part."""
    width = mem.blocks * mem.nao
    for p in range(mem.parts):
        pattern, offset = [[width, mem.height], [1, width]], (p * mem.naux + g) * mem.height * width
        source = mem.rows.ap(pattern=pattern, offset=offset, scalar_offset=it, indirect_dim=0)
        nisa.dma_copy(dst=tiles[p], src=source)


def _transform(mem, tiles, g: int, turn: int, waiting):
    """X of one fitting function: products in PSUM, then rounded into its place.

    Returns the next turn of the banks and of the stage, and what ``_split`` has still to do.
    """
    lane = lane_of(mem.nocc)
    start = g * lane % P
    for i0 in range(0, mem.nocc, P):
        width = min(P, mem.nocc - i0)
        half = mem.halves[(g * lane // P) * ceil(mem.nocc, P) + i0 // P]
        for m0 in range(0, mem.nao, RUN):
            columns = min(RUN, mem.nao - m0)
            bank = mem.half_banks[turn % HALVES][0:width, 0:columns]
            for k in range(mem.blocks):
                i, m = k * mem.nocc + i0, k * mem.nao + m0
                for x in range(len(mem.products)):
                    p, q = mem.products[x]
                    nisa.nc_matmul(
                        dst=bank,
                        stationary=mem.orbitals[p][:, i : i + width],
                        moving=tiles[q][:, m : m + columns],
                        accumulate=(k > 0 or x > 0),
                    )
            place = []
            for part in half:
                place.append(part[start : start + width, m0 : m0 + columns])
            waiting = _take(mem, place, bank, start, turn, waiting)
            turn = turn + 1
    return turn, waiting


def _take(mem, place, bank, start: int, turn: int, waiting):
    """X out of PSUM: in one part to its place, else to the stage, while what is on the stage before it is split."""
    if len(place) == 1:
        if turn % 2 == 0:
            nisa.activation(dst=place[0], op=nl.copy, data=bank)
        else:
            nisa.tensor_copy(dst=place[0], src=bank, engine=nisa.engine.vector)
        return []
    width, columns = bank.shape
    stage = mem.stage[turn % STAGES][start : start + width, 0:columns]
    nisa.tensor_copy(dst=stage, src=bank, engine=nisa.engine.vector)
    _split(waiting)
    return [place, stage]


def _split(waiting):
    """X from the stage to its place, in parts; VectorE has something else to do while ScalarE rounds the first part."""
    if len(waiting) > 0:
        round_to_parts(waiting[0], waiting[1])


def _update(mem):
    """K += X^T X of a group, by tiles on and below the diagonal."""
    turn = 0
    last = mem.nocc - (mem.nocc - 1) // P * P
    for m in range(ceil(mem.nao, P)):
        rows = min(P, mem.nao - m * P)
        end = min(P * (m + 1), mem.nao)
        for n0 in range(0, end, RUN):
            columns = min(RUN, end - n0)
            bank = mem.sum_banks[turn % SUMS][0:rows, 0:columns]
            for h in range(len(mem.halves)):
                # Functions that share the partitions need all of them; of more than 128 orbitals, the last tile is low.
                height = last if mem.nocc > P and h % ceil(mem.nocc, P) == ceil(mem.nocc, P) - 1 else P
                for x in range(len(mem.products)):
                    p, q = mem.products[x]
                    nisa.nc_matmul(
                        dst=bank,
                        stationary=mem.halves[h][p][0:height, m * P : m * P + rows],
                        moving=mem.halves[h][q][0:height, n0 : n0 + columns],
                        accumulate=(h > 0 or x > 0),
                    )
            place = mem.sums[m][0:rows, n0 : n0 + columns]
            nisa.tensor_tensor(dst=place, data1=place, data2=bank, op=nl.add, engine=nisa.engine.vector)
            turn = turn + 1


@nki.jit
def df_exchange(rows, orbitals, blocks, group, ring):
    """rows [parts, naux, height, blocks nao], orbitals [parts, height, blocks nocc], as ``plan.on_partitions`` returns.

    Returns K [cores, nao, nao] fp32, one sum for each core; elements above the diagonal are undefined. naux is a
    multiple of cores times group; blocks, group, ring: as ``plan.exchange_sizes`` returns them.
    """
    nao = rows.shape[3] // blocks
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    out = nl.ndarray((cores, nao, nao), dtype=nl.float32, buffer=nl.shared_hbm)
    mem = _work(rows, orbitals, blocks, group, ring)
    for p in range(mem.parts):
        nisa.dma_copy(dst=mem.orbitals[p], src=orbitals[p])

    def body(it):
        turn, waiting = 0, []
        for g in range(group):
            tiles = mem.ring[g % len(mem.ring)]
            _load(mem, tiles, it, g)
            turn, waiting = _transform(mem, tiles, g, turn, waiting)
        _split(waiting)
        _update(mem)

    share = mem.naux // cores
    nl.fori_loop(core * share, (core + 1) * share, body, step=group)
    for m in range(ceil(nao, P)):
        height, columns = min(P, nao - m * P), min(P * (m + 1), nao)
        nisa.dma_copy(dst=out[core, m * P : m * P + height, 0:columns], src=mem.sums[m][0:height, 0:columns])
    return out


def reference_df_exchange(rows, orbitals, blocks, group, ring):
    """K in NumPy: fp64 arithmetic on the given (rounded) parts and on those of X; NaN above the diagonal."""
    parts, naux, height, _ = rows.shape
    functions = height * blocks
    square, matrix = rows.reshape(parts, naux, functions, -1), orbitals.reshape(parts, 1, functions, -1)
    half = sum_of_products(np.broadcast_to(matrix, (parts, naux, *matrix.shape[2:])), square)
    half = split_like(half.reshape(-1, half.shape[2]), rows)
    exchange = sum_of_products(half, half)
    return np.where(np.tri(len(exchange), dtype=bool), exchange, np.nan).astype(np.float32)[None]
