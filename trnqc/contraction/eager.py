"""Contractions that are computed at once: planned from shapes, and run by the library of the arrays."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from math import isfinite, prod
from typing import Any

import numpy as np

from trnqc.contraction.arguments import Symmetries, declared_exchanges, is_dataset, itemsize_of, squeezed
from trnqc.contraction.kernels import Gemm
from trnqc.contraction.lower.prepared import Run
from trnqc.contraction.plan import Plan
from trnqc.contraction.planning.orders import Optimize, requested_order
from trnqc.contraction.planning.statements import plan_subscripts
from trnqc.contraction.run.dispatch import run_arrays
from trnqc.contraction.run.execute import run_steps
from trnqc.contraction.run.operands import as_arrays
from trnqc.contraction.semiring import Semiring, semiring_of
from trnqc.contraction.slow_plans import MAX_SLOWDOWN
from trnqc.contraction.tape.instructions import Tape
from trnqc.contraction.tape.machine import run_tape
from trnqc.contraction.time_limit import TIME_LIMIT, planning
from trnqc.errors import UnsupportedError
from trnqc.expression.subscripts import Shape, Subscripts

# Multiply-adds of all labels together, for each step, up to which one loop over all labels is faster than the steps.
WHOLE = 4000
# Factor by which planning for arrays on disk may exceed the time limit (see `_einsum_stored`).
STORED = 30


def numpy_run(subscripts: Any, operands: Sequence[Any], time_limit: float | None = TIME_LIMIT) -> Run | None:
    """Return a function with little overhead for a product of plain NumPy arrays of one floating-point type.

    None for other operands, and where `_steps_of` has none.
    """
    if not operands or type(subscripts) is not str:
        return None
    kind = getattr(operands[0], "dtype", None)
    for x in operands:
        if type(x) is not np.ndarray or x.dtype != kind or kind.kind not in "fc":
            return None
    return _steps_of(subscripts, tuple(x.shape for x in operands), time_limit)


def run_on_numpy(run: Run, operands: Sequence[np.ndarray], check_finite: bool) -> np.ndarray | None:
    """Return the product, or None if its elements should be checked and the operands may not be finite.

    Elements that are not finite make the result so. It is looked at instead of the operands, which are often larger.
    Beyond 1e154 the sum of squares is infinite; then the general way looks at every element.
    """
    if not check_finite:
        return run(operands)
    with np.errstate(all="ignore"):
        result = run(operands)
        contiguous = result if result.flags.c_contiguous else result.T
        total = np.vdot(contiguous, contiguous) if contiguous.flags.c_contiguous else result.sum()
    return result if isfinite(total.real) and isfinite(total.imag) else None


@lru_cache(maxsize=1024)
def _steps_of(subscripts: str, shapes: tuple[Shape, ...], time_limit: float | None) -> Run | None:
    """Return the steps of a product as calls of NumPy.

    None if it runs in loops, over pairs of labels, or with axes of extent one spread.
    """
    plan, parsed = plan_subscripts(subscripts, shapes, 8, None, time_limit)
    (part,) = plan.assignments[0].parts
    if part.in_loops or any(parsed.squeezed):
        return None
    if subscripts.isascii() and prod(parsed.extents.values()) <= WHOLE * len(part.steps):
        return lambda arrays: np.asarray(np.einsum(subscripts, *arrays))
    calls, names = part.calls, [name for name, _ in plan.inputs]
    if calls is None:
        return None
    # The tree may have the operands in another order.
    order = [names.index(name) for name in part.names]
    run = calls if order == list(range(len(order))) else lambda arrays: calls([arrays[place] for place in order])
    return run if plan.tape is None else _taped(plan.tape, names, run)


def _taped(tape: Tape, names: Sequence[str], run: Run) -> Run:
    """Return a function that runs the tape, and `run` where that cannot be."""

    def either(arrays: Sequence[np.ndarray]) -> np.ndarray:
        results = run_tape(tape, dict(zip(names, arrays)))
        return run(arrays) if results is None else next(iter(results.values()))

    return either


def contracted(
    subscripts: str,
    operands: Sequence[Any],
    memory_limit: int | None = None,
    gemm: Gemm | None = None,
    check_finite: bool = True,
    out: Any = None,
    symmetries: Symmetries | None = None,
    time_limit: float | None = TIME_LIMIT,
    optimize: Optimize = True,
    max_slowdown: float | None = MAX_SLOWDOWN,
) -> Any:
    """Return the result of `einsum`, by the library of the arrays or by `gemm`."""
    arrays = as_arrays(operands)
    if out is not None or any(is_dataset(x) for x in arrays):
        if symmetries:
            raise UnsupportedError("symmetries go with arrays in memory and without out; leave them out")
        if not isinstance(optimize, bool | str | None):
            raise UnsupportedError("a path goes with arrays in memory and without out; leave optimize out")
        return _einsum_stored(subscripts, arrays, memory_limit, gemm, check_finite, out, time_limit, max_slowdown)
    # While PyTorch traces, extents may be symbols; planning needs numbers.
    shapes = tuple(tuple(map(int, x.shape)) for x in arrays)
    exchanges, same = declared_exchanges(symmetries, arrays, shapes)
    # A plan depends on the size of an element only if memory is limited; other plans are shared between types.
    size = 8 if memory_limit is None else itemsize_of(arrays)
    order = requested_order(optimize, subscripts, shapes)

    def planned(limit: int | None) -> tuple[Plan, Subscripts]:
        return plan_subscripts(subscripts, shapes, size, limit, time_limit, exchanges, same, order)

    plan, parsed = planned(memory_limit)
    plan.check_slowdown(max_slowdown, lambda limit: planned(limit)[0], size, stacklevel=4)
    arrays = [squeezed(x, axes) for x, axes in zip(arrays, parsed.squeezed)]
    return run_arrays(plan, arrays, gemm, check_finite)


def contracted_in_semiring(
    subscripts: str,
    operands: Sequence[Any],
    semiring: str | Semiring,
    check: bool = True,
    time_limit: float | None = TIME_LIMIT,
    optimize: Optimize = True,
) -> np.ndarray:
    """Return the result of `einsum` in a semiring, in the order in which numbers would be contracted."""
    ring = semiring_of(semiring)
    arrays = ring.operands(as_arrays(operands), check)
    shapes = tuple(x.shape for x in arrays)
    order = requested_order(optimize, subscripts, shapes)
    if order.slices:
        raise UnsupportedError("semiring goes with whole arrays; hand over a tree without slices (unslice_all)")
    plan, parsed = plan_subscripts(subscripts, shapes, 8, None, time_limit, order=order)
    (part,) = plan.assignments[0].parts
    named = {name: squeezed(x, axes) for (name, _), x, axes in zip(plan.inputs, arrays, parsed.squeezed)}
    return run_steps(np, part.steps, named, semiring=ring)


def _einsum_stored(
    subscripts: str,
    arrays: Sequence[Any],
    memory_limit: int | None,
    gemm: Gemm | None,
    check_finite: bool,
    out: Any,
    time_limit: float | None,
    max_slowdown: float | None,
) -> Any:
    # h5py is not imported for arrays in memory.
    from trnqc.contraction.run.disk.stored import einsum_stored

    others = [x for x in arrays if not is_dataset(x) and not isinstance(x, np.ndarray)]
    if gemm is not None or others:
        other = "a backend" if gemm is not None else type(others[0]).__name__
        raise UnsupportedError(f"datasets and out go with NumPy arrays and its products; found {other}")
    plan, parsed = plan_subscripts(subscripts, tuple(tuple(x.shape) for x in arrays), 8, None, time_limit)
    if any(parsed.squeezed):
        raise UnsupportedError("datasets and out take operands whose extents agree; axes of extent one are spread here")
    operands = {name: x for (name, _), x in zip(plan.inputs, arrays)}
    # A call that continues after a kill must find the same plan, so the time limit should rarely be reached.
    with planning(None if time_limit is None else STORED * time_limit):
        return einsum_stored(plan.trees[0], operands, out, memory_limit, check_finite, max_slowdown)
