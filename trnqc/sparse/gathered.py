"""Parts of a sparse result as they were appended, and the tensor that they make together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.jit.load import NAMES
from trnqc.sparse.append import CAPACITY, VALUES, Appended
from trnqc.sparse.nest import Format
from trnqc.sparse.storage import Compressed, Dense, Level, SparseTensor


@dataclass(frozen=True)
class Result:
    """Arrays of one part, by the names that they have in a program."""

    appended: Appended
    arguments: dict[str, Any]

    @classmethod
    def empty(cls, appended: Appended, capacity: int, prefix: np.ndarray) -> Result:
        """Room for `capacity` entries of every level. prefix: counts under the dense levels, common to all parts."""
        levels = range(appended.first, appended.last + 1)
        arguments: dict[str, Any] = {CAPACITY.attr: capacity, VALUES.name: np.empty(capacity)}
        arguments[appended.used.name] = np.zeros(appended.last + 1, np.int64)
        for level in levels:
            coordinates = appended.coordinates(level)
            arguments[coordinates.name] = np.empty(capacity, NAMES[coordinates.dtype])
            arguments[appended.counts(level).name] = prefix if level == appended.first else np.empty(capacity, np.int64)
        return cls(appended, arguments)

    def used(self, level: int) -> int:
        return int(self.arguments[self.appended.used.name][level])

    def entries(self, name: str, level: int) -> np.ndarray:
        return self.arguments[name][: self.used(level)]


def joined(shape: tuple[int, ...], modes: tuple[int, ...], stored: Format, parts: Sequence[Result]) -> SparseTensor:
    """The tensor of parts that follow one another. modes: of `shape`, outermost level first."""
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
            counts = _together([part.entries(name, level - 1) for part in parts])
        coordinates = [part.entries(appended.coordinates(level).name, level) for part in parts]
        levels.append(Compressed(np.concatenate([[0], np.cumsum(counts)]), _together(coordinates)))
    values = _together([part.entries(VALUES.name, appended.last) for part in parts])
    return SparseTensor(shape, modes, tuple(levels), values)


def _together(parts: Sequence[np.ndarray]) -> np.ndarray:
    """The parts joined; one that fills most of its room is taken as it is, a smaller one copied to free that."""
    if len(parts) == 1 and isinstance(parts[0].base, np.ndarray) and 2 * parts[0].size > parts[0].base.size:
        return parts[0]
    return np.concatenate(parts)
