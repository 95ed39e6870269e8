"""The bytes of SBUF that a launch takes, and the windows that fit the chip.

The sums follow the tiles that ``conv``, ``gradients``, ``edges`` and ``sender_sums`` allocate.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass

from nki_kernels.cg.blocks import COLUMNS, FIELDS, RUN, SENDER_DEPTH, P, range_of, segments_of, starts_of
from nki_kernels.cg.edges import BUFFERS
from trnqc.sim.machine.targets import TARGETS

ITEMSIZE = 4  # bytes of an fp32 number


@dataclass(frozen=True)
class Extents:
    """Numbers of columns of a block.

    Parameters
    ----------
    y, x, w
        From the first to the last column that the terms read, or 1 if they read none.
    products
        Products w x of all terms.
    results
        Channels of all results.
    matrices
        Coupling matrices.
    transposes
        Transposed tiles of the gradients.
    """

    y: int
    x: int
    w: int
    products: int
    results: int
    matrices: int
    transposes: int


@functools.cache
def _extents(terms, results) -> Extents:
    y, x, w = (max(1, last - first) for first, last in (range_of(terms, kind) for kind in range(3)))
    segments = segments_of(terms)
    chunks = sum(-(-(last - first) // P) for _, _, first, last in segments)
    channels = len({segment[0] for segment in segments})
    return Extents(
        y=y,
        x=x,
        w=w,
        products=starts_of(terms)[1],
        results=sum(result[3] for result in results),
        matrices=max(term[9] + term[4] for term in terms),
        transposes=chunks + channels + 4,  # of D, of the masked harmonics, and four of w x
    )


def widest_window(terms, results, backward: bool) -> int:
    """The most receivers of a window.

    Their results must fit the partitions, and the gradients of their harmonics one bank of PSUM. The number is 0 if a
    single receiver does not fit.
    """
    most = P // max([term[1] for term in terms] + [result[2] for result in results])
    return min(most, RUN // _extents(terms, results).y) if backward else most


def sbuf_bytes(terms, results, window: int, depth: int, backward: bool) -> int:
    """Bytes of SBUF per partition that a launch takes.

    Parameters
    ----------
    terms, results
        The block, as in ``blocks``.
    window, depth
        Receivers of a window, and tiles of an item.
    backward
        Whether the launch computes the gradients instead of the convolution.
    """
    block = _extents(terms, results)
    item = (FIELDS + 1) * depth + 3 + window
    operands = block.y + block.x + block.w
    tiles = BUFFERS * operands + 2 * (window + block.y * window + block.products)
    columns = item + tiles + block.matrices * P + block.results
    if not backward:
        return ITEMSIZE * (columns + block.products + 2)
    columns += 3 * block.products + P * block.transposes + block.y * window + 2 * operands + 4
    senders = (FIELDS + 1) * SENDER_DEPTH + 3 + 3 * P + (BUFFERS + 1) * min(block.x, COLUMNS) + 4
    return ITEMSIZE * max(columns, senders)


def usable_bytes(target: str) -> int:
    """Bytes of SBUF per partition that kernels may use."""
    return TARGETS[target].sbuf_usable


def fits(terms, results, window: int, depth: int, backward: bool, target: str) -> bool:
    """Whether a launch with these windows fits the chip."""
    if window > widest_window(terms, results, backward):
        return False
    return sbuf_bytes(terms, results, window, depth, backward) <= usable_bytes(target)
