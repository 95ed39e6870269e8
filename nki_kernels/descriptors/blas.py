"""Common parts of the descriptors of `trnqc.blas`: the sizes of blocks as knobs, and their rules.

The knobs are the rows of a block, its columns (for a triangle, the number of blocks side by side), the number of items
into which the contraction index is divided, and the items of one pass of a loop.
"""

from __future__ import annotations

from nki_kernels.blas import plan
from nki_kernels.blas.blocks import BANKS, CHUNK, RUN, STAGES
from nki_kernels.descriptors.descriptor import (
    ITEMSIZE,
    P,
    Values,
    ceil,
    ladder,
    require,
    require_sbuf,
    require_unrolled,
)

LONGEST_ITEM = 64
"""Contraction blocks of 128 of the longest item that is tried; longer items would only make the program larger."""


def items_ladder(K: int) -> list[int]:
    """Numbers of items into which a contraction index of length K is divided."""
    nk = ceil(K, P)
    return [items for items in ladder(nk) if ceil(nk, items) <= LONGEST_ITEM]


def depth_of(items: int, K: int) -> int:
    """Contraction blocks of 128 of an item, if there are so many items."""
    nk = ceil(K, P)
    depth = ceil(nk, items)
    require(ceil(nk, depth) == items, f"{nk} blocks of K make no {items} items")
    return depth


def require_block(constants: Values, M: int, N: int, precision: str, target: str) -> None:
    """Raise Infeasible if a block does not fit PSUM, SBUF or the program."""
    rows, cols = min(constants["rows"], M), min(constants["cols"], N)
    tiles = ceil(rows, P) * ceil(cols, RUN)
    require(tiles <= BANKS, f"PSUM: {tiles} banks are needed by a block, {BANKS} exist")
    require_unrolled(tiles * constants["depth"] * constants.get("group", 1))
    operands = 2 * CHUNK * (rows + cols) * ITEMSIZE[precision]
    require_sbuf(operands + (2 * tiles + STAGES) * RUN * 4 + 2048, target)


def sizes_of(constants: Values) -> tuple[int, int, int, int]:
    """The constants of a launch as the functions of `nki_kernels.blas.plan` take them."""
    return constants["rows"], constants["cols"], constants["depth"], constants.get("group", 1)


def step_and_rest(extent: int, step: int) -> int:
    """The extent of one full step and the remainder, or the whole extent if that is less."""
    return min(extent, step + extent % step)


def default_items(K: int, depth: int) -> int:
    """The number of items of the default, for its point."""
    return ceil(ceil(K, P), depth)


ROWS = (P, 2 * P, 3 * P, plan.ROWS)
"""Values of the knob ``rows``."""
