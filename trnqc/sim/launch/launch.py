"""Launch of a kernel function on one or two simulated cores, with conversion of its arguments and results."""

from __future__ import annotations

import dataclasses
import inspect
import os
import sys
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from trnqc.sim.instructions import dma, vector
from trnqc.sim.launch.lockstep import check_trips
from trnqc.sim.machine.arithmetic import arithmetic_from_environment
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run, Trace, leave, running
from trnqc.sim.machine.targets import Target, target_from_environment
from trnqc.sim.machine.version import parses
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.storage import MemoryRegion, Storage, check_capacity, check_shape
from trnqc.sim.memory.tensor import NkiTensor

# Time in seconds after which a core stops waiting for the others at a barrier.
BARRIER_TIMEOUT = 60.0


@dataclass(frozen=True)
class Spec:
    """Shape and dtype of an array whose values a trace does not need.

    ``dtype`` is a DType, its name or a NumPy dtype.
    """

    shape: tuple[int, ...]
    dtype: Any


class Links:
    """The resources that the cores of one launch share: HBM allocations, a barrier and mailboxes."""

    def __init__(self, cores: int):
        self.cores = cores
        self.barrier = threading.Barrier(cores, timeout=BARRIER_TIMEOUT)
        self.lock = threading.Lock()
        self.mail: dict[Any, deque[Any]] = {}
        self._shared: dict[int, Storage] = {}

    def shared_storage(self, index: int, make: Callable[[], Storage]) -> Storage:
        """Return the ``index``-th shared HBM allocation, which the first core to arrive creates for all cores."""
        with self.lock:
            fresh = make()
            storage = self._shared.setdefault(index, fresh)
        if (storage.shape, storage.dtype) != (fresh.shape, fresh.dtype):
            raise NkiValidationError(
                f"cores disagree on shared HBM tensor number {index}: {storage.shape} {storage.dtype} and "
                f"{fresh.shape} {fresh.dtype}; all cores must run the same allocations"
            )
        return storage

    def meet(self) -> None:
        """Wait until every core has reached the barrier."""
        try:
            self.barrier.wait()
        except threading.BrokenBarrierError:
            raise NkiValidationError(
                "a core waits for another that never came: barriers must match on all cores"
            ) from None


def execute(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    cores: int = 1,
    dry: bool = False,
    records: bool = False,
    target: Target | None = None,
    observer: Any = None,
) -> tuple[Any, Trace]:
    """Run an undecorated kernel function on 1 or 2 simulated cores; return the results of core 0 and its trace.

    Arrays may be NumPy arrays or CPU torch tensors. In a dry run, instructions are checked and counted, floating-point
    data are not computed, arguments may also be `Spec`, and results are None. With `records` the trace keeps the
    executed instructions. `target` is by default taken from the environment, and `observer` receives the instructions
    and device loops of core 0. Raises NkiValidationError if a kernel is running already, or the kernel violates a rule
    of the machine.
    """
    if running() is not None:
        raise NkiValidationError("a kernel is running already; call helpers as plain functions")
    if os.environ.get("NKI_PRECISE_FP", "1") == "0":
        raise NkiValidationError("NKI_PRECISE_FP=0 is not offered here: tiles are always stored in their own dtype")
    hbm_arguments = _Arguments(dry, MemoryRegion.private_hbm if cores == 1 else MemoryRegion.shared_hbm)
    bound = _bind(function, args, kwargs)
    converted = {name: hbm_arguments.enter(value, name) for name, value in bound.arguments.items()}
    bound.arguments.update(converted)
    links = Links(cores) if cores > 1 else None
    target = target or target_from_environment()
    arithmetic = arithmetic_from_environment()
    runs = [Run(target, arithmetic, dry=dry, recording=records, core=c, cores=cores, links=links) for c in range(cores)]
    for run in runs:
        run.assign = _assign
    runs[0].observer = observer
    results = _run_all(runs, function, bound)
    traces = [_finish(run) for run in runs]
    hbm_arguments.copy_back()
    return (None if dry else _leave(results[0])), traces[0]


