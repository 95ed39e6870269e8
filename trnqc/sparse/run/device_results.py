"""A sparse result on a device: the part of it that each block appends to, and the joined parts on the host.

rooms of the parts -> arrays in which they follow one another -> kernels append -> gaps closed on the device -> host
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.gen import Array
from trnqc.jit import NUMPY, Recipe
from trnqc.jit.device import Device, DeviceArray
from trnqc.sparse.lower.append import Appended
from trnqc.sparse.lower.concurrent import EDGES
from trnqc.sparse.lower.gather import FROM, TO, gather
from trnqc.sparse.lower.pieces import Piece
from trnqc.sparse.lower.workspace import STATUS
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.run.results import ResultPart, shares_of
from trnqc.sparse.tensors.storage import SparseTensor

# Most entries of a sparse result for which there is memory in the first run.
LARGEST_FIRST = 2**26
# Factor by which the part of a block grows that was too small, and the number of entries beyond which it does not.
GROWTH, MOST = 4, 2**36


@dataclass(frozen=True, eq=False)
class Rooms:
    """The numbers of entries for which each part has memory, and those that are enough for any operands."""

    now: np.ndarray
    enough: np.ndarray

    @classmethod
    def first(cls, nest: Nest, operands: Sequence[SparseTensor], piece: Piece, edges: np.ndarray, free: int) -> Rooms:
        """Return the rooms of the first run: in proportion to the elements of operands, and for one more row in each.

        Parameters
        ----------
        nest, operands, piece
            The nest, its packed operands, and the function that appends.
        edges
            The first turn of each part, and the end of the last one.
        free
            Entries for which there is memory.
        """
        shape = nest.network.shape(nest.formats[-1].order)
        bound, shares = shares_of(nest, operands, piece, edges)
        turns = np.diff(edges) if piece.divisible else np.full(len(shares), shape[0])
        # Floating-point numbers do not overflow, and are exact below MOST.
        enough = np.maximum(1, np.minimum(turns * float(math.prod(shape[1:])), MOST)).astype(np.int64)
        largest = max(1, min(free, LARGEST_FIRST))
        # A row is appended only if the whole of it fits, see `Appended.add_row`.
        spare = min(shape[-1], largest // len(shares))
        now = np.ceil(min(bound, largest) * shares).astype(np.int64) + spare
        return cls(np.clip(now, 1, enough), enough)

    def grown(self, full: np.ndarray) -> Rooms:
        """Return the rooms in which the parts that were full are larger. Raises MemoryLimit beyond MOST entries."""
        if (full & (self.now >= self.enough)).any():
            raise MemoryLimit(f"a block of a device appends more than {MOST} entries: ask for a dense result")
        return Rooms(np.where(full, np.minimum(GROWTH * self.now, self.enough), self.now), self.enough)


@dataclass(eq=False)
class DeviceParts:
    """The parts of a sparse result on a device, one for each block.

    Parameters
    ----------
    device
        The device.
    appended
        The levels of the result.
    rooms
        The entries for which each part has memory, in every level.
    parents
        The number of values of the indices of dense levels.
    """

    device: Device
    appended: Appended
    rooms: np.ndarray
    parents: int
    arrays: dict[str, DeviceArray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.edges = np.concatenate([[0], np.cumsum(self.rooms)])

    def reserve(self) -> None:
        """Allocate the arrays by their names in kernels. Raises MemoryLimit; `release` frees those that were made."""
        appended, count = self.appended, len(self.rooms)
        sizes = {array: int(self.edges[-1]) for array, _ in appended.of_entries}
        if appended.first:
            sizes[appended.counts(appended.first)] = max(1, self.parents)
        sizes |= {appended.used: count * (appended.last + 1), STATUS: count * (appended.tensor + 1)}
        for array, size in sizes.items():
            self.arrays[array.name] = self.device.zeros(size, dtype=NUMPY[array.dtype])
        self.arrays[EDGES.name] = self.device.upload(self.edges)

    def release(self) -> None:
        """Free the memory of all arrays."""
        self.device.release(*self.arrays.values())
        self.arrays = {}

    def full(self) -> np.ndarray:
        """Return whether each part was too small."""
        status = self.device.download(self.arrays[STATUS.name]).reshape(len(self.rooms), -1)
        return status[:, self.appended.tensor] != 0

    def joined(self, lanes: int) -> ResultPart:
        """Return the result as one part on the host. The gaps between parts are closed on the device, by blocks."""
        appended, first = self.appended, self.appended.first
        used = self.device.download(self.arrays[appended.used.name]).reshape(len(self.rooms), -1)
        arguments = {appended.used.name: used.sum(axis=0)}
        for array, level in appended.of_entries:
            arguments[array.name] = self._gathered(array, used[:, level], lanes)
        if first:
            counts = appended.counts(first).name
            arguments[counts] = self.device.download(self.arrays[counts])[: self.parents]
        return ResultPart(appended, arguments)

    def _gathered(self, array: Array, counts: np.ndarray, lanes: int) -> np.ndarray:
        """Return the first `counts` elements of each part of an array, joined."""
        edges = np.concatenate([[0], np.cumsum(counts)])
        if not edges[-1]:
            return np.zeros(0, NUMPY[array.dtype])
        kernel = self.device.build(Recipe.of(gather(array.dtype, lanes), name="sparse"), lanes)
        held: list[DeviceArray] = []
        try:
            held.append(self.device.zeros(int(edges[-1]), dtype=NUMPY[array.dtype]))
            held += self.device.upload_all([edges])
            own = {"source": self.arrays[array.name], "target": held[0], TO.name: held[1]}
            self.device.launch(kernel, len(counts), own | {FROM.name: self.arrays[EDGES.name]})
            return self.device.download(held[0])
        finally:
            self.device.release(*held)
