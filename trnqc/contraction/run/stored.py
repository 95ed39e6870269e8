"""Contractions of arrays in HDF5 files: passes over them in tiles, and a result that is there whole or not at all.

    operands, out ─ plan_passes ─► passes ─ run_schedule, tile by tile ─► work directory ─ rename ─► out

Everything that a run writes lies in `<out>.partial` until the end. A run that was killed left its progress there: the
same call goes on after the last turn of the outer loop that was recorded, with the same digits. A run that ends by an
error removes the directory. What survives is what the system had been handed: the loss of power is not covered.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from math import prod
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trnqc.contraction.cost.estimate import SLOW, quick_seconds
from trnqc.contraction.cost.rates import machine_rates
from trnqc.contraction.memory.disk_passes import MOVE_COST, Pass, Passes, plan_passes
from trnqc.contraction.memory.schedule import ElementLimit
from trnqc.contraction.run.journal import Journal, fingerprint
from trnqc.contraction.run.loop_nest import run_schedule, workspace_of
from trnqc.contraction.run.operands import require_finite
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit, SlowPlanWarning, UnsupportedError
from trnqc.host.files import replacing

# Elements that are moved between a dataset and a tile in another order of axes at once.
PIECE = 2**16
# Bytes that the library of files and the search for a plan hold themselves.
HDF5 = 2**22
# Bytes of chunks that are kept, and of where they are: what is scattered over a chunk of this size or less is written
# at once.
CACHE = 2**18
# The dataset of a result in a file of its own.
RESULT = "result"


class Stored:
    """A dataset as a function of a schedule: its tiles go straight into the arena, piece by piece."""

    def __init__(self, dataset: h5py.Dataset, name: str, check_finite: bool = False) -> None:
        self.dataset, self.name, self.check_finite = dataset, name, check_finite

    def __call__(self, *cuts: slice) -> np.ndarray:
        found = np.empty([cut.stop - cut.start for cut in cuts], self.dataset.dtype)
        self.into(found, cuts)
        return found

    def into(self, target: np.ndarray, cuts: Sequence[slice]) -> None:
        """target[...] = dataset[cuts]."""
        for here, there in _pieces(cuts):
            if target.flags.c_contiguous and target.dtype == self.dataset.dtype:
                self.dataset.read_direct(target, there, here)
            else:
                target[here] = self.dataset[there]
            if self.check_finite:
                require_finite(np, target[here], self.name)


class Sink:
    """A dataset as the result of a schedule."""

    def __init__(self, dataset: h5py.Dataset) -> None:
        self.dataset = dataset
        self.dtype, self.shape = dataset.dtype, dataset.shape

    def put(self, cuts: Sequence[slice], found: np.ndarray) -> None:
        """dataset[cuts] = found."""
        for here, there in _pieces(cuts):
            self.dataset[there] = np.ascontiguousarray(found[here])


def einsum_stored(
    tree: Tree,
    operands: Mapping[str, Any],
    out: h5py.Dataset | np.ndarray | str | Path | None = None,
    memory_limit: int | None = None,
    check_finite: bool = True,
) -> Any:
    """The tree's result; operands by name of leaf: h5py datasets and NumPy arrays.

    out: a dataset, which is overwritten in place; the path of a new file whose dataset `result` it becomes; an array;
    None for a new array. Temporaries go to disk only beside an `out` on disk. memory_limit: bytes, of which 4 MB, or
    half of a limit below 8 MB, are left to HDF5 and Python. Errors: InputError (shape, dtype, operands), MemoryLimit.
    """
    datasets = {name: x for name, x in operands.items() if isinstance(x, h5py.Dataset)}
    arrays = {name: np.asarray(x) for name, x in operands.items() if name not in datasets}
    _checked(tree, {**datasets, **arrays})
    dtype = np.result_type(*(x.dtype for x in (*datasets.values(), *arrays.values())))
    shape = tuple(tree.extent(label) for label in tree.root.indices)
    _check_out(out, shape, dtype, operands)
    if check_finite:
        for name, array in arrays.items():
            require_finite(np, array, name)
    functions: dict[str, Any] = {name: Stored(x, name, check_finite) for name, x in datasets.items()}
    functions |= {name: x.astype(dtype, copy=False) for name, x in arrays.items()}
    limit = None if memory_limit is None else (memory_limit - min(HDF5, memory_limit // 2)) // dtype.itemsize
    on_disk = not (out is None or isinstance(out, np.ndarray))
    try:
        plan = plan_passes(tree, limit, frozenset(datasets), on_disk, on_disk)
    except ElementLimit as error:
        needed = error.needed * dtype.itemsize
        needed += min(HDF5, needed)
        raise MemoryLimit(
            f"{error.what} need {needed} bytes of memory at least, with those of HDF5; memory_limit is {memory_limit} "
            f"bytes: raise it to {needed} or more"
        ) from None
    if limit is not None:
        _warn(plan, plan_passes(tree, None, frozenset(datasets), on_disk, on_disk), memory_limit)
    if not on_disk:
        aside = out is None or any(np.may_share_memory(out, x) for x in arrays.values())
        target = np.empty(shape, dtype) if aside else np.asarray(out)
        run_schedule(plan.passes[0].schedule, functions, target)
        if isinstance(out, np.ndarray) and aside:
            out[...] = target
        return target if out is None else out
    key = fingerprint(str(tree), str(plan), str(dtype), **operands)
    return _on_disk(plan, functions, out, dtype, key)


def _check_out(out: Any, shape: tuple[int, ...], dtype: Any, operands: Mapping[str, Any]) -> None:
    if out is None or isinstance(out, str | PathLike):
        return
    if not isinstance(out, h5py.Dataset | np.ndarray) or isinstance(out, np.ma.MaskedArray):
        found = type(out).__name__
        raise InputError(f"out is a NumPy array without a mask, an h5py dataset or a new file's path; found {found}")
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise InputError(f"the result is {dtype} {shape}; out is {out.dtype} {tuple(out.shape)}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError("out is read-only; hand in an array that can be written")
    if same := [name for name, x in operands.items() if isinstance(x, h5py.Dataset) and x == out]:
        raise InputError(f"out is the dataset of operand {same[0]}, which is read while it is written: take another")


def _warn(plan: Passes, free: Passes, memory_limit: int | None) -> None:
    """Say as a SlowPlanWarning where the passes take much longer than those without a limit."""
    rates = machine_rates()
    taken, least = (
        sum(quick_seconds(one.schedule.nest, one.schedule.scratch, rates) for one in passes.passes)
        + MOVE_COST * rates.multiply_add * passes.traffic
        for passes in (plan, free)
    )
    if taken > SLOW * least:
        message = (
            f"a memory limit of {memory_limit} bytes makes this contraction of arrays on disk about "
            f"{taken / least:.2g} times slower than without a limit; raise memory_limit if the machine has the memory"
        )
        warnings.warn(message, SlowPlanWarning, stacklevel=6)


def _on_disk(plan: Passes, functions: dict[str, Any], out: Any, dtype: Any, key: str) -> Any:
    final = None if isinstance(out, h5py.Dataset) else Path(out)
    beside = final or Path(out.file.filename + out.name.replace("/", "."))
    # One piece of memory for all passes: what one frees need not lie so that the next finds room in it.
    workspace = np.empty(max(workspace_of(one.schedule) for one in plan.passes), dtype)
    with Journal(beside.with_name(beside.name + ".partial"), key) as journal:
        for number, one in enumerate(plan.passes):
            readers = [later for later in plan.passes if one.target in later.read]
            if number < journal.passes:
                continue
            with ExitStack() as files:
                made = {
                    name: Stored(files.enter_context(_opened(journal.file(name), "r"))[RESULT], name)
                    for name in one.read
                    if name not in functions
                }
                dataset = out
                if final is not None or number < len(plan.passes) - 1:
                    file = _made(journal.file(one.target), one.shape, dtype, _chunks(one, readers))
                    dataset = files.enter_context(file)[RESULT]
                _run(one, functions | made, dataset, journal, workspace)
            journal.finish_pass()
        if final is not None:
            journal.file(plan.passes[-1].target).replace(final)
    return out


def _run(
    one: Pass, operands: Mapping[str, Any], dataset: h5py.Dataset, journal: Journal, workspace: np.ndarray
) -> None:
    needed = {leaf.name: operands[leaf.name] for leaf in one.schedule.fusion.tree.leaves}

    def turned(number: int) -> None:
        if journal.due():
            dataset.file.flush()
            journal.turn(number)

    run_schedule(one.schedule, needed, Sink(dataset), first=journal.turns, turned=turned, workspace=workspace)
    dataset.file.flush()


def _opened(path: Path, mode: str) -> h5py.File:
    """A file of which little is kept in memory."""
    file = h5py.File(path, mode, rdcc_nbytes=CACHE)
    config = file.id.get_mdc_config()
    config.set_initial_size, config.initial_size, config.min_size, config.max_size = True, CACHE, CACHE, CACHE
    file.id.set_mdc_config(config)
    return file


def _made(path: Path, shape: tuple[int, ...], dtype: Any, chunks: tuple[int, ...] | None) -> h5py.File:
    """A file with all its space taken: what is written later changes no structure, so a killed run leaves it sound."""
    if path.exists():
        return _opened(path, "r+")
    with replacing(path, path.with_suffix(".new")) as aside, _opened(aside, "w") as file:
        plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
        if chunks:
            plist.set_chunk(chunks)
        plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
        plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
        kind = h5py.h5t.py_create(np.dtype(dtype), logical=True)
        h5py.h5d.create(file.id, RESULT.encode(), kind, h5py.h5s.create_simple(shape), plist)
    return _opened(path, "r+")


def _chunks(one: Pass, readers: Sequence[Pass]) -> tuple[int, ...] | None:
    """The blocks in which it is both written and read; None where these lie together anyway."""
    tiles = tuple(min(lengths) for lengths in zip(*(x.tiles(one.target) for x in (one, *readers)), strict=True))
    first = next((axis for axis, n in enumerate(tiles) if n > 1), len(tiles))
    return None if not tiles or tiles[first + 1 :] == one.shape[first + 1 :] else tiles


def _pieces(cuts: Sequence[slice]) -> Any:
    """Pairs (within the tile, within the dataset) of boxes of at most PIECE elements, in order."""
    lengths = [cut.stop - cut.start for cut in cuts]
    steps = list(lengths)
    for axis in range(len(steps)):
        if prod(steps) <= PIECE:
            break
        steps[axis] = max(1, PIECE // prod(steps[axis + 1 :]))
    for corner in np.ndindex(*(-(-n // step) for n, step in zip(lengths, steps))):
        here = tuple(slice(k * s, min((k + 1) * s, n)) for k, s, n in zip(corner, steps, lengths))
        yield here, tuple(slice(cut.start + x.start, cut.start + x.stop) for cut, x in zip(cuts, here))


def _checked(tree: Tree, operands: Mapping[str, Any]) -> None:
    for leaf in tree.leaves:
        expected = tuple(tree.extent(label) for label in leaf.indices)
        found = operands[leaf.name]
        if isinstance(found, h5py.Dataset) and len(set(leaf.indices)) < len(leaf.indices):
            raise UnsupportedError(f"{leaf} takes a diagonal of an array on disk: read it into memory first")
        if tuple(found.shape) != expected:
            raise InputError(f"operand {leaf.name} has the shape {expected} in this plan; found {tuple(found.shape)}")
        if found.dtype.kind not in "fciub":
            raise InputError(f"operand {leaf.name} holds elements of type {found.dtype}; numbers are taken")
