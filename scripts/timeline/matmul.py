"""Four ways of loading the operands of C = A B, from every tile anew to blocks of all three indices.

All take a_t[K, M] and b[K, N] and return C[M, N] in fp32; M, K in multiples of 128 and N of 512. Loops are unrolled,
so that times are those of straight programs, as in the published profiles.
"""

from __future__ import annotations

from nki_kernels.lang import nisa, nki, nl

P, RUN = 128, 512


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
def blocked(a_t, b, rows=2, cols=2):
    """Blocks of ``rows`` row tiles and ``cols`` columns of B tiles.

    2 x 2 blocks of the published size need 320 KiB a partition, which no generation has, and the published profile
    moves as many bytes as ``hoisted`` does: so every product loads its column of B tiles again, in the order of the
    blocks.
    """
    out = _output(a_t, b)
    ks = range(a_t.shape[0] // P)
    for first in range(0, a_t.shape[1], rows * P):
        left = [[_load(a_t, k, first + r * P, P) for k in ks] for r in range(rows)]
        for start in range(0, b.shape[1], cols * RUN):
            for r in range(rows):
                for col in range(start, start + cols * RUN, RUN):
                    right = [_load(b, k, col, RUN) for k in ks]
                    bank = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
                    for k in ks:
                        nisa.nc_matmul(dst=bank, stationary=left[r][k], moving=right[k], accumulate=k > 0)
                    _store(out, first + r * P, col, bank)
    return out


@nki.jit
def k_blocked(a_t, b, rows=8, cols=2, depth=8):
    """Blocks of ``rows`` row tiles, ``cols`` column runs and ``depth`` contraction tiles, summed up in SBUF."""
    out = _output(a_t, b)
    height, width = rows * P, cols * RUN
    firsts = range(0, a_t.shape[1], height)
    for col in range(0, b.shape[1], width):
        sums = {}
        for row in range(0, a_t.shape[1], P):
            for c in range(cols):
                sums[row, c] = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.sbuf)
                nisa.memset(dst=sums[row, c], value=0.0)
        for k in range(0, a_t.shape[0] // P, depth):
            right = [_load(b, k + d, col, width) for d in range(depth)]
            for first in firsts:
                left = [_load(a_t, k + d, first, height) for d in range(depth)]
                for c in range(cols):
                    for r in range(rows):
                        _add_block(left, right, r, c, sums[first + r * P, c])
        for row in range(0, a_t.shape[1], P):
            packed = nl.ndarray((P, width), dtype=nl.float32, buffer=nl.sbuf)
            for c in range(cols):
                nisa.tensor_copy(dst=packed[0:P, c * RUN : (c + 1) * RUN], src=sums[row, c])
            nisa.dma_copy(dst=out[row : row + P, col : col + width], src=packed)
    return out


def _add_block(left, right, r: int, c: int, total):
    bank = nl.ndarray((P, RUN), dtype=nl.float32, buffer=nl.psum)
    for d in range(len(left)):
        nisa.nc_matmul(
            dst=bank,
            stationary=left[d][0:P, r * P : (r + 1) * P],
            moving=right[d][0:P, c * RUN : (c + 1) * RUN],
            accumulate=d > 0,
        )
    nisa.tensor_tensor(dst=total, data1=total, data2=bank, op=nl.add)


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
