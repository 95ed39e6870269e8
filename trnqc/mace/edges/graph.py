"""The edges of a structure as arrays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

# Largest number of edges of a block: a multiple of the rows of all tiles and of all numbers of lanes up to 16. The
# weights of 48 edges of a layer with 1280 of them, and their slopes, take 0.5 MB in float32.
BLOCK = 48


@dataclass(frozen=True, eq=False)
class SortedEdges:
    """The edges of a structure, int64 [E], sorted by receiver.

    The edges of node n are starts[n] up to, but not including, starts[n + 1]. `starts` is int64 [R + 1]: nodes from R
    on send only, such as copies of atoms that another process computes. Vectors, float64 [E, 3], go from sender to
    receiver in Angstrom; `elements`, int64 [N], are the numbers of the nodes' elements in the model.
    """

    starts: np.ndarray
    senders: np.ndarray
    receivers: np.ndarray
    vectors: np.ndarray
    elements: np.ndarray

    @property
    def count(self) -> int:
        return len(self.senders)

    @property
    def nodes(self) -> int:
        return len(self.elements)

    @property
    def receiving(self) -> int:
        """Number of nodes that receive, R."""
        return len(self.starts) - 1

    @property
    def rows(self) -> int:
        """Number of rows of arrays of edges. Programs read whole blocks, and write whole vectors."""
        return self.count + BLOCK
