"""What users call: `einsum` for one contraction and `einsum_plan` to see its plan before it runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import numpy as np

from trnqc.contraction.cost.counts import Count
from trnqc.contraction.ladder.pattern import ladder_of
from trnqc.contraction.memory.schedule import ElementLimit
from trnqc.contraction.order.expansion import expanded
from trnqc.contraction.order.operations import tree_of_path
from trnqc.contraction.order.program import best_tree, plan_program, unread
from trnqc.contraction.order.symmetric_pairs import with_pairs
from trnqc.contraction.pair_energy import pair_forms
from trnqc.contraction.plan import Assignment, Part, Plan
from trnqc.contraction.run.arrays import as_arrays, itemsize
from trnqc.contraction.run.execute import Gemm
from trnqc.contraction.time_limit import TIME_LIMIT, planning
from trnqc.errors import ArgumentError, InputError, MemoryLimit, UnsupportedError
from trnqc.expression.program import Program
from trnqc.expression.subscripts import Shape, Subscripts, interleaved, parse_subscripts
from trnqc.expression.symmetry import Exchange, Symmetry, parse_symmetries
from trnqc.expression.text import parse

RESULT = "result"
# How many times longer passes over arrays on disk may be planned.
STORED = 30
# For each operand the exchanges of its axes that leave it unchanged.
Exchanges = tuple[tuple[Exchange, ...], ...]
Symmetries = Mapping[int, str | Sequence[str]]
# Pairs of places of operands, whose product goes to the end.
Path = tuple[tuple[int, ...], ...]
Optimize = bool | str | Sequence[Any] | Callable[..., Any] | None


def einsum(
    subscripts: Any,
    *operands: Any,
    memory_limit: int | None = None,
    gemm: Gemm | None = None,
    check_finite: bool = True,
    out: Any = None,
    symmetries: Symmetries | None = None,
    time_limit: float | None = TIME_LIMIT,
    optimize: Optimize = True,
    **unknown: Any,
) -> Any:
    """NumPy's einsum with the work planned: einsum("acik,befl,dfjk,cdel->abij", A, B, C, D).

    operands: NumPy, PyTorch or like arrays of one library; the interleaved form of NumPy is taken too. memory_limit:
    bytes for temporaries. gemm(a_t[Z, K, M], b[Z, K, N]) -> [Z, M, N] replaces the library's matrix product.
    check_finite: refuse operands with nan or inf, or without their symmetry. The result may be a view with transposed
    axes. optimize: a path, as opt_einsum and numpy.einsum_path write it, or a planner that opt_einsum takes, is
    followed; True, False and names of other libraries' planners stand for our order, which needs no more work.
    symmetries: of operands by number, in letters of any choice: {2: "efij = feji", 0: ["abij = -baij = -abji"]};
    operands that are one array are then seen to be.
    Operands may be h5py datasets beside NumPy arrays, and out a dataset, the path of a new file, whose dataset `result`
    it becomes, or an array: tiles are then read and written (`trnqc.contraction.run.stored`).
    time_limit: seconds of the processor that planning may take, None for no limit; then the best plan so far runs.
    Raises ExpressionError (subscripts, extents), InputError (operands), ArgumentError (a TypeError too), MemoryLimit;
    warns with SlowPlanWarning where the memory limit makes the run more than 20 times slower.
    """
    if unknown:
        raise ArgumentError(_advice(next(iter(unknown))))
    if not isinstance(subscripts, str):
        subscripts, operands = _spelt((subscripts, *operands))
    arrays = as_arrays(operands)
    if out is not None or any(_on_disk(x) for x in arrays):
        if symmetries:
            raise UnsupportedError("symmetries go with arrays in memory and without out; leave them out")
        if not isinstance(optimize, bool | str | None):
            raise UnsupportedError("a path goes with arrays in memory and without out; leave optimize out")
        return _stored(subscripts, arrays, memory_limit, gemm, check_finite, out, time_limit)
    # Lengths may be symbols while PyTorch traces; a plan is for numbers.
    shapes = tuple(tuple(map(int, x.shape)) for x in arrays)
    stated = _stated(symmetries, arrays, shapes)
    # Plans depend on how long an element is only where memory is limited.
    size = 8 if memory_limit is None else _itemsize(arrays)
    path = () if isinstance(optimize, bool | str | None) else _path(optimize, subscripts, shapes)
    plan, parsed = _planned(subscripts, shapes, size, memory_limit, time_limit, *stated, path)
    plan.warn()
    squeezed = [_squeeze(x, axes) for x, axes in zip(arrays, parsed.squeezed)]
    return plan.run_planned(squeezed, gemm, check_finite)


def _stated(
    symmetries: Symmetries | None, operands: Sequence[Any], shapes: Sequence[Shape]
) -> tuple[Exchanges, tuple[int, ...]]:
    """Exchanges of each operand, and for each the first that is the same array."""
    if not symmetries:
        return (), ()
    ids = [id(x) for x in operands]
    return parse_symmetries(symmetries, shapes), tuple(
        k if isinstance(x, tuple) else ids.index(id(x)) for k, x in enumerate(operands)
    )


def _on_disk(operand: Any) -> bool:
    return type(operand).__module__.startswith("h5py.")


def _stored(
    subscripts: str,
    arrays: Sequence[Any],
    memory_limit: int | None,
    gemm: Gemm | None,
    check_finite: bool,
    out: Any,
    time_limit: float | None,
) -> Any:
    # HDF5 is not opened for those who have all in memory.
    from trnqc.contraction.run.stored import einsum_stored

    others = [x for x in arrays if not _on_disk(x) and not isinstance(x, np.ndarray)]
    if gemm is not None or others:
        found = "a backend" if gemm is not None else type(others[0]).__name__
        raise UnsupportedError(f"datasets and out go with NumPy arrays and its products; found {found}")
    plan, parsed = _planned(subscripts, tuple(tuple(x.shape) for x in arrays), 8, None, time_limit)
    if any(parsed.squeezed):
        raise UnsupportedError("datasets and out take operands whose extents agree; axes of extent one are spread here")
    operands = {name: x for (name, _), x in zip(plan.inputs, arrays)}
    # The same call after a kill goes on only where it finds the same plan: here the clock is for what would never end.
    with planning(None if time_limit is None else STORED * time_limit):
        return einsum_stored(plan.trees[0], operands, out, memory_limit, check_finite)


# The name under which opt_einsum's users look for it.
contract = einsum


def einsum_plan(
    expression: Any,
    *operands: Any,
    outputs: Sequence[str] = (),
    memory_limit: int | None = None,
    grid: Sequence[int] = (),
    symmetries: Symmetries | None = None,
    time_limit: float | None = TIME_LIMIT,
) -> Plan:
    """The plan of subscripts, or of a program: a Program, or its text (trnqc.expression.text).

    Parameters
    ----------
    expression, *operands
        Subscripts and the arrays or their shapes, or the interleaved form of `einsum`; or a program and one dictionary
        name -> array or shape, which is not needed where the program states all extents.
    outputs : sequence of str
        Targets of a program to hand back; those that nothing reads where none is named.
    memory_limit : int, optional
        Bytes for temporaries.
    grid : sequence of int
        Processors along each dimension, such as (2, 2), over which the plan says how to distribute each of its trees
        (`Plan.distributions`).
    symmetries : mapping, optional
        As of `einsum`; the tensors of a program declare theirs themselves.
    time_limit : float, optional
        Seconds of the processor that planning may take, None for no limit; then the plan is the best so far, and says
        what was not searched (`Plan.omitted`).

    Returns
    -------
    Plan

    Raises
    ------
    ExpressionError
        For subscripts or a program that mean nothing.
    MemoryLimit
        If no loops keep the limit of memory; the message says in bytes what would do.

    Warns
    -----
    SlowPlanWarning
        If the memory limit makes a run more than 20 times slower.
    """
    plan, program = _plan(expression, operands, outputs, memory_limit, symmetries, time_limit)
    pairs = pair_forms(program, plan.outputs) if program else ()
    plan = replace(plan, grid=tuple(grid), pairs=pairs, memory=memory_limit)
    plan.warn()
    return plan


def _plan(
    expression: Any,
    operands: tuple[Any, ...],
    outputs: Sequence[str],
    memory_limit: int | None,
    symmetries: Symmetries | None,
    time_limit: float | None,
) -> tuple[Plan, Program | None]:
    if not isinstance(expression, str | Program):
        expression, operands = _spelt((expression, *operands))
    if isinstance(expression, str) and "=" not in expression:
        shapes = tuple(_shape(x) for x in operands)
        size = _itemsize([x for x in operands if hasattr(x, "shape")])
        stated = _stated(symmetries, operands, shapes)
        return _planned(expression, shapes, size, memory_limit, time_limit, *stated)[0], None
    if symmetries:
        raise InputError("symmetries go with subscripts; the tensors of a program declare theirs: symmetric(0,1)(2,3)")
    program = parse(expression) if isinstance(expression, str) else expression
    if len(operands) > 1 or (operands and not isinstance(operands[0], Mapping)):
        raise InputError("the operands of a program come as one dictionary: name -> array or shape")
    given: Mapping[str, Any] = operands[0] if operands else {}
    program = program.shaped({name: _shape(x) for name, x in given.items() if not callable(x)})
    size = _itemsize(list(given.values()))
    with planning(time_limit) as clock:
        plan = _program_plan(program, tuple(outputs) or unread(program), size, memory_limit)
    return replace(plan, omitted=clock.omitted, time_limit=time_limit), program


def _program_plan(program: Program, wanted: tuple[str, ...], size: int, memory_limit: int | None) -> Plan:
    # What terms share, and what statements keep, is held until its last use: what is written out waits for nothing.
    attempts: tuple[Callable[[], Plan], ...] = (
        lambda: plan_program(program, wanted),
        lambda: plan_program(program, wanted, share=False, factor=False),
        lambda: plan_program(expanded(program, wanted), wanted, share=False, factor=False),
    )
    for attempt in attempts[:-1]:
        try:
            return _within(attempt(), size, memory_limit)
        except MemoryLimit:
            continue
    return _within(attempts[-1](), size, memory_limit)


def _within(plan: Plan, size: int, memory_limit: int | None) -> Plan:
    """size: bytes of an element."""
    if memory_limit is None:
        return plan.within(None)
    if not isinstance(memory_limit, int | float | np.number):
        raise InputError(f"memory_limit is a number of bytes; found {memory_limit!r}")
    try:
        return plan.within(int(memory_limit // size))
    except ElementLimit as error:
        raise MemoryLimit(
            f"{error.what} need {error.needed * size} bytes of memory at least; memory_limit is {memory_limit} bytes: "
            f"raise it to {error.needed * size} or more"
        ) from None


@lru_cache(maxsize=256)
def _planned(
    subscripts: str,
    shapes: tuple[Shape, ...],
    size: int,
    memory_limit: int | None,
    time_limit: float | None,
    exchanges: Exchanges = (),
    same: tuple[int, ...] = (),
    path: Path = (),
) -> tuple[Plan, Subscripts]:
    parsed = parse_subscripts(subscripts, shapes)
    with planning(time_limit) as clock:
        plan = _within(_product_plan(parsed, exchanges, same, path), size, memory_limit)
    return replace(plan, omitted=clock.omitted, time_limit=time_limit, memory=memory_limit), parsed


def _product_plan(parsed: Subscripts, exchanges: Exchanges, same: tuple[int, ...], path: Path) -> Plan:
    # Dropping axes makes two arrays of one.
    leaves, indices = parsed.leaves(() if any(parsed.squeezed) else same), parsed.indices()
    known: dict[str, tuple[Exchange, ...]] = {}
    for leaf, found, squeezed in zip(leaves, exchanges, parsed.squeezed):
        # Numbers of axes are those of operands as they come.
        known[leaf.name] = (*known.get(leaf.name, ()), *(() if squeezed else found))
    symmetries = {k: _symmetries(x) for k, x in known.items()}
    if path:
        tree = with_pairs(tree_of_path(path, leaves, parsed.output, indices, RESULT), symmetries)
    else:
        tree = best_tree(list(leaves), parsed.output, indices, RESULT, symmetries)
    used = [label for labels in parsed.inputs for label in labels]
    operations = len(leaves) - 1 + bool(set(used) - set(parsed.output))
    return Plan(
        title=parsed.text,
        assignments=(Assignment(RESULT, parsed.output, (Part(Fraction(1), tree, ladder=ladder_of(tree, known)),)),),
        inputs=tuple((leaf.name, leaf.indices) for leaf in leaves),
        outputs=(RESULT,),
        direct=operations * Count.product(indices[label].symbol for label in dict.fromkeys(used)),
        exchanges=tuple(known.items()),
    )


def _symmetries(exchanges: Sequence[Exchange]) -> tuple[Symmetry, ...]:
    return tuple(Symmetry(e.pairs[0], e.sign) for e in exchanges if len(e.pairs) == 1)


def _spelt(operands: tuple[Any, ...]) -> tuple[str, tuple[Any, ...]]:
    if len(operands) < 2:
        raise InputError("einsum takes subscripts and operands, or operands each with its list of indices")
    text, arrays = interleaved(operands)
    return text, tuple(arrays)


def _path(optimize: Any, subscripts: str, shapes: tuple[Shape, ...]) -> Path:
    """The path that the caller gives, or that the caller's planner finds."""
    parsed = parse_subscripts(subscripts, shapes)
    if callable(optimize):
        optimize = optimize([set(labels) for labels in parsed.inputs], set(parsed.output), parsed.extents)
    steps = list(optimize) if isinstance(optimize, Iterable) else None
    if steps and steps[0] == "einsum_path":
        del steps[0]
    if steps is None or not all(isinstance(step, Iterable) for step in steps):
        raise ArgumentError(f"optimize is a path, a planner of paths, or anything that names one; found {optimize!r}")
    return tuple(tuple(int(place) for place in step) for step in steps)


def _advice(name: str) -> str:
    known = {
        "dtype": "convert the operands: the result has the type that holds every one of them",
        "casting": "convert the operands before",
        "order": "copy the result into the order of axes that you want",
        "use_blas": "every step is a product of matrices where it can be",
    }
    return f"einsum has no argument {name!r}: {known.get(name, 'see its documentation for those that it has')}"


def _shape(operand: Any) -> Shape:
    if isinstance(operand, tuple) and all(isinstance(n, int | np.integer) for n in operand):
        return tuple(map(int, operand))
    return tuple(as_arrays([operand])[0].shape)


def _itemsize(operands: Sequence[Any]) -> int:
    return itemsize([x for x in operands if hasattr(x, "dtype")])


def _squeeze(x: Any, axes: tuple[int, ...]) -> Any:
    return x.reshape(tuple(n for axis, n in enumerate(x.shape) if axis not in axes)) if axes else x
