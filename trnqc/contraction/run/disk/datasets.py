"""HDF5 datasets as operands and results of a schedule, and the files in which temporaries and results lie."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trnqc.contraction.memory.disk_passes import DiskPass
from trnqc.contraction.run.operands import require_finite
from trnqc.host.files import replacing

# Largest number of elements that are moved at once between a dataset and a tile with another order of axes.
PIECE = 2**16


# Bytes of HDF5's caches of chunks and of metadata. Scattered elements of a chunk up to this size are written at once.
CACHE = 2**18


# Name of the dataset in a file that holds one result.
RESULT = "result"


class StoredDataset:
    """A dataset as a function operand of a schedule. Its tiles are read straight into the arena, piece by piece."""

    def __init__(self, dataset: h5py.Dataset, name: str, check_finite: bool = False) -> None:
        self.dataset, self.name, self.check_finite = dataset, name, check_finite

    def __call__(self, *cuts: slice) -> np.ndarray:
        block = np.empty([cut.stop - cut.start for cut in cuts], self.dataset.dtype)
        self.into(block, cuts)
        return block

    def into(self, target: np.ndarray, cuts: Sequence[slice]) -> None:
        """Read dataset[cuts] into the target."""
        for here, there in pieces(cuts):
            if target.flags.c_contiguous and target.dtype == self.dataset.dtype:
                self.dataset.read_direct(target, there, here)
            else:
                target[here] = self.dataset[there]
            if self.check_finite:
                require_finite(np, target[here], self.name)


class DatasetSink:
    """A dataset as the result of a schedule."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset = dataset
        self.dtype, self.shape = dataset.dtype, dataset.shape

    def put(self, cuts: Sequence[slice], tile: np.ndarray) -> None:
        """Write a tile to dataset[cuts]."""
        for here, there in pieces(cuts):
            self.dataset[there] = np.ascontiguousarray(tile[here])


def opened(path: Path, mode: str) -> h5py.File:
    """Open a file with small caches."""
    file = h5py.File(path, mode, rdcc_nbytes=CACHE)
    config = file.id.get_mdc_config()
    config.set_initial_size, config.initial_size, config.min_size, config.max_size = True, CACHE, CACHE, CACHE
    file.id.set_mdc_config(config)
    return file


def allocated(path: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...] | None) -> h5py.File:
    """Return a file with all of its space allocated.

    Later writes do not change its structure, so that a killed run leaves a valid file.
    """
    if path.exists():
        return opened(path, "r+")
    with replacing(path, path.with_suffix(".new")) as aside, opened(aside, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunks:
            plist.set_chunk(chunks)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
        h5py.h5d.create(file.id, RESULT.encode(), kind, h5py.h5s.create_simple(shape), plist)
    return opened(path, "r+")


def chunks_of(one: DiskPass, readers: Sequence[DiskPass]) -> tuple[int, ...] | None:
    """Return the blocks in which an array is both written and read; None if these are contiguous anyway."""
    tiles = tuple(min(lengths) for lengths in zip(*(x.tiles(one.target) for x in (one, *readers)), strict=True))
    first = next((axis for axis, n in enumerate(tiles) if n > 1), len(tiles))
    return None if not tiles or tiles[first + 1 :] == one.shape[first + 1 :] else tiles


def pieces(cuts: Sequence[slice]) -> Any:
    """Yield (cuts within the tile, cuts within the dataset) of boxes of at most PIECE elements, in order."""
    lengths = [cut.stop - cut.start for cut in cuts]
    steps = list(lengths)
    for axis in range(len(steps)):
        if prod(steps) <= PIECE:
            break
        steps[axis] = max(1, PIECE // prod(steps[axis + 1 :]))
    for corner in np.ndindex(*(-(-n // step) for n, step in zip(lengths, steps))):
        here = tuple(slice(k * s, min((k + 1) * s, n)) for k, s, n in zip(corner, steps, lengths))
        yield here, tuple(slice(cut.start + x.start, cut.start + x.stop) for cut, x in zip(cuts, here))
