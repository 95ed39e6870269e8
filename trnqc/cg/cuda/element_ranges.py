"""Nodes sorted by element and divided into ranges, the segments of `trnqc.cg.cuda.segments` with nodes for edges.

The number of ranges bounds the rows of gradients that are stored before they are summed. It depends on the numbers of
nodes and elements only, so that nothing is copied to the host.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.cg.cuda.device_graph import device_segments, require_numbers
from trnqc.cg.cuda.segments import Segments, segments
from trnqc.cg.problem.graph import Graph
from trnqc.errors import OperandError

# Number of ranges, for each of which a GPU has a warp for every block of channels, and the fewest nodes of a range.
RANGES, FEWEST = 256, 8
# What is numbered, in messages of the device.
WHAT = "elements with the numbers"
# Bytes of the rows of all ranges, but not of those of the elements.
KEPT = 1 << 28


def ranges_of(elements: Any, count: int, row: int) -> Segments:
    """Return the ranges of nodes.

    Parameters
    ----------
    elements : array
        int64 [nodes], the element of each node; an array of NumPy or PyTorch. Numbers out of range are errors, as in
        `check_elements`.
    count : int
        Number of elements.
    row : int
        Bytes of a row of gradients.
    """
    longest = longest_range(len(elements), row)
    if isinstance(elements, np.ndarray):
        check_elements(elements, count)
        return segments(Graph(elements, elements, count).by_receiver, longest)
    return device_segments(elements, elements, count, longest, what=WHAT)


def longest_range(nodes: int, row: int) -> int:
    """Return the largest number of nodes of a range."""
    return max(FEWEST, -(-nodes // max(1, min(RANGES, KEPT // max(1, row)))))


def check_elements(elements: Any, count: int) -> None:
    """Require numbers from 0 to count - 1: OperandError for an array, an assertion on the device for a tensor."""
    if not isinstance(elements, np.ndarray):
        require_numbers(elements, count, WHAT)
    elif (outside := (elements < 0) | (elements >= count)).any():
        raise OperandError(f"elements: expected numbers from 0 to {count - 1}, found {elements[outside][0]}")