def _bind(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> inspect.BoundArguments:
    return inspect.signature(function).bind(*args, **kwargs)


def _run_all(runs: list[Run], function: Callable[..., Any], bound: inspect.BoundArguments) -> list[Any]:
    program = _program(function)
    results: list[Any] = [None] * len(runs)
    failures: list[BaseException] = []

    def core(index: int) -> None:
        before = runs[index].enter()
        try:
            results[index] = program(*bound.args, **bound.kwargs)
            _check_results(results[index])
        except BaseException as error:
            failures.append(error)
            if runs[index].links is not None:
                runs[index].links.barrier.abort()
        finally:
            leave(before)

    if len(runs) == 1:
        core(0)
    else:
        threads = [threading.Thread(target=core, args=(i,), name=f"core {i}", daemon=True) for i in range(len(runs))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]
    check_trips(runs)
    return results


def _assign(target: NkiTensor, value: NkiTensor) -> None:
    """What ``target[...] = value`` runs where the rules are lenient."""
    (vector.tensor_copy if target.on_chip and value.on_chip else dma.dma_copy)(target, value)


def _program(function: Callable[..., Any]) -> Callable[..., Any]:
    """The kernel as the version of NKI runs it: as Python, or interpreted by the rules of the parser."""
    if not parses():
        return function
    from trnqc.sim.parser.interpreter import interpreted

    return interpreted(function)


def _finish(run: Run) -> Trace:
    sbuf, psum = check_capacity(run)
    return Trace(
        run.target.name,
        run.static,
        run.executed,
        sbuf,
        psum,
        tuple(t for t in run.tiles if t.first >= 0),
        tuple(run.records),
    )


# -- arguments --------------------------------------------------------------------------------------------------------


class _Arguments:
    """Converts the arrays of the caller to HBM tensors.

    A tensor shares the caller's memory where possible. Otherwise it is a copy, and `copy_back` returns its contents.
    """

    def __init__(self, dry: bool, buffer: MemoryRegion):
        self.dry, self.buffer = dry, buffer
        self._back: list[tuple[np.ndarray, np.ndarray]] = []

    def enter(self, value: Any, name: str) -> Any:
        """Return ``value`` with its arrays replaced by tensors, also within tuples, lists, dicts and dataclasses."""
        if isinstance(value, Spec):
            return self._spec(value, name)
        array = as_numpy(value)
        if array is not None:
            return self._array(array, name)
        if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
            return type(value)(self.enter(v, f"{name}[{i}]") for i, v in enumerate(value))
        if isinstance(value, dict):
            return {k: self.enter(v, f"{name}[{k!r}]") for k, v in value.items()}
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.init}
            changed = {k: self.enter(v, f"{name}.{k}") for k, v in fields.items()}
            same = all(changed[k] is v for k, v in fields.items())
            return value if same else dataclasses.replace(value, **changed)
        return value

    def _spec(self, spec: Spec, name: str) -> NkiTensor:
        if not self.dry:
            raise NkiValidationError(f"argument {name}: Spec is for traces; a simulation needs an array")
        shape, dtype = check_shape(spec.shape), dtypes.as_dtype(spec.dtype)
        raw = None
        if dtype.is_int:
            raw = np.full(prod(shape), dtypes.poison(dtype), dtype.numpy).view(np.uint8)
        storage = Storage(shape, dtype, self.buffer, name, raw)
        storage.known, storage.argument = False, True
        return NkiTensor(shape, dtype, storage, self.buffer, name)

    def _array(self, array: np.ndarray, name: str) -> NkiTensor:
        dtype = dtypes.from_numpy(array.dtype, f"argument {name}")
        shape = check_shape(array.shape)
        storage = Storage(shape, dtype, self.buffer, name, None)
        storage.argument = True
        if not self.dry or dtype.is_int:
            flat = np.ascontiguousarray(array).reshape(-1).view(dtype.numpy)
            if self.dry or not array.flags.writeable:
                flat = flat.copy()
            elif not np.shares_memory(flat, array):
                self._back.append((array, flat))
            storage.raw = flat.view(np.uint8)
        return NkiTensor(shape, dtype, storage, self.buffer, name)

    def copy_back(self) -> None:
        """Copy the contents of copied arguments back to the arrays of the caller."""
        for array, flat in self._back:
            array[...] = flat.view(array.dtype).reshape(array.shape)


def as_numpy(value: Any) -> np.ndarray | None:
    """Return a NumPy array that shares the memory of a NumPy array or CPU torch tensor; None for other values."""
    if isinstance(value, np.ndarray):
        return value
    torch = sys.modules.get("torch")
    if torch is None or not isinstance(value, torch.Tensor):
        return None
    tensor = value.detach()
    if tensor.device.type != "cpu":
        raise NkiValidationError(f"the simulator takes CPU tensors, got one on {tensor.device}")
    stored = {"bfloat16": torch.int16, "float8_e4m3fn": torch.uint8, "float8_e5m2": torch.uint8}
    name = str(tensor.dtype).removeprefix("torch.")
    if name in stored:
        return tensor.view(stored[name]).numpy().view(dtypes.BY_NAME[name].numpy)
    return tensor.numpy()


# -- results ----------------------------------------------------------------------------------------------------------


def _leaves(result: Any) -> list[Any]:
    if isinstance(result, dict):
        return [leaf for v in result.values() for leaf in _leaves(v)]
    if isinstance(result, (tuple, list)):
        return [leaf for v in result for leaf in _leaves(v)]
    return [result]


def _check_results(result: Any) -> None:
    for leaf in _leaves(result):
        if leaf is None:
            continue
        if not isinstance(leaf, NkiTensor):
            raise NkiValidationError(f"a kernel returns tensors, got {type(leaf).__name__} {leaf!r}")
        if leaf.on_chip or (leaf.buffer is MemoryRegion.private_hbm and not leaf.storage.argument):
            raise NkiValidationError(
                f"kernel outputs must be in ['shared_hbm'], got `{leaf.name}` in {leaf.buffer.value}"
            )


def _leave(result: Any) -> Any:
    if isinstance(result, dict):
        return {k: _leave(v) for k, v in result.items()}
    if isinstance(result, (tuple, list)):
        return tuple(_leave(v) for v in result)
    if result is None:
        return None
    array = result.array().copy()
    return array.astype(bool) if result.dtype is dtypes.bool_ else array
