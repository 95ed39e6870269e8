"""The public functions: `einsum` computes one contraction, `einsum_plan` returns its plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import isfinite, prod
from typing import Any

import numpy as np

from trnqc.arrays import is_traced_by_dynamo
from trnqc.contraction.arguments import (
    Symmetries,
    declared_exchanges,
    from_interleaved,
    is_dataset,
    itemsize_of,
    shape_of,
    squeezed,
    unknown_argument,
)
from trnqc.contraction.kernels import Gemm, backend_kernels, fused_pair_kernels
from trnqc.contraction.plan import Plan
from trnqc.contraction.planning import Optimize, plan_statements, plan_subscripts, requested_path
from trnqc.contraction.run.dispatch import run_arrays
from trnqc.contraction.run.operands import as_arrays
from trnqc.contraction.run.prepared import Run
from trnqc.contraction.tape.instructions import Tape
from trnqc.contraction.tape.machine import run_tape
from trnqc.contraction.time_limit import TIME_LIMIT, planning
from trnqc.errors import ArgumentError, InputError, UnsupportedError
from trnqc.expression.program import Program
from trnqc.expression.subscripts import Shape
from trnqc.expression.text import parse

# Multiply-adds of all labels together, for each step, up to which one loop over all labels is faster than the steps.
WHOLE = 4000
# Factor by which planning for arrays on disk may exceed the time limit (see `_einsum_stored`).
STORED = 30


def einsum(
    subscripts: Any,
    *operands: Any,
    backend: str | None = None,
    precision: str = "fp64",
    memory_limit: int | None = None,
    gemm: Gemm | None = None,
    check_finite: bool = True,
    out: Any = None,
    symmetries: Symmetries | None = None,
    time_limit: float | None = TIME_LIMIT,
    optimize: Optimize = True,
    **unknown: Any,
) -> Any:
    """Compute a contraction as ``numpy.einsum`` does, in an order of least work.

    Parameters
    ----------
    subscripts, *operands
        Subscripts and arrays of one library (NumPy, PyTorch or one of the array API standard), or NumPy's interleaved
        form. Operands may be h5py datasets beside NumPy arrays.
    backend : str, optional
        Multiply the matrices of NumPy arrays on this backend ("cpu", "simulator", "neuron") instead of with the library
        of the arrays.
    precision : str
        Precision of the backend, one of `trnqc.types.PRECISIONS`.
    memory_limit : int, optional
        Bytes for temporaries and copies, beside operands, result and NumPy's own buffers of at most 3
        ``np.getbufsize()`` elements. Where the steps need more, fused loops over tiles run instead.
    gemm : callable, optional
        Product of stacked matrices, ``gemm(a_t[Z, K, M], b[Z, K, N]) -> [Z, M, N]``, in place of a backend.
    check_finite : bool
        Whether to refuse operands that hold nan or inf, or lack a declared symmetry. Of NumPy arrays, elements that do
        not enter the result, such as those beside a diagonal, may not be looked at.
    out : h5py.Dataset, path or array, optional
        Where to write the result in tiles. A path names a new HDF5 file, in which the result is the dataset `result`.
    symmetries : mapping, optional
        Number of an operand -> the exchanges of axes that leave it unchanged or change its sign, in any letters:
        ``{2: "efij = feji", 0: ["abij = -baij = -abji"]}``. What they make redundant is not computed.
    time_limit : float, optional
        Seconds of processor time that planning may take, None for no limit. The best plan so far runs then.
    optimize : path, callable, bool or str
        A path of ``numpy.einsum_path`` or opt_einsum, or a planner that opt_einsum takes, is followed. Booleans and
        names of other libraries' planners stand for our own order, which needs no more work.

    Returns
    -------
    array
        May be a view with transposed axes.

    Raises
    ------
    ExpressionError
        If the subscripts do not fit the operands.
    InputError
        If operands are refused. Unknown arguments raise an ArgumentError, which is also a TypeError.
    MemoryLimit
        If no loops fit into the memory limit. The message states the least limit that does.
    BackendUnavailable, UnsupportedPrecision, UnsupportedError
        If the backend, its precision or a combination of arguments is not available.

    Warns
    -----
    SlowPlanWarning
        If the memory limit makes the run more than 20 times slower.

    Examples
    --------
    >>> import numpy as np
    >>> a, b, c = np.ones((2, 30)), np.ones((30, 4)), np.ones((4, 30))
    >>> float(einsum("ab,bc,cd->ad", a, b, c).sum())
    7200.0
    """
    if is_traced_by_dynamo() and backend is None and gemm is None and out is None:
        from trnqc.contraction.run import traced  # PyTorch is imported already

        options = {"memory_limit": memory_limit, "check_finite": check_finite, "symmetries": symmetries}
        traced_run = traced.einsum if memory_limit is None and not symmetries else traced.einsum_in_loops
        return traced_run(subscripts, operands, options)
    own = backend is None and memory_limit is None and gemm is None and out is None and not (symmetries or unknown)
    if own and optimize is True:
        run = numpy_run(subscripts, operands, time_limit)
        result = None if run is None else _run_on_numpy(run, operands, check_finite)
        if result is not None:
            return result
    if unknown:
        raise unknown_argument(next(iter(unknown)))
    if not isinstance(subscripts, str):
        subscripts, operands = from_interleaved((subscripts, *operands))
    if backend is not None:
        if gemm is not None:
            raise ArgumentError("gemm and backend both say what multiplies matrices; leave one of them out")
        gemm = backend_kernels(backend, precision, operands).gemm
    return contracted(subscripts, operands, memory_limit, gemm, check_finite, out, symmetries, time_limit, optimize)


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


def _run_on_numpy(run: Run, operands: Sequence[np.ndarray], check_finite: bool) -> np.ndarray | None:
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


# The name under which users of opt_einsum look for it.
contract = einsum


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
) -> Any:
    """Return what `einsum` returns, by the library of the arrays or by `gemm`."""
    arrays = as_arrays(operands)
    if out is not None or any(is_dataset(x) for x in arrays):
        if symmetries:
            raise UnsupportedError("symmetries go with arrays in memory and without out; leave them out")
        if not isinstance(optimize, bool | str | None):
            raise UnsupportedError("a path goes with arrays in memory and without out; leave optimize out")
        return _einsum_stored(subscripts, arrays, memory_limit, gemm, check_finite, out, time_limit)
    # While PyTorch traces, extents may be symbols; planning needs numbers.
    shapes = tuple(tuple(map(int, x.shape)) for x in arrays)
    exchanges, same = declared_exchanges(symmetries, arrays, shapes)
    # A plan depends on the size of an element only if memory is limited; other plans are shared between types.
    size = 8 if memory_limit is None else itemsize_of(arrays)
    path = requested_path(optimize, subscripts, shapes)
    plan, parsed = plan_subscripts(subscripts, shapes, size, memory_limit, time_limit, exchanges, same, path)
    plan.warn_if_slow(stacklevel=4)
    arrays = [squeezed(x, axes) for x, axes in zip(arrays, parsed.squeezed)]
    return run_arrays(plan, arrays, gemm, check_finite)


def _einsum_stored(
    subscripts: str,
    arrays: Sequence[Any],
    memory_limit: int | None,
    gemm: Gemm | None,
    check_finite: bool,
    out: Any,
    time_limit: float | None,
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
        return einsum_stored(plan.trees[0], operands, out, memory_limit, check_finite)


def einsum_plan(
    expression: Any,
    *operands: Any,
    outputs: Sequence[str] = (),
    memory_limit: int | None = None,
    grid: Sequence[int] = (),
    backend: str | None = None,
    precision: str = "fp64",
    symmetries: Symmetries | None = None,
    time_limit: float | None = TIME_LIMIT,
) -> Plan:
    """Return the plan of subscripts or of a program.

    Parameters
    ----------
    expression, *operands
        Subscripts and arrays or their shapes, or the interleaved form of `einsum`. Or a program, as text
        (`trnqc.expression.text`) or `Program`, and one dictionary name -> array or shape, which is not needed if the
        program states all extents.
    outputs : sequence of str
        Targets of a program that a run returns; by default those that no later statement reads.
    memory_limit : int, optional
        Bytes for temporaries.
    grid : sequence of int
        Processors along each dimension, such as (2, 2), over which the trees of the plan are distributed
        (`Plan.distributions`).
    backend, precision : str
        The plan's `run` multiplies matrices on this backend. Recognised pair energies run in the fused kernel of the
        backend, or of the CPU where none is named.
    symmetries : mapping, optional
        As of `einsum`; the tensors of a program declare theirs themselves.
    time_limit : float, optional
        Seconds of processor time that planning may take, None for no limit. The plan is then the best so far and
        lists what was not searched (`Plan.omitted`).

    Returns
    -------
    Plan

    Raises
    ------
    ExpressionError
        If the subscripts or the program are invalid.
    MemoryLimit
        If no loops fit into the memory limit. The message states the least limit that does.
    BackendUnavailable, UnsupportedPrecision
        If the backend cannot run here, or not in this precision.

    Warns
    -----
    SlowPlanWarning
        If the memory limit makes a run more than 20 times slower.

    Examples
    --------
    >>> plan = einsum_plan("acik,befl,dfjk,cdel->abij", *[(10, 10, 10, 10)] * 4)
    >>> print(plan.operations)
    6 N^6
    """
    if not isinstance(expression, str | Program):
        expression, operands = from_interleaved((expression, *operands))
    if isinstance(expression, str) and "=" not in expression:
        plan = _subscripts_plan(expression, operands, memory_limit, symmetries, time_limit)
    else:
        if symmetries:
            raise InputError("symmetries go with subscripts; tensors of a program declare theirs: symmetric(0,1)(2,3)")
        plan, operands = _program_plan(expression, operands, outputs, memory_limit, time_limit)
    plan = replace(plan, grid=tuple(grid), memory=memory_limit)
    if backend is not None:
        plan = replace(plan, kernels=backend_kernels(backend, precision, [x for x in operands if type(x) is not tuple]))
    elif plan.pairs:
        plan = replace(plan, kernels=fused_pair_kernels())
    plan.warn_if_slow(stacklevel=3)
    return plan


def _subscripts_plan(
    subscripts: str,
    operands: Sequence[Any],
    memory_limit: int | None,
    symmetries: Symmetries | None,
    time_limit: float | None,
) -> Plan:
    shapes = tuple(shape_of(x) for x in operands)
    size = itemsize_of([x for x in operands if hasattr(x, "shape")])
    exchanges, same = declared_exchanges(symmetries, operands, shapes)
    return plan_subscripts(subscripts, shapes, size, memory_limit, time_limit, exchanges, same)[0]


def _program_plan(
    expression: str | Program,
    operands: Sequence[Any],
    outputs: Sequence[str],
    memory_limit: int | None,
    time_limit: float | None,
) -> tuple[Plan, tuple[Any, ...]]:
    """Return the plan of a program, and the arrays or shapes that were passed."""
    program = parse(expression) if isinstance(expression, str) else expression
    if len(operands) > 1 or (operands and not isinstance(operands[0], Mapping)):
        raise InputError("the operands of a program come as one dictionary: name -> array or shape")
    named: Mapping[str, Any] = operands[0] if operands else {}
    program = program.shaped({name: shape_of(x) for name, x in named.items() if not callable(x)})
    arrays = tuple(named.values())
    return plan_statements(program, outputs, itemsize_of(arrays), memory_limit, time_limit), arrays
