"""Density-fitted Coulomb matrices: both matrix-vector products in one launch.

    d[Q, x] = sum_p B[Q, p] D[p, x]          J[p, x] = sum_Q B[Q, p] d[Q, x]          for pairs p and densities x

Each contracted index lies on the partitions of both operands, so that the integrals are needed in both orders. They are
the stationary operands: a tile of 128 x 128 of them is loaded into the tensor engine for a few columns, and d has Q on
the partitions, where the second product needs it. It never leaves the chip but for a copy by which it can be checked.

Program: two device loops over pairs. The static instruction count depends on the fitting functions of a launch, and not
on the number of pairs. Limits: fewer than 2^31 elements in each array; n naux / (128 cores) <= 512 for n densities. On
two cores, each takes half of the fitting functions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.blas.blocks import round_to_parts
from nki_kernels.jk.plan import RUN, P, from_blocks
from nki_kernels.lang import nisa, nki, nl
from nki_kernels.precision.splits import products_of, split_like, sum_of_products


@dataclass
class Work(nl.NKIObject):
    """Arguments in HBM, their extents, and the tiles on chip."""

    by_pair: Any
    by_row: Any
    density: Any
    out: Any
    parts: int
    naux: int
    blocks: int  # blocks of 128 pairs
    n: int  # densities
    first: int  # the first fitting function of this core
    tiles: int  # tiles of 128 fitting functions of this core
    chunk: int
    integrals: Any  # tiles of integrals, used in turn; each a list over parts of [128, 128 chunk tiles]
    vectors: Any  # tiles of densities, likewise, [128, chunk n]
    fitted: Any  # d in parts, each [128, tiles n]
    sums: Any  # d in fp32
    stage: Any
    banks: Any
    products: Any  # (part, part) of each product


def _tiles(count: int, shape, dtype, buffer):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return tiles


def _many(turns: int, parts: int, width: int, dtype):
    """``turns`` lists over parts of tiles of a width."""
    tiles = []
    for _ in range(turns):
        tiles.append(_tiles(parts, (P, width), dtype, nl.sbuf))
    return tiles


def _multiply(mem, bank, left, right, count: int, stationary, moving):
    """bank (+)= sum over k of left[k].T right[k]; stationary, moving: (first column, columns from k to k, columns)."""
    for k in range(count):
        for x in range(len(mem.products)):
            p, q = mem.products[x]
            s0, m0 = stationary[0] + k * stationary[1], moving[0] + k * moving[1]
            nisa.nc_matmul(
                dst=bank,
                stationary=left[p][:, s0 : s0 + stationary[2]],
                moving=right[q][:, m0 : m0 + moving[2]],
                accumulate=(k > 0 or x > 0),
            )


def _fit(mem, it, turn: int):
    """d += B D of one chunk of pairs, from block ``it`` on."""
    width, n = P * mem.tiles, mem.n
    integrals, vectors = mem.integrals[turn], mem.vectors[turn]
    for p in range(mem.parts):
        base = (p * mem.blocks + turn * mem.chunk) * P * mem.naux + mem.first
        nisa.dma_copy(
            dst=integrals[p].reshape((P, mem.chunk, width)),
            src=mem.by_pair.ap(
                pattern=[[mem.naux, P], [P * mem.naux, mem.chunk], [1, width]],
                offset=base,
                scalar_offset=it,
                indirect_dim=0,
            ),
        )
        base = (p * P * mem.blocks + turn * mem.chunk) * n
        pattern = [[mem.blocks * n, P], [1, mem.chunk * n]]
        source = mem.density.ap(pattern=pattern, offset=base, scalar_offset=it, indirect_dim=0)
        nisa.dma_copy(dst=vectors[p], src=source)
    bank = mem.banks[turn][:, 0 : mem.tiles * n]
    for t in range(mem.tiles):
        place = bank[:, t * n : (t + 1) * n]
        _multiply(mem, place, integrals, vectors, mem.chunk, (t * P, width, P), (0, n, n))
    nisa.tensor_tensor(dst=mem.sums, data1=mem.sums, data2=bank, op=nl.add, engine=nisa.engine.vector)


def _assemble(mem, it, turn: int):
    """J of one chunk of pairs, from block ``it`` on."""
    width, n = P * mem.chunk, mem.n
    integrals = mem.integrals[turn]
    for p in range(mem.parts):
        base = ((p * mem.naux + mem.first) * mem.blocks + turn * mem.chunk) * P
        nisa.dma_copy(
            dst=integrals[p].reshape((P, mem.tiles, width)),
            src=mem.by_row.ap(
                pattern=[[P * mem.blocks, P], [P * P * mem.blocks, mem.tiles], [1, width]],
                offset=base,
                scalar_offset=it,
                indirect_dim=0,
            ),
        )
    bank = mem.banks[turn][:, 0 : mem.chunk * n]
    for x in range(mem.chunk):
        place = bank[:, x * n : (x + 1) * n]
        _multiply(mem, place, integrals, mem.fitted, mem.tiles, (x * P, width, P), (0, n, n))
    stage = mem.stage[turn]
    nisa.activation(dst=stage, op=nl.copy, data=bank)
    base = (mem.first // (P * mem.tiles) * P * mem.blocks + turn * mem.chunk) * n
    pattern = [[mem.blocks * n, P], [1, mem.chunk * n]]
    nisa.dma_copy(dst=mem.out.ap(pattern=pattern, offset=base, scalar_offset=it, indirect_dim=0), src=stage)


def _work(by_pair, by_row, density, out, core: int, cores: int, chunk: int, turns: int):
    parts, naux, pairs = by_row.shape
    n, blocks, tiles, dtype = density.shape[3], pairs // P, naux // (P * cores), by_row.dtype
    sums = nl.ndarray((P, tiles * n), dtype=nl.float32, buffer=nl.sbuf)
    nisa.memset(dst=sums, value=0.0)
    return Work(
        by_pair=by_pair.reshape((parts * blocks, P * naux)),
        by_row=by_row.reshape((parts * naux * blocks, P)),
        density=density.reshape((parts * P * blocks, n)),
        out=out.reshape((cores * P * blocks, n)),
        parts=parts,
        naux=naux,
        blocks=blocks,
        n=n,
        first=core * tiles * P,
        tiles=tiles,
        chunk=chunk,
        integrals=_many(turns, parts, P * chunk * tiles, dtype),
        vectors=_many(turns, parts, chunk * n, dtype),
        fitted=_tiles(parts, (P, tiles * n), dtype, nl.sbuf),
        sums=sums,
        stage=_tiles(turns, (P, chunk * n), nl.float32, nl.sbuf),
        banks=_tiles(turns, (P, RUN), nl.float32, nl.psum),
        products=products_of(parts, parts),
    )


@nki.jit
def df_coulomb(by_pair, by_row, density, chunk, turns):
    """by_pair [parts, pairs, naux], by_row [parts, naux, pairs], density [parts, 128, pairs / 128, n].

    Returns J [cores, 128, pairs / 128, n] and d [cores, 128, naux / (128 cores), n], fp32; J is the sum over cores.
    Pairs are in the order of ``plan.by_blocks``, and their number is a multiple of 128 chunk turns; that of fitting
    functions is a multiple of 128 cores. chunk, turns: as ``plan.coulomb_sizes`` returns them.
    """
    _, naux, pairs = by_row.shape
    n = density.shape[3]
    cores = nl.num_programs(0) if nl.program_ndim() > 0 else 1
    core = nl.program_id(0) if nl.program_ndim() > 0 else 0
    out = nl.ndarray((cores, P, pairs // P, n), dtype=nl.float32, buffer=nl.shared_hbm)
    fitted = nl.ndarray((cores, P, naux // (P * cores), n), dtype=nl.float32, buffer=nl.shared_hbm)
    mem = _work(by_pair, by_row, density, out, core, cores, chunk, turns)

    def fit(it):
        for turn in range(turns):
            _fit(mem, it, turn)

    def assemble(it):
        for turn in range(turns):
            _assemble(mem, it, turn)

    nl.fori_loop(0, mem.blocks, fit, step=turns * chunk)
    nisa.dma_copy(dst=fitted[core].reshape((P, mem.tiles * n)), src=mem.sums)
    round_to_parts(mem.fitted, mem.sums)
    nl.fori_loop(0, mem.blocks, assemble, step=turns * chunk)
    return out, fitted


def reference_df_coulomb(by_pair, by_row, density, chunk, turns):
    """J and d in NumPy: fp64 arithmetic on the given (rounded) parts and on those of d, rounded to fp32."""
    vectors = np.array([from_blocks(part) for part in density])
    fitted = sum_of_products(by_pair, vectors.swapaxes(1, 2))
    total = sum_of_products(by_row, split_like(fitted, by_row))
    shape = density.shape[1:]
    blocks = [x.reshape(-1, P, shape[2]).transpose(1, 0, 2)[None].astype(np.float32) for x in (total, fitted)]
    return blocks[0], blocks[1]
