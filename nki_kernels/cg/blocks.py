"""The columns of the weighted features of a block of paths, as plain integers that a kernel unrolls.

A term is one path with one channel of y. Its products w x have one column for each component i of x and each channel u,
with the channel fastest. The columns of all terms follow one another and are the columns of the sums over edges in
PSUM.

    term    (y0, dy, x0, xstep, dx, w0, wstep, width, result, coupling)
            y0, dy       first column and number of the components of y
            x0 + i xstep + u   column of component i < dx and channel u < width of x
            w0 + u wstep       column of the weight of channel u; w0 = -1 for a path without weights
            result       number of the result to which the term adds
            coupling     number of the coupling matrix of component i = 0; those of the others follow
    result  (z0, zstep, dz, width): z0 + k zstep + u is the column of component k < dz and channel u of z

Terms are sorted by y0. All functions are inlined when a kernel is compiled.
"""

from __future__ import annotations

P = 128  # partitions: edges of a tile
RUN = 512  # fp32 columns of a PSUM bank
BANKS = 6  # PSUM banks for sums over edges; two more are left for results or transposes
COLUMNS = BANKS * RUN  # most columns of a block
FIELDS = 4  # columns of a table for each tile of edges
SENDER_DEPTH = 2  # tiles of an item of the senders' table: half the edges of 128 senders with four neighbours each


def starts_of(terms):
    """The first column of each term, and the number of columns."""
    starts, column = [], 0
    for term in terms:
        starts = starts + [column]
        column = column + term[4] * term[7]
    return starts, column


def segments_of(terms):
    """(y0, dy, first, last) of each run of columns that belong to one channel of y and lie in one bank."""
    starts, count = starts_of(terms)
    segments = []
    for t in range(len(terms)):
        y0, dy = terms[t][0], terms[t][1]
        first, last = starts[t], count
        if t + 1 < len(terms):
            last = starts[t + 1]
        while first < last:
            end = min(last, first // RUN * RUN + RUN)
            joins = False
            if len(segments) > 0:
                before = segments[len(segments) - 1]
                joins = before[0] == y0 and before[2] // RUN == first // RUN
            if joins:
                segments = segments[: len(segments) - 1] + [(y0, dy, before[2], end)]
            else:
                segments = segments + [(y0, dy, first, end)]
            first = end
    return segments


def range_of(terms, kind: int):
    """The first column, and one after the last, that terms read of y (kind 0), x (1) or w (2); (0, 0) for none."""
    first, last = -1, 0
    for term in terms:
        y0, dy, x0, xstep, dx, w0, wstep, width = term[0:8]
        low, high = y0, y0 + dy
        if kind == 1:
            low, high = x0, x0 + (dx - 1) * xstep + width
        if kind == 2:
            low, high = w0, w0 + (width - 1) * wstep + 1
        if low >= 0:
            first = low if first < 0 else min(first, low)
            last = max(last, high)
    return max(first, 0), last
