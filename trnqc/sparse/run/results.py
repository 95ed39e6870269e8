"""Parts of a sparse result as they were appended, and the tensor that they make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np

from trnqc.jit import NUMPY
from trnqc.sparse.lower.append import CAPACITY, VALUES, Appended
from trnqc.sparse.tensors.levels import Compressed, Dense, Level
from trnqc.sparse.tensors.storage import SparseTensor


@dataclass(frozen=True)
class ResultPart:
    """The arrays of one part, by their names in the program."""

    appended: Appended
    arguments: dict[str, Any]

    @classmethod
    def empty(cls, appended: Appended, capacities: Sequence[int], prefix: np.ndarray) -> list[ResultPart]:
        """Parts with room for so many entries of every level, one behind the other in memory.

        prefix: the counts under the dense levels, which all parts share.
        """
        edges = np.concatenate([[0], np.cumsum(capacities)])
        whole: dict[str, np.ndarray] = {VALUES.name: np.empty(edges[-1])}
        for level in range(appended.first, appended.last + 1):
            coordinates = appended.coordinates(level)
            whole[coordinates.name] = np.empty(edges[-1], NUMPY[coordinates.dtype])
            if level > appended.first:
                whole[appended.counts(level).name] = np.empty(edges[-1], np.int64)
        parts = []
        for begin, end in pairwise(edges):
            own: dict[str, Any] = {name: array[begin:end] for name, array in whole.items()}
            own |= {appended.counts(appended.first).name: prefix, CAPACITY.attr: int(end - begin)}
            parts.append(cls(appended, own | {appended.used.name: np.zeros(appended.last + 1, np.int64)}))
        return parts

    def used(self, level: int) -> int:
        return int(self.arguments[self.appended.used.name][level])

    def entries(self, name: str, level: int) -> np.ndarray:
        """The part of an array that the entries of a level fill."""
        return self.arguments[name][: self.used(level)]


def joined(shape: tuple[int, ...], modes: tuple[int, ...], parts: Sequence[ResultPart]) -> SparseTensor:
    """The tensor of parts that follow one another. modes: those of `shape`, outermost level first."""
    appended = parts[0].appended
    levels: list[Level] = []
    for level, mode in enumerate(modes):
        if level < appended.first:
            levels.append(Dense(shape[mode]))
            continue
        name = appended.counts(level).name
        if level == 0:
            counts = np.array([sum(part.used(0) for part in parts)])
        elif level == appended.first:
            counts = parts[0].arguments[name]
        else:
            counts = _concatenated([part.entries(name, level - 1) for part in parts])
        coordinates = [part.entries(appended.coordinates(level).name, level) for part in parts]
        levels.append(Compressed(np.concatenate([[0], np.cumsum(counts)]), _concatenated(coordinates)))
    values = _concatenated([part.entries(VALUES.name, appended.last) for part in parts])
    return SparseTensor(shape, modes, tuple(levels), values)


def _concatenated(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts joined: as they lie if there is no gap and they fill most of their memory, else copied to free that."""
    room, size = parts[0].base, sum(part.size for part in parts)
    ends = [part.ctypes.data + part.nbytes for part in parts]
    gapless = all(end == part.ctypes.data for end, part in zip(ends, parts[1:]))
    if gapless and isinstance(room, np.ndarray) and 2 * size > room.size:
        return room[:size]
    return np.concatenate(parts)
