"""Four ways of loading the operands of C = A B, from every tile anew to blocks of all three indices.

All take a_t[K, M] and b[K, N] and return C[M, N] in fp32; M, K in multiples of 128 and N of 512. Loops are unrolled,
so that times are those of straight programs, as in the published profiles.
"""

from __future__ import annotations

from typing import Any

from nki_kernels.lang import nisa, nki, nl

P, RUN = 128, 512
BUNCH = 4  # half of the PSUM banks: the others are drained meanwhile


def _load(source, k: int, start: int, width: int):
    """source[128 k.., start : start + width] in a fresh tile."""
    tile = nl.ndarray((P, width), dtype=source.dtype, buffer=nl.sbuf)
    nisa.dma_copy(dst=tile, src=source[k * P : (k + 1) * P, start : start + width])
    return tile


def _store(out, row: int, col: int, bank):
    drained = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.sbuf)
    nisa.tensor_copy(dst=drained, src=bank)
    nisa.dma_copy(dst=out[row : row + bank.shape[0], col : col + bank.shape[1]], src=drained)


def _output(a_t, b):
    return nl.ndarray((a_t.shape[1], b.shape[1]), dtype=nl.float32, buffer=nl.shared_hbm)


@nki.jit
def tiled(a_t, b):
    """Both tiles are loaded for every product."""
    out = _output(a_t, b)
    for row in range(0, a_t.shape[1], P):
        for col in range(0, b.shape[1], RUN):
            bank = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
            for k in range(a_t.shape[0] // P):
                left = _load(a_t, k, row, P)
                nisa.nc_matmul(dst=bank, stationary=left, moving=_load(b, k, col, RUN), accumulate=k > 0)
            _store(out, row, col, bank)
    return out


@nki.jit
def hoisted(a_t, b):
    """A row of A^T tiles stays for all columns, a column of B tiles for one product."""
    out = _output(a_t, b)
    ks = range(a_t.shape[0] // P)
    for row in range(0, a_t.shape[1], P):
        left = [_load(a_t, k, row, P) for k in ks]
        for col in range(0, b.shape[1], RUN):
            right = [_load(b, k, col, RUN) for k in ks]
            bank = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
            for k in ks:
                nisa.nc_matmul(dst=bank, stationary=left[k], moving=right[k], accumulate=k > 0)
            _store(out, row, col, bank)
    return out


@nki.jit
def blocked(a_t, b, rows=2, cols=2, kept=0):
    """Blocks of ``rows`` row tiles and ``cols`` columns of B tiles.

    2 x 2 blocks of the published size need 320 KiB a partition, which no generation has, so a compiler must load
    columns of B tiles again. ``kept`` blocks, spread evenly, use their first column for one row after the other without
    loading it again; all other products load theirs.
    """
    out = _output(a_t, b)
    ks = range(a_t.shape[0] // P)
    firsts, starts = range(0, a_t.shape[1], rows * P), range(0, b.shape[1], cols * RUN)
    blocks, n = len(firsts) * len(starts), 0
    for first in firsts:
        left = [[_load(a_t, k, first + r * P, P) for k in ks] for r in range(rows)]
        for start in starts:
            keeps = n * kept // blocks != (n + 1) * kept // blocks
            n += 1
            right = []
            for r, c in _uses(rows, cols, by_column=keeps):
                col = start + c * RUN
                if not (keeps and c == 0 and r > 0):
                    right = [_load(b, k, col, RUN) for k in ks]
                bank = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
                for k in ks:
                    nisa.nc_matmul(dst=bank, stationary=left[r][k], moving=right[k], accumulate=k > 0)
                _store(out, first + r * P, col, bank)
    return out


def _uses(rows: int, cols: int, by_column: bool) -> list[tuple[int, int]]:
    if by_column:
        return [(r, c) for c in range(cols) for r in range(rows)]
    return [(r, c) for r in range(rows) for c in range(cols)]


@nki.jit
def k_blocked(a_t, b, rows=16, cols=2, depth=8, room=0):
    """Blocks of ``rows`` row tiles, ``cols`` column runs and ``depth`` contraction tiles, summed up in SBUF.

    Sums that do not fit beside the operands into ``room`` bytes of a partition (0: what the generation has) lie in HBM
    and come in for each addition, as a compiler spills them: 10 of 64 at the published size on trn2. The
    published profile shows additions in bunches: several banks are summed up at once, so that the tiles of the next
    block can follow one by one into the place of this one's. Results leave during the last block of K, when the
    profile's use of SBUF falls.
    """
    out = _output(a_t, b)
    height, width = rows * P, cols * RUN
    right = [nl.ndarray((P, width), dtype=b.dtype, buffer=nl.sbuf) for _ in range(depth)]
    left = [nl.ndarray((P, height), dtype=a_t.dtype, buffer=nl.sbuf) for _ in range(depth)]
    keys = [(first + r, c) for first in range(0, a_t.shape[1] // P, rows) for c in range(cols) for r in range(rows)]
    others = depth * (width + height) * b.dtype.itemsize + width * 4
    away = _spilled(keys, others + len(keys) * RUN * 4 - (room or nl.tile_size.sbuf_fmax_bytes))
    sums = {key: nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf) for key in keys if key not in away}
    spill = {key: nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.private_hbm) for key in away}
    for col in range(0, b.shape[1], width):
        for k in range(0, a_t.shape[0] // P, depth):
            for first in range(0, a_t.shape[1] // P, rows):
                for d in range(depth):
                    part = slice((k + d) * P, (k + d + 1) * P)
                    if first == 0:
                        nisa.dma_copy(dst=right[d], src=b[part, col : col + width])
                    nisa.dma_copy(dst=left[d], src=a_t[part, first * P : first * P + height])
                for c in range(cols):
                    for r in range(0, rows, BUNCH):
                        bunch = range(r, min(r + BUNCH, rows))
                        for n, bank in zip(bunch, _multiply_bunch(left, right, bunch, c), strict=True):
                            _add(bank, sums.get((first + n, c)), spill.get((first + n, c)), fresh=k == 0)
                        if c == cols - 1 and (k + depth) * P == a_t.shape[0]:
                            for n in bunch:
                                _store_row(out, first + n, col, [(sums | spill)[first + n, i] for i in range(cols)])
    return out


def _store_row(out, row: int, col: int, parts: list[Any]) -> None:
    packed = nl.ndarray((P, len(parts) * RUN), dtype=nl.float32, buffer=nl.sbuf)
    for c, part in enumerate(parts):
        copy = nisa.tensor_copy if part.buffer is nl.sbuf else nisa.dma_copy
        copy(dst=packed[0:P, c * RUN : (c + 1) * RUN], src=part)
    nisa.dma_copy(dst=out[row * P : (row + 1) * P, col : col + len(parts) * RUN], src=packed)


def _spilled(keys: list[Any], excess: int) -> set[Any]:
    """As many of the sums as free ``excess`` bytes of a partition, spread evenly."""
    count = min(len(keys), max(0, -(-excess // (RUN * 4))))
    return {key for n, key in enumerate(keys) if n * count // len(keys) != (n + 1) * count // len(keys)}


def _multiply_bunch(left: list[Any], right: list[Any], bunch: range, c: int) -> list[Any]:
    """A product for each row tile of ``bunch``, all of them for one contraction tile before the next."""
    banks = [nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum) for _ in bunch]
    for d in range(len(left)):
        for r, bank in zip(bunch, banks, strict=True):
            stationary, moving = left[d][0:P, r * P : (r + 1) * P], right[d][0:P, c * RUN : (c + 1) * RUN]
            nisa.nc_matmul(dst=bank, stationary=stationary, moving=moving, accumulate=d > 0)
    return banks


def _add(bank, total, spilled, fresh: bool) -> None:
    """total += bank in SBUF, or in HBM by way of a tile in SBUF; ``fresh``: total counts as zero before."""
    if total is None:
        total = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf)
        if not fresh:
            nisa.dma_copy(dst=total, src=spilled)
    if fresh:
        nisa.memset(dst=total, value=0.0)
    nisa.tensor_tensor(dst=total, data1=total, data2=bank, op=nl.add)
    if spilled is not None:
        nisa.dma_copy(dst=spilled, src=total)


@nki.jit
def double_row(a_t, b):
    """fp8 operands, two contraction tiles a product; a_t[2, K, M], b[2, K, N] hold them side by side."""
    _, K, M = a_t.shape
    N = b.shape[2]
    out = nl.ndarray((M, N), dtype=nl.float32, buffer=nl.shared_hbm)
    right = []
    for k in range(0, K, P):
        tile = nl.ndarray((P, 2, N), dtype=b.dtype, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=b[0:2, k : k + P, 0:N].permute((1, 0, 2)))
        right.append(tile)
    for row in range(0, M, P):
        banks = [nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum) for _ in range(N // RUN)]
        for k in range(0, K, P):
            left = nl.ndarray((P, 2, P), dtype=a_t.dtype, buffer=nl.sbuf)
            nisa.dma_copy(dst=left, src=a_t[0:2, k : k + P, row : row + P].permute((1, 0, 2)))
            for c, bank in enumerate(banks):
                nisa.nc_matmul(
                    dst=bank,
                    stationary=left,
                    moving=right[k // P][0:P, 0:2, c * RUN : (c + 1) * RUN],
                    accumulate=k > 0,
                    perf_mode=nisa.matmul_perf_mode.double_row,
                )
        for c, bank in enumerate(banks):
            _store(out, row, c * RUN, bank)
    return out
