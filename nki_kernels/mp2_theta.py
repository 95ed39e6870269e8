"""Amplitudes on their way from chip to HBM, for ``mp2_amplitudes``.

    X, Y on chip in fp32  --high parts, other parts-->  Theta                        (as they lie)
                          --transpose, high parts, other parts-->  Theta             (tiles off the diagonal)

Theta has the parts of the factors: fp32 or bf16, or two or three parts of a bf16 split. X and Y have the numbers 0
and 1 in what follows, their transposes 2 and 3.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from nki_kernels.lang import nisa, nl
from nki_kernels.mp2_plan import RUN, P
from nki_kernels.mp2_products import PARTNERS

TURNS = 2  # tiles whose elements are computed in turn
STAGES = 4  # transposed tiles on their way to HBM


@dataclass
class Amplitudes(nl.NKIObject):
    """Arguments in HBM and the tiles on chip that all loops share; lists are used in turn."""

    factors: Any
    e_pair: Any
    work: Any
    theta: Any  # a column of elements: all of the first part, then all of the second
    size: int  # elements of one part
    strides: Any  # elements from row to row at the places of X, Y, X^T and Y^T
    mix: Any  # alpha, beta and their sum on every partition
    fields: Any
    e: Any
    bias: Any  # eps_i + eps_j - eps_a [128, row tiles, group]
    scratch: Any
    thirds: Any  # tiles for three parts of X and Y of each turn; none for fewer parts
    stage: Any
    flat: Any
    turned: Any  # PSUM tiles of the transposes of X and of Y


def _tiles(count: int, shape, dtype, buffer):
    tiles = []
    for _ in range(count):
        tiles.append(nl.ndarray(shape, dtype=dtype, buffer=buffer))
    return tiles


def amplitudes_on_chip(factors, e_pair, work, theta, strides, mix):
    """The `Amplitudes` of a kernel's arguments, with newly allocated tiles; mix [1, 3] in HBM."""
    parts, group, rtiles, dtype = factors.bt.shape[0], e_pair.shape[1], factors.ev_col.shape[2], factors.bt.dtype
    mix_tile = nl.ndarray((P, 3), dtype=nl.float32, buffer=nl.sbuf)
    nisa.dma_copy(dst=mix_tile, src=mix.ap(pattern=[[0, P], [1, 3]]))
    scratch = []
    for _ in range(TURNS):
        scratch.append(_tiles(4, (P, RUN), nl.float32, nl.sbuf))
    stage = _tiles(STAGES, (P, parts, RUN), dtype, nl.sbuf)
    return Amplitudes(
        factors=factors,
        e_pair=e_pair,
        work=work,
        theta=theta,
        size=theta.shape[0] // parts,
        strides=strides,
        mix=mix_tile,
        fields=nl.ndarray((1, work.shape[1]), dtype=nl.int32, buffer=nl.sbuf),
        e=nl.ndarray((P, group), dtype=nl.float32, buffer=nl.sbuf),
        bias=nl.ndarray((P, rtiles, group), dtype=nl.float32, buffer=nl.sbuf),
        scratch=scratch,
        thirds=_tiles(2 * TURNS, (P, parts, RUN), dtype, nl.sbuf) if parts > 2 else [],
        stage=stage,
        flat=_tiles(2, (P, RUN), nl.float32, nl.sbuf),
        turned=_tiles(2, (P, RUN), nl.float32, nl.psum),
    )


def slices_of(mem, turn: int, tile):
    """The parts of the four working tiles of a turn that a tile takes."""
    x, y, t, u = mem.scratch[turn % TURNS]
    m, n = tile[1], tile[3]
    return x[0:m, 0:n], y[0:m, 0:n], t[0:m, 0:n], u[0:m, 0:n]


def _place(mem, place, kind: int, a0: int, rows: int, b0: int, n: int, blocks: int, step: int):
    """[rows, parts, blocks, n] of Theta at row a0 and column b0 of a place.

    A block lies 128 rows below the one before and ``step`` columns to its right.
    """
    stride = mem.strides[kind]
    return mem.theta.ap(
        pattern=[[stride, rows], [mem.size, mem.factors.bt.shape[0]], [P * stride + step, blocks], [1, n]],
        offset=a0 * stride + b0,
        scalar_offset=place,
        indirect_dim=0,
    )


def _round_high(parts, data):
    """The first part of data in fp32: rounded to the dtype of parts [m, parts, n]."""
    nisa.activation(dst=parts[:, 0, :], op=nl.copy, data=data)


