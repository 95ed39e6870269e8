"""Edges divided into windows of receivers and tiles of 128 edges, with the sizes that a cost model prefers.

A window has ``window`` consecutive receivers. Its edges fill tiles of 128, and an item of the kernels' table has
``depth`` tiles of one window. A window without edges has one item, which writes zeros. Large windows fill their tiles
better, up to the 128 partitions that their results may take; deep items couple the sums over edges less often, but
leave more tiles of small windows empty.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass

import numpy as np

from nki_kernels.cg.blocks import FIELDS, P, range_of, starts_of
from nki_kernels.cg.memory import fits, widest_window
from trnqc.sim.timeline.costs import constants_for

DEPTHS = (1, 2, 3, 4, 6, 8, 12, 16)  # tiles of an item that are tried; the program is unrolled over them


@dataclass(frozen=True, eq=False)
class Sorted:
    """Edges sorted by receiver.

    Parameters
    ----------
    edges : numpy.ndarray
        [E], the number of each edge in the list of edges.
    starts : numpy.ndarray
        [V + 1], the position of the first edge of each receiver, and E at the end.
    senders : numpy.ndarray
        [E], the sender of each edge.
    """

    edges: np.ndarray
    starts: np.ndarray
    senders: np.ndarray


@dataclass(frozen=True, eq=False)
class Windows:
    """The table of a launch.

    Parameters
    ----------
    table : numpy.ndarray
        int32 [items, 128, 4 depth + 2], as ``edges`` describes it. The number of items is rounded up, so that one
        compiled program serves graphs of similar size.
    bounds : numpy.ndarray
        int32 [cores, 2], first and last items of each core.
    window, depth : int
        Receivers of a window, and tiles of an item.
    nodes : int
        Receivers of all windows.
    """

    table: np.ndarray
    bounds: np.ndarray
    window: int
    depth: int
    nodes: int


def windows_of(edges: Sorted, window: int, depth: int, cores: int = 1) -> Windows:
    """Divide edges into windows of receivers, and these among cores, which get equally many items (`_item_rows`)."""
    first = np.minimum(np.arange(0, len(edges.starts) - 1 + window, window), len(edges.starts) - 1)
    count = -(-(len(edges.starts) - 1) // window)
    begin = edges.starts[first[: count + 1]]
    items = np.maximum(1, -(-np.diff(begin) // (P * depth)))
    rows, cuts, bounds = _item_rows(items, cores)
    fields = np.zeros((_rounded(int(bounds.max())), P, FIELDS, depth), np.int32)
    fields[:, :, 2] = len(edges.edges)
    fields[:, :, 3] = window
    receiver = np.repeat(np.arange(len(edges.starts) - 1), np.diff(edges.starts))
    rank = np.arange(len(receiver)) - begin[receiver // window]
    at = rows[receiver // window] + rank // (P * depth), rank % P, rank // P % depth
    for f, values in enumerate((edges.senders, edges.edges, edges.edges, receiver % window)):
        fields[at[0], at[1], f, at[2]] = values
    table = np.zeros((len(fields), P, FIELDS * depth + 2), np.int32)
    table[:, :, :-2] = fields.reshape(len(fields), P, -1)
    for (low, _), begin in zip(bounds, cuts[:-1], strict=False):
        table[low : rows[begin], :, -1] = begin * window  # of items that only make the number up
    of_window = np.repeat(np.arange(count), items)
    every = np.arange(len(of_window)) + (rows - np.cumsum(items) + items)[of_window]
    table[every, :, -2] = 1
    table[rows, :, -2] = 0
    table[every, :, -1] = (of_window * window)[:, None]
    return Windows(table, bounds, window, depth, count * window)


def _item_rows(items: np.ndarray, cores: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The row of the first item of each window, the first window of each core and one after the last, and the bounds.

    Device loops must have the same trip count on all cores. A core that has fewer items therefore begins with items
    without edges. They write zeros to the rows of its first window, whose own items follow and begin their sums anew.
    Where there are fewer windows than cores, all cores have the same items.
    """
    count = len(items)
    if count < cores:
        ends = np.cumsum(items)
        return ends - items, np.array([0, count]), np.tile(np.array([0, ends[-1]], np.int32), (cores, 1))
    start = np.concatenate([[0], np.cumsum(items)])
    cuts = np.searchsorted(start, np.arange(cores + 1) * start[-1] / cores)
    cuts = np.clip(cuts, np.arange(cores + 1), count - cores + np.arange(cores + 1))
    longest = np.diff(start[cuts]).max()
    rows = np.empty(count, np.int64)
    for core, (begin, end) in enumerate(itertools.pairwise(cuts)):
        rows[begin:end] = start[begin:end] - start[end] + (core + 1) * longest
    bounds = np.stack([np.arange(cores), np.arange(cores) + 1], axis=1) * longest
    return rows, cuts, bounds.astype(np.int32)


def _rounded(items: int) -> int:
    """The next number with at most three significant bits, which is less than a quarter larger."""
    step = 1 << max(0, items.bit_length() - 3)
    return -(-items // step) * step


def choose(edges: Sorted, terms, results, backward: bool = False, target: str = "trn2") -> tuple[int, int]:
    """Return the window and the depth of least estimated time among those that fit the chip, or (1, 1) if none fits."""
    best = (float("inf"), 1, 1)
    for window in range(1, widest_window(terms, results, backward) + 1):
        begin = np.append(edges.starts[:-1:window], edges.starts[-1])
        tiles = np.maximum(1, -(-np.diff(begin) // P))
        of_tile, of_item = costs(terms, results, window, backward, target)
        for depth in (depth for depth in DEPTHS if fits(terms, results, window, depth, backward, target)):
            items = -(-tiles // depth)
            best = min(best, (float(items.sum()) * (depth * of_tile + of_item), window, depth))
    return best[1:]


def costs(terms, results, window: int, backward: bool, target: str) -> tuple[float, float]:
    """Estimated ns of a tile of edges and of the rest of an item: of the busiest unit, as if all overlapped.

    The constants are those of the modelled timeline.
    """
    c = constants_for(target)
    columns, width = starts_of(terms)[1], sum(result[2] * result[3] for result in results)
    read = [last - first for first, last in (range_of(terms, kind) for kind in range(3))]
    moved = sum(read) + (sum(read) if backward else 0)
    dma = 4 * P * moved / (c["dma_engines"] * c["dma_bytes_per_ns"])
    passes = c["fp32_passes"]
    harmonics = (4 if backward else 2) * read[0] * window
    # Products w x; backward also products with the gradients of both, their sums, and copies of transposes.
    elements = (7 if backward else 2) * columns + harmonics
    tensor = passes * columns * (2.5 if backward else 1)
    tile = max(dma, tensor / c["tensor_ghz"], elements / c["vector_ghz"])
    coupled = sum(term[4] * term[7] for term in terms)
    item = max(passes * coupled / c["tensor_ghz"], (columns / 2 + 2 * width / max(1, results[0][2])) / c["vector_ghz"])
    return tile, item + c["dma_start_ns"]
