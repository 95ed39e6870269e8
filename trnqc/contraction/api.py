"""The public functions: `einsum` computes one contraction, `einsum_plan` returns its plan."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from trnqc.arrays import is_traced_by_dynamo
from trnqc.contraction.arguments import (
    Symmetries,
    declared_exchanges,
    from_interleaved,
    itemsize_of,
    shape_of,
    unknown_argument,
)
from trnqc.contraction.eager import contracted, contracted_in_semiring, numpy_run, run_on_numpy
from trnqc.contraction.kernels import Gemm, backend_kernels, fused_pair_kernels
from trnqc.contraction.plan import Plan
from trnqc.contraction.planning.orders import Optimize, requested_order
from trnqc.contraction.planning.statements import plan_statements, plan_subscripts
from trnqc.contraction.semiring import Semiring
from trnqc.contraction.slow_plans import MAX_SLOWDOWN
from trnqc.contraction.time_limit import TIME_LIMIT
from trnqc.errors import ArgumentError, InputError, UnsupportedError
from trnqc.expression.program import Program
from trnqc.expression.text import parse


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
    max_slowdown: float | None = MAX_SLOWDOWN,
    semiring: str | Semiring | None = None,
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
    optimize : path, tree, planner, bool or str
        A path of ``numpy.einsum_path`` or opt_einsum, a ``ContractionTree`` of cotengra, or a planner of either is
        followed. Sliced indices of a tree become loops around the steps that have them. Booleans and names of other
        libraries' planners stand for our own order, which needs no more work.
    max_slowdown : float, optional
        A memory limit that is estimated to make the run more times slower than this is refused; None to refuse none.
    semiring : str or Semiring, optional
        What takes the place of sums and products of NumPy arrays: "min-plus", "max-plus", "max-times" (of numbers that
        are not negative), "or-and" (of truth values), or a `trnqc.contraction.Semiring`. Whole numbers become fp64.
        `check_finite` then says whether elements outside of the semiring are refused; infinities may be elements.

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
        If no loops fit into the memory limit, or if it makes the run more than `max_slowdown` times slower. The message
        states a limit that does.
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
    if semiring is not None:
        others = {"backend": backend, "memory_limit": memory_limit, "gemm": gemm, "out": out, "symmetries": symmetries}
        if given := [name for name, value in {**others, **unknown}.items() if value is not None]:
            raise UnsupportedError(f"semiring does not go with {given[0]}; leave {given[0]} out")
        if not isinstance(subscripts, str):
            subscripts, operands = from_interleaved((subscripts, *operands))
        return contracted_in_semiring(subscripts, operands, semiring, check_finite, time_limit, optimize)
    if is_traced_by_dynamo() and backend is None and gemm is None and out is None:
        from trnqc.contraction import traced  # PyTorch is imported already

        options = {
            "memory_limit": memory_limit,
            "check_finite": check_finite,
            "symmetries": symmetries,
            "max_slowdown": max_slowdown,
        }
        traced_run = traced.einsum if memory_limit is None and not symmetries else traced.einsum_in_loops
        return traced_run(subscripts, operands, options)
    own = backend is None and memory_limit is None and gemm is None and out is None and not (symmetries or unknown)
    if own and optimize is True:
        run = numpy_run(subscripts, operands, time_limit)
        result = None if run is None else run_on_numpy(run, operands, check_finite)
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
    return contracted(
        subscripts, operands, memory_limit, gemm, check_finite, out, symmetries, time_limit, optimize, max_slowdown
    )


# The name under which users of opt_einsum look for it.
contract = einsum


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
    max_slowdown: float | None = MAX_SLOWDOWN,
    optimize: Optimize = True,
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
    max_slowdown : float, optional
        As of `einsum`.
    optimize : path, tree, planner, bool or str
        As of `einsum`, for subscripts. `Plan.executed_multiply_adds` counts what slices compute again.

    Returns
    -------
    Plan

    Raises
    ------
    ExpressionError
        If the subscripts or the program are invalid.
    MemoryLimit
        If no loops fit into the memory limit, or if it makes a run more than `max_slowdown` times slower. The message
        states a limit that does.
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
        planned, size = _subscripts_plans(expression, operands, symmetries, time_limit, optimize)
    else:
        if symmetries:
            raise InputError("symmetries go with subscripts; tensors of a program declare theirs: symmetric(0,1)(2,3)")
        if not isinstance(optimize, bool | str | None):
            raise InputError("optimize is an order of one product and goes with subscripts; leave it out for programs")
        planned, size, operands = _program_plans(expression, operands, outputs, time_limit)
    plan = planned(memory_limit)
    plan = replace(plan, grid=tuple(grid), memory=memory_limit)
    if backend is not None:
        plan = replace(plan, kernels=backend_kernels(backend, precision, [x for x in operands if type(x) is not tuple]))
    elif plan.pairs:
        plan = replace(plan, kernels=fused_pair_kernels())
    plan.check_slowdown(max_slowdown, planned, size, stacklevel=3)
    return plan


# From a memory limit to the plan of an expression.
Planned = Callable[[int | None], Plan]


def _subscripts_plans(
    subscripts: str,
    operands: Sequence[Any],
    symmetries: Symmetries | None,
    time_limit: float | None,
    optimize: Optimize,
) -> tuple[Planned, int]:
    """Return what plans the subscripts within a memory limit, and the bytes of an element."""
    shapes = tuple(shape_of(x) for x in operands)
    size = itemsize_of([x for x in operands if hasattr(x, "shape")])
    exchanges, same = declared_exchanges(symmetries, operands, shapes)
    order = requested_order(optimize, subscripts, shapes)
    return lambda limit: plan_subscripts(subscripts, shapes, size, limit, time_limit, exchanges, same, order)[0], size


def _program_plans(
    expression: str | Program, operands: Sequence[Any], outputs: Sequence[str], time_limit: float | None
) -> tuple[Planned, int, tuple[Any, ...]]:
    """Return what plans the program within a memory limit, the bytes of an element, and the arrays or shapes."""
    program = parse(expression) if isinstance(expression, str) else expression
    if len(operands) > 1 or (operands and not isinstance(operands[0], Mapping)):
        raise InputError("the operands of a program come as one dictionary: name -> array or shape")
    named: Mapping[str, Any] = operands[0] if operands else {}
    program = program.shaped({name: shape_of(x) for name, x in named.items() if not callable(x)})
    arrays = tuple(named.values())
    size = itemsize_of(arrays)
    return lambda limit: plan_statements(program, outputs, size, limit, time_limit), size, arrays
