"""Blocks of the BLAS kernels, and the work lists that the host makes for them.

    M, N, K  --product_kinds, triangle_kinds-->  sizes of blocks, and how many there are of each
             --product_list, triangle_list-->  items and factors, in the same order        (see ``blocks``)

Kernels call the first kind of function when they are compiled, and the host calls the second before a launch.
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.blocks import BANKS, CHUNK, FACTORS, RUN, P
from nki_kernels.gemm_blocks import blocks_of

ROWS = 4 * P  # rows of the largest block
COLS = 4 * RUN  # columns of the widest one, which SBUF holds twice
COLS_OF_MANY = 3 * RUN  # the same for operands of more than three parts
DEPTH = 32  # contraction blocks of 128 of the longest item
GROUP = 4  # small products in a pass of a loop, so that the loads of one overlap with the others
PRODUCT_ITEMS = 3  # columns of a work list: offsets into left, right and result


def block_sizes(M: int, N: int, K: int, count: int = 1, parts: int = 1):
    """(rows, cols, depth, group): rows and columns of a block, contraction blocks of an item, and items of a pass.

    Blocks of equal height that fill PSUM, and items of K of equal length. count is the number of products, parts that
    of the parts of an operand.
    """
    rows = _share(M, ROWS)
    cols = min(N, _widest(parts), RUN * (BANKS * P // rows))
    depth = _share(K, DEPTH * P) // P
    return rows, cols, depth, GROUP if count >= GROUP and K <= CHUNK * P else 1


def triangle_sizes(n: int, K: int, parts: int = 1):
    """The sizes of `block_sizes` for a triangle [n, n]: a block is as wide as one or several are high."""
    rows, _, depth, _ = block_sizes(n, n, K)
    return rows, rows * (min(_widest(parts), RUN * (BANKS * P // rows)) // rows), depth, 1


def _widest(parts: int):
    """Columns of the widest block, for operands of so many parts."""
    return COLS if parts <= 3 else COLS_OF_MANY


def _share(extent: int, most: int):
    """The smallest multiple of 128 that divides an extent into as few parts as ``most`` does."""
    parts = (extent + most - 1) // most
    return ((extent + parts - 1) // parts + P - 1) // P * P


def items_of(K: int, depth: int):
    """(rows of the contraction index, items a block, whether they add to what is in HBM) of full and of last items."""
    whole, rest = K // (depth * P), K % (depth * P)
    kinds = []
    if whole > 0:
        kinds.append((depth * P, whole, False))
    if rest > 0:
        kinds.append((rest, 1, whole > 0))
    return kinds


def product_kinds(M: int, N: int, rows: int, cols: int):
    """(m, n, diagonal, blocks) of the blocks of a product [M, N]."""
    kinds = []
    for m in blocks_of(M, rows):
        for n in blocks_of(N, cols):
            kinds.append((m[0], n[0], -1, m[1] * n[1]))
    return kinds


def triangle_kinds(n: int, rows: int, cols: int):
    """(m, n, diagonal, blocks) of the blocks of a lower triangle [n, n]; cols is a multiple of rows.

    A row block has full blocks left of the diagonal, and one that ends at the diagonal.
    """
    rest = n % rows
    wide = cols // rows
    full = n // rows
    kinds = []
    left = 0
    for i in range(full):
        left = left + i // wide
    if left > 0:
        kinds.append((rows, cols, -1, left))
    for turn in range(min(wide, full)):
        kinds.append((rows, (turn + 1) * rows, turn * rows, (full - turn + wide - 1) // wide))
    if rest > 0:
        if full // wide > 0:
            kinds.append((rest, cols, -1, full // wide))
        start = full % wide * rows
        kinds.append((rest, start + rest, start, 1))
    return kinds


def _product_places(M: int, N: int, rows: int, cols: int) -> list[np.ndarray]:
    """(first row, first column) of every block, by the kinds of `product_kinds`."""
    places = []
    for m, rows_of_kind, m0 in blocks_of(M, rows):
        for n, cols_of_kind, n0 in blocks_of(N, cols):
            i, j = np.indices((rows_of_kind, cols_of_kind)).reshape(2, -1)
            places.append(np.stack((m0 + m * i, n0 + n * j), axis=1))
    return places


def _triangle_places(n: int, rows: int, cols: int) -> list[np.ndarray]:
    """(first row, first column) of every block, by the kinds of `triangle_kinds`."""
    wide, full = cols // rows, n // rows
    starts = [(i, j) for i in range(full + (n % rows > 0)) for j in range(i // wide + 1)]
    places = []
    for m, _, diagonal, _ in triangle_kinds(n, rows, cols):
        chosen = [
            (i * rows, j * cols)
            for i, j in starts
            if min(rows, n - i * rows) == m
            and (j < i // wide if diagonal < 0 else j == i // wide and i % wide * rows == diagonal)
        ]
        places.append(np.array(chosen))
    return places


def _list(places: list[np.ndarray], extents: tuple[int, ...], depth: int, scale: tuple[float, float]):
    """Items and factors of products [K, M].T @ [K, N]; extents: number of products, M, N, K."""
    Z, M, N, K = extents
    alpha, beta = scale
    items, factors = [], []
    for blocks in places:
        for rest, (k, each, resumed) in enumerate(items_of(K, depth)):
            z, block, x = np.indices((Z, len(blocks), each)).reshape(3, -1)
            row, column = blocks[block].T
            k0 = x * k if rest == 0 else K - k
            items.append(
                np.stack((z * K * M + k0 * M + row, z * K * N + k0 * N + column, z * M * N + row * N + column), axis=1)
            )
            of_item = np.empty((len(x), FACTORS), np.float32)
            of_item[:, 0], of_item[:, 1], of_item[:, 2] = x > 0, alpha, 1.0 if resumed else beta
            factors.append(of_item)
    return np.concatenate(items).astype(np.int32), np.concatenate(factors)


def product_list(
    extents: tuple[int, int, int, int], sizes: tuple[int, int, int, int], scale: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Items and factors of alpha left.T @ right + beta c.

    extents: number of products, M, N, K; sizes: as `block_sizes` returns them; scale: alpha, beta.
    """
    rows, cols, depth, _ = sizes
    return _list(_product_places(*extents[1:3], rows, cols), extents, depth, scale)


def triangle_list(
    n: int, K: int, sizes: tuple[int, int, int, int], scale: tuple[float, float]
) -> tuple[np.ndarray, np.ndarray]:
    """Items and factors of the lower triangle of alpha left.T @ left + beta c, [n, n]; arguments as `product_list`."""
    rows, cols, depth, _ = sizes
    return _list(_triangle_places(n, rows, cols), (1, n, n, K), depth, scale)