def _round_rest(parts, data, rest):
    """The other parts, each of them what the rounding of those before it leaves; rest: a tile in fp32 like data."""
    if parts.shape[1] == 2:
        nisa.tensor_tensor(dst=parts[:, 1, :], data1=data, data2=parts[:, 0, :], op=nl.subtract)
    elif parts.shape[1] == 3:
        nisa.tensor_tensor(dst=rest, data1=data, data2=parts[:, 0, :], op=nl.subtract)
        nisa.activation(dst=parts[:, 1, :], op=nl.copy, data=rest)
        nisa.tensor_tensor(dst=parts[:, 2, :], data1=rest, data2=parts[:, 1, :], op=nl.subtract)


def _rounded(mem, done, kind: int):
    """[m, parts, n] for the parts of X or Y (kind 0 or 1).

    Two parts take the tile of t or u, which are no longer needed; three have tiles of their own.
    """
    turn, _, tile = done
    parts, dtype = mem.factors.bt.shape[0], mem.factors.bt.dtype
    if parts > 2:
        return mem.thirds[2 * (turn % TURNS) + kind][0 : tile[1], :, 0 : tile[3]]
    return mem.scratch[turn % TURNS][2 + kind].view(dtype).reshape((P, 2, RUN))[0 : tile[1], 0:parts, 0 : tile[3]]


def _kinds(mode: int):
    """What a tile has: X and Y, or X alone."""
    return [0, 1] if mode == PARTNERS else [0]


def high_parts(mem, done, mode: int):
    """The rounded X and Y of a tile; done: (turn, places, tile) of a tile whose X and Y are complete."""
    if mem.theta.dtype != nl.float32:
        data = slices_of(mem, done[0], done[2])
        for kind in _kinds(mode):
            _round_high(_rounded(mem, done, kind), data[kind])


def store(mem, done, mode: int):
    """The other parts of X and Y, and all parts to their places."""
    turn, places, tile = done
    a0, m, b0, n, diagonal = tile
    data = slices_of(mem, turn, tile)
    width = m if diagonal else n
    for kind in _kinds(mode):
        source = data[kind]
        if mem.theta.dtype != nl.float32:
            source = _rounded(mem, done, kind)
            _round_rest(source, data[kind], data[2 + kind])
        nisa.dma_copy(dst=_place(mem, places[kind], kind, a0, m, b0, width, n // width, P), src=source)


def transpose(mem, done, mode: int):
    """X^T and Y^T of a tile off the diagonal in PSUM, in blocks of 128 columns side by side."""
    turn, _, tile = done
    m, n = tile[1], tile[3]
    data = slices_of(mem, turn, tile)
    for kind in _kinds(mode):
        for c in range(0, n, P):
            width, at = min(P, n - c), c // P * m
            nisa.nc_transpose(
                dst=mem.turned[kind][0:width, at : at + m],
                data=data[kind][:, c : c + width],
                engine=nisa.engine.tensor,
            )


def _transposed_parts(mem, tile, kind: int, turn: int):
    """(data in PSUM, tile for its parts, first row, rows, blocks) of the full blocks and of a narrower one."""
    m, n = tile[1], tile[3]
    stage = mem.stage[(2 * turn + kind) % STAGES]
    pieces = []
    for blocks in [(0, P, n // P), (n // P, n % P, 1)]:
        first, height, count = blocks
        if height * count > 0:
            data = mem.turned[kind][0:height, first * m : (first + count) * m]
            pieces.append((data, stage[0:height, :, first * m : (first + count) * m], first * P, height, count))
    return pieces


def high_transposed(mem, done, mode: int):
    """The rounded X^T and Y^T, out of PSUM."""
    for kind in _kinds(mode):
        for piece in _transposed_parts(mem, done[2], kind, done[0]):
            _round_high(piece[1], piece[0])


def store_transposed(mem, done, mode: int):
    """The other parts of X^T and Y^T, and all parts to their places."""
    turn, places, tile = done
    a0, m, b0, _, _ = tile
    for kind in _kinds(mode):
        for piece in _transposed_parts(mem, tile, kind, turn):
            data, parts, row, height, count = piece
            rest = mem.scratch[turn % TURNS][2 + kind][0:height, row // P * m : row // P * m + count * m]
            _round_rest(parts, data, rest)
            place = _place(mem, places[2 + kind], 2 + kind, b0 + row, height, a0, m, count, 0)
            nisa.dma_copy(dst=place, src=parts)
