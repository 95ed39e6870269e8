"""Contractions of arrays in HDF5 files: passes over them in tiles, with a result that is complete or absent.

    operands, out ─ plan_passes ─► passes ─ run_schedule, tile by tile ─► work directory ─ rename ─► out

All files of a run lie in `<out>.partial` until the end. A killed run leaves its progress there: the same call continues
after the last turn of the outer loop that was recorded, with the same digits. A run that ends with an error removes the
directory. Data is handed to the operating system but not synchronised: after a loss of power nothing is guaranteed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from os import PathLike
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trnqc.contraction.cost.rates import machine_rates
from trnqc.contraction.estimate import quick_seconds
from trnqc.contraction.memory.disk_passes import MOVE_COST, DiskPass, DiskPasses, plan_passes
from trnqc.contraction.memory.schedule import ElementLimit
from trnqc.contraction.run.disk.datasets import RESULT, DatasetSink, StoredDataset, allocated, chunks_of, opened
from trnqc.contraction.run.disk.journal import Journal, fingerprint
from trnqc.contraction.run.loop_nest import run_schedule, workspace_of
from trnqc.contraction.run.operands import require_finite
from trnqc.contraction.slow_plans import MAX_SLOWDOWN, check_slowdown, least_bytes
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit, UnsupportedError

# Bytes that HDF5 and the planner hold themselves.
HDF5 = 2**22


def einsum_stored(
    tree: Tree,
    operands: Mapping[str, Any],
    out: h5py.Dataset | np.ndarray | str | Path | None = None,
    memory_limit: int | None = None,
    check_finite: bool = True,
    max_slowdown: float | None = MAX_SLOWDOWN,
) -> Any:
    """Return the tree's result for h5py datasets and NumPy arrays by name of leaf.

    A dataset `out` is overwritten in place; a path names a new file, whose dataset `result` it becomes; None stands for
    a new array. Temporaries are stored only beside an `out` on disk. Of `memory_limit` bytes, 4 MB, or half of a limit
    below 8 MB, are left to HDF5 and Python. Raises InputError if operands or `out` have a wrong shape, type or kind,
    MemoryLimit if no passes keep the limit, or if it makes them more than `max_slowdown` times slower.
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
    functions: dict[str, Any] = {name: StoredDataset(x, name, check_finite) for name, x in datasets.items()}
    functions |= {name: x.astype(dtype, copy=False) for name, x in arrays.items()}
    limit = None if memory_limit is None else (memory_limit - min(HDF5, memory_limit // 2)) // dtype.itemsize
    on_disk = not (out is None or isinstance(out, np.ndarray))

    def planned(elements: int | None) -> DiskPasses:
        return plan_passes(tree, elements, frozenset(datasets), on_disk, on_disk)

    try:
        plan = planned(limit)
    except ElementLimit as error:
        needed = _with_hdf5(error.needed * dtype.itemsize)
        raise MemoryLimit(
            f"{error.what} need {needed} bytes of memory at least, with those of HDF5; memory_limit is {memory_limit} "
            f"bytes: raise it to {needed} or more"
        ) from None
    if limit is not None:
        _check_slowdown(planned, plan, memory_limit, dtype.itemsize, max_slowdown)
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
    """Raise InputError if the result cannot be written to `out`."""
    if out is None or isinstance(out, str | PathLike):
        return
    if not isinstance(out, h5py.Dataset | np.ndarray) or isinstance(out, np.ma.MaskedArray):
        kind = type(out).__name__
        raise InputError(f"out is a NumPy array without a mask, an h5py dataset or a new file's path; found {kind}")
    if tuple(out.shape) != shape or out.dtype != dtype:
        raise InputError(f"the result is {dtype} {shape}; out is {out.dtype} {tuple(out.shape)}")
    if isinstance(out, np.ndarray) and not out.flags.writeable:
        raise InputError("out is read-only; pass an array that can be written")
    if same := [name for name, x in operands.items() if isinstance(x, h5py.Dataset) and x == out]:
        raise InputError(f"out is the dataset of operand {same[0]}, which is read while it is written: take another")


def _with_hdf5(memory: int) -> int:
    """Return the memory limit that leaves so many bytes to a run."""
    return memory + min(HDF5, memory)


def _check_slowdown(
    planned: Callable[[int | None], DiskPasses],
    plan: DiskPasses,
    memory_limit: int | None,
    itemsize: int,
    allowed: float | None,
) -> None:
    """Warn of, or refuse, a memory limit with which the passes take much longer than without one."""
    free = planned(None)
    least = _seconds(free)

    def sufficient(target: float) -> int:
        elements = least_bytes(lambda x: _seconds(planned(x)) / least, plan.memory, free.memory, target)
        return _with_hdf5(elements * itemsize)

    work = "this contraction of arrays on disk"
    check_slowdown(work, memory_limit, _seconds(plan) / least, allowed, sufficient, stacklevel=6)


def _seconds(plan: DiskPasses) -> float:
    rates = machine_rates()
    loops = sum(quick_seconds(one.schedule.nest, one.schedule.scratch, rates) for one in plan.passes)
    return loops + MOVE_COST * rates.multiply_add * plan.traffic


def _on_disk(plan: DiskPasses, functions: dict[str, Any], out: Any, dtype: Any, key: str) -> Any:
    """Run the passes in a work directory and return `out`."""
    final = None if isinstance(out, h5py.Dataset) else Path(out)
    beside = final or Path(out.file.filename + out.name.replace("/", "."))
    # One workspace serves all passes, so that freed memory need not be contiguous for the next.
    workspace = np.empty(max(workspace_of(one.schedule) for one in plan.passes), dtype)
    with Journal(beside.with_name(beside.name + ".partial"), key) as journal:
        for number, one in enumerate(plan.passes):
            readers = [later for later in plan.passes if one.target in later.read]
            if number < journal.passes:
                continue
            with ExitStack() as files:
                temporaries = {
                    name: StoredDataset(files.enter_context(opened(journal.file(name), "r"))[RESULT], name)
                    for name in one.read
                    if name not in functions
                }
                dataset = out
                if final is not None or number < len(plan.passes) - 1:
                    file = allocated(journal.file(one.target), one.shape, dtype, chunks_of(one, readers))
                    dataset = files.enter_context(file)[RESULT]
                _run(one, functions | temporaries, dataset, journal, workspace)
            journal.finish_pass()
        if final is not None:
            journal.file(plan.passes[-1].target).replace(final)
    return out


def _run(
    one: DiskPass, operands: Mapping[str, Any], dataset: h5py.Dataset, journal: Journal, workspace: np.ndarray
) -> None:
    """Run one pass, continuing after the turns that the journal records."""
    needed = {leaf.name: operands[leaf.name] for leaf in one.schedule.fusion.tree.leaves}

    def turned(number: int) -> None:
        if journal.due():
            dataset.file.flush()
            journal.turn(number)

    run_schedule(one.schedule, needed, DatasetSink(dataset), first=journal.turns, turned=turned, workspace=workspace)
    dataset.file.flush()


def _checked(tree: Tree, operands: Mapping[str, Any]) -> None:
    """Raise InputError or UnsupportedError for operands of a wrong shape or type, or a diagonal on disk."""
    for leaf in tree.leaves:
        expected = tuple(tree.extent(label) for label in leaf.indices)
        operand = operands[leaf.name]
        if isinstance(operand, h5py.Dataset) and len(set(leaf.indices)) < len(leaf.indices):
            raise UnsupportedError(f"{leaf} takes a diagonal of an array on disk: read it into memory first")
        if tuple(operand.shape) != expected:
            raise InputError(f"operand {leaf.name} has the shape {expected} in this plan; found {tuple(operand.shape)}")
        if operand.dtype.kind not in "fciub":
            raise InputError(f"operand {leaf.name} holds elements of type {operand.dtype}; numbers are taken")
