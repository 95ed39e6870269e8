"""Graphs whose edges are PyTorch tensors on a GPU, sorted and divided into segments there.

Nothing is copied to the host, and nothing waits for the device. Sizes of arrays and launches therefore depend on the
numbers of nodes and edges only, and segments and sums that are not needed are idle: their results go to an unused row.
The same work can be captured in a CUDA graph and replayed with other edges.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from trnqc.cg.cuda import segments
from trnqc.cg.cuda.segments import Ranges, Segments

# Nodes from which there are enough segments to keep a GPU busy, so that only nodes with unusually many edges are cut.
MANY_NODES = 1 << 13
# Edges of a segment relative to those of an average node, if there are many nodes.
OUTLIER = 4
# Number of recent edge lists that are kept with their segments. The layers of a model share one, sorted by both ends.
KEPT = 4


def is_capturing() -> bool:
    """Return whether PyTorch's current stream is captured in a CUDA graph."""
    torch = sys.modules.get("torch")
    try:
        return torch is not None and bool(torch.cuda.is_current_stream_capturing())
    except RuntimeError:  # PyTorch was built without CUDA.
        return False


@dataclass(frozen=True, eq=False)
class DeviceGraph:
    """A directed graph with int64 tensors [E] of receivers and senders, as `trnqc.cg.problem.graph.EdgeGraph`.

    Node numbers are checked on the device: one out of range is a device-side assertion, as for PyTorch's own indexing.
    """

    rows: Any
    cols: Any
    n_nodes: int

    @property
    def n_edges(self) -> int:
        return len(self.rows)

    def segments(self, by: str) -> Segments:
        """Return the segments of the edges, sorted by "receiver" or "sender".

        The segments of the last KEPT edge lists are kept for tensors in the same memory until somebody writes to them:
        each layer of a model takes ``edge_index[0]`` anew. While a CUDA graph is captured they are computed anew,
        because replays read the edges anew. So are those of inference tensors, because PyTorch does not count what is
        written to these.
        """
        import torch

        ends = (self.rows, self.cols) if by == "receiver" else (self.cols, self.rows)
        if is_capturing() or any(t.is_inference() for t in ends):
            return device_segments(*ends, self.n_nodes)
        stream = torch.cuda.current_stream(self.rows.device).cuda_stream
        key = (*((t.device, t.data_ptr(), t.stride(), len(t), t._version) for t in ends), self.n_nodes, stream)
        for n, (known, _, parts) in enumerate(_kept):
            if known == key:
                _kept.append(_kept.pop(n))
                return parts
        parts = device_segments(*ends, self.n_nodes)
        _kept[:] = [*_kept[1 - KEPT :], (key, ends, parts)]
        return parts


# With the edges, so that no other tensor has their memory.
_kept: list[tuple[Any, tuple[Any, Any], Segments]] = []


def longest_segment(n_nodes: int, n_edges: int) -> int:
    """Return the largest number of edges of a segment."""
    if n_nodes < MANY_NODES:
        return segments.LONGEST
    return max(segments.LONGEST, OUTLIER * -(-n_edges // n_nodes))


def require_numbers(tensor: Any, count: int, what: str) -> None:
    """Assert on the device that a tensor has no other numbers than 0 to count - 1."""
    import torch

    torch._assert_async(((tensor >= 0) & (tensor < count)).all(), f"expected {what} 0 .. {count - 1}")


def device_segments(
    near: Any, far: Any, n_nodes: int, longest: int | None = None, what: str = "edges between the nodes"
) -> Segments:
    """Return the segments of edges, sorted by `near`, with at most `longest` edges each.

    Messages call the edges `what`. Of E edges, a node of d edges has max(1, ceil(d / longest)) segments. Hence there
    are at most n_nodes + E // longest segments, at most E // (longest + 1) of the nodes have several, and at most the
    sum of both numbers of extra rows.
    """
    import torch

    n_edges = len(near)
    longest = longest_segment(n_nodes, n_edges) if longest is None else longest
    ends = torch.stack((near, far))
    require_numbers(ends, n_nodes, what)

    def numbers(count: int) -> Any:
        return torch.arange(count, device=near.device)

    order = torch.argsort(near, stable=True)
    starts = torch.searchsorted(near[order], numbers(n_nodes + 1))
    pieces = torch.clamp((starts[1:] - starts[:-1] + (longest - 1)) // longest, min=1)
    stops = torch.cumsum(pieces, 0)
    most, most_cut = n_nodes + n_edges // longest, min(n_nodes, n_edges // (longest + 1))
    unused = n_nodes + n_edges // longest + most_cut
    number = numbers(most)
    # Segments beyond the last node are idle: they have no edges, and the unused row.
    node = torch.searchsorted(stops, number, right=True)
    idle, node = node >= n_nodes, torch.clamp(node, max=n_nodes - 1)
    begin = starts[node] + (number - (stops - pieces)[node]) * longest
    end = torch.minimum(begin + longest, starts[1:][node])
    is_cut = (pieces[node] > 1) & ~idle
    target = torch.where(is_cut, n_nodes - 1 + torch.cumsum(is_cut, 0), node)
    if most > n_nodes:
        target = torch.where(idle, unused, target)
        begin, end = torch.where(idle, 0, begin), torch.where(idle, 0, end)
    cut = _cut_rows(pieces, most_cut, unused, numbers)
    return Segments(begin, end, node, target, order, far[order], unused + (most > n_nodes), cut)


def _cut_rows(pieces: Any, most: int, unused: int, numbers: Any) -> Ranges:
    """Return the ranges of rows of nodes with several pieces: `most` ranges, some of which may be of the unused row."""
    import torch

    if not most:
        nothing = numbers(0)
        return Ranges(nothing, nothing, nothing)
    is_cut = pieces > 1
    # Node of each range: the first node by which so many nodes with several pieces have been counted.
    node = torch.searchsorted(torch.cumsum(is_cut, 0), numbers(most) + 1)
    idle, node = node >= len(pieces), torch.clamp(node, max=len(pieces) - 1)
    stop = len(pieces) + torch.cumsum(torch.where(is_cut, pieces, 0), 0)[node]
    begin, end = stop - pieces[node], stop
    return Ranges(torch.where(idle, unused, begin), torch.where(idle, unused + 1, end), torch.where(idle, unused, node))
