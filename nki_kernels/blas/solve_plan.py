"""Panels of triangular systems, and their work lists.

n, m  --solve_sizes-->  rows of a panel, columns of a block
      --solve_list-->   places of inverses, items and factors      (see ``blas_trsm``)
"""

from __future__ import annotations

import numpy as np

from nki_kernels.blas.blocks import BANKS, RUN, P
from nki_kernels.blas.plan import COLS
from nki_kernels.cores import range_of_core
from nki_kernels.gemm_blocks import blocks_of

PANELS = (8 * P, 4 * P, 2 * P, P)
ROUNDS = 2  # times that the widest block of columns fills PSUM, so that both times share one load of the left operand
PADDING = 1.1  # how much larger than needed a matrix may become so that panels are larger


def _largest_panel(n: int, most: int) -> int:
    """The largest panel of at most so many rows that does not pad the matrix much."""
    tiles = padded(n, P)
    for rows in PANELS:
        if rows <= most and padded(n, rows) <= PADDING * tiles:
            return rows
    return P


def solve_sizes(n: int, m: int, parts: int = 1) -> tuple[int, int]:
    """Rows of a panel and columns of a block; parts: those of the operands.

    More than 512 rows are several panels, because half of V is zero. Operands of three parts have so many products that
    small panels pay, and so many bytes that SBUF holds one round of columns only. More than 512 columns are several
    blocks, so that operands are loaded ahead.
    """
    most, rounds = (max(4 * P, padded(n, P) // 2), ROUNDS) if parts < 3 else (4 * P, 1)
    panel = _largest_panel(n, most)
    return panel, min(m, max(RUN, m // 2 // RUN * RUN), COLS, rounds * RUN * (BANKS * P // panel))


def rounds_of(panel: int, cols: int) -> int:
    """Times that a block of so many rows and columns fills PSUM."""
    return -(-(panel // P * -(-cols // RUN)) // BANKS)


def is_ahead(count: int, cores: int) -> bool:
    """Whether operands are loaded one item ahead: if each core has several of these blocks of columns.

    Then no item reads what the item before it stores.
    """
    return count > cores


def padded(n: int, panel: int) -> int:
    """n rounded up to a multiple of the panel."""
    return -(-n // panel) * panel


def solve_list(n: int, m: int, panel: int, cols: int, cores: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The integer and fp32 arrays of a launch.

    Places [panels, 3] of diagonal blocks, of rows of L^T and of inverses; items [n, 3]; factors [n, 3]. n is a multiple
    of panel, and cores the number of cores of the launch, whose items follow one another for each width. Where operands
    are loaded ahead (`is_ahead`), the row of an item has the places of the next item's operands, and of its own result.
    """
    panels = n // panel
    k = np.arange(panels)
    places = np.stack((k * panel * panel, k * panel * n, n * n + k * panel), axis=1).astype(np.int32)
    items: list[tuple[int, int, int]] = []
    factors: list[tuple[float, float, float]] = []
    for width, count, start in blocks_of(m, cols):
        for core in range(cores):
            columns = [start + width * c for c in range(*range_of_core(count, core, cores))]
            first = len(items)
            for row in range(panels):
                _panel(items, factors, row, columns, (n, m, panel))
            if is_ahead(count, cores):
                items[first:] = _ahead(items[first:])
    return places, np.array(items, np.int32), np.array(factors, np.float32)


def _panel(
    items: list[tuple[int, int, int]],
    factors: list[tuple[float, float, float]],
    k: int,
    columns: list[int],
    sizes: tuple[int, int, int],
) -> None:
    """Append the items of panel k: sums of one block of columns, then the solution of the block before."""
    n, m, panel = sizes
    waiting = None
    for column in [*columns, None]:
        if column is not None:
            for j in range(k):
                items.append((j * panel * n + k * panel, j * panel * m + column, k * panel * m + column))
                factors.append((float(j > 0), -1.0, 1.0))
        if waiting is not None:
            place = k * panel * m + waiting
            items.append((n * n + k * panel, place, place))
            factors.append((0.0, 1.0, 0.0))
        waiting = column


def _ahead(items: list[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Rows that have the operands of the next item, and the result of this one; the last row repeats its operands."""
    return [(*later[:2], own[2]) for own, later in zip(items, [*items[1:], items[-1]])]


def factor_sizes(n: int) -> tuple[int, int]:
    """Rows of a panel of a factorisation, for as few launches as possible, and columns of a block."""
    panel = _largest_panel(n, padded(n, P))
    return panel, min(RUN, panel)


def panel_list(n: int, k: int, panel: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Items [x, 3], factors [x, 3] and limits [1, 5] of panel k of a factorisation; n is a multiple of panel.

    Limits are the numbers of the first and last + 1 item of the sums and of the solutions, and the first column of the
    diagonal block. The lists of all panels have the same length, so that they share a program.
    """
    items, factors = [], []
    for column in range(k * panel, n, cols):
        for j in range(k):
            items.append((j * panel * n + k * panel, j * panel * n + column, column))
            factors.append((float(j > 0), -1.0, 1.0))
    sums = len(items)
    for column in range((k + 1) * panel, n, cols):
        items.append((0, column, column))
        factors.append((0.0, 1.0, 0.0))
    limits = (0, sums, sums, len(items), k * panel)
    panels = n // panel
    longest = max(x * (panels - x) * (panel // cols) + (panels - x - 1) * (panel // cols) for x in range(panels))
    rest = max(1, longest) - len(items)
    items += [(0, 0, 0)] * rest
    factors += [(0.0, 0.0, 0.0)] * rest
    return np.array(items, np.int32), np.array(factors, np.float32), np.array([limits], np.int32)
