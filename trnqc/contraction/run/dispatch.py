"""Running a computation: every part goes to the executor for its kind of steps and for where its operands lie."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.arrays import is_tensor, transform_of
from trnqc.contraction.computation import Computation, Part, SumAssignment
from trnqc.contraction.kernels import Gemm
from trnqc.contraction.ladder.run import run_ladder
from trnqc.contraction.pair_energy import pair_energies
from trnqc.contraction.products.arrays import Array, host_array, is_other, library_of, one_type
from trnqc.contraction.run.device import run_on_device
from trnqc.contraction.run.execute import run_steps
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.run.operands import (
    check_elements,
    checked_function,
    checked_operands,
    identities,
    require_numbers,
)
from trnqc.contraction.tape.instructions import Tape
from trnqc.contraction.tape.machine import run_tape
from trnqc.contraction.tree import Tree
from trnqc.expression.operand import Leaf

# (library, part, operands by name, product of matrices) -> (result without the coefficient, whether it is a new array)
Executor = Callable[[ModuleType, Part, Mapping[str, Any], Gemm | None], tuple[Array, bool]]


def run_computation(
    plan: Computation,
    operands: Mapping[str, Any],
    gemm: Gemm | None = None,
    check_finite: bool = True,
    tape: Tape | None = None,
) -> Any:
    """Return the outputs of a computation for arrays or functions by name; see `Plan.run` and `Plan.tape`."""
    tape = None if gemm or plan.kernels.gemm or plan.pairs else tape
    if tape and (results := _by_tape(plan, tape, operands, check_finite)):
        return _asked(plan, results)
    values = checked_operands(plan, operands, check_finite)
    library = library_of([x for x in values.values() if not callable(x)])
    if plan.pairs and plan.kernels.pairs and gemm is None:
        energies = pair_energies(plan.pairs, values, plan.kernels.pairs, plan.memory)
        if energies is not None:
            return np.float64(energies[plan.outputs[0]]) if len(plan.outputs) == 1 else energies
    values = {k: checked_function(k, x, check_finite) if callable(x) else x for k, x in values.items()}
    if library is np and tape and (results := run_tape(tape, values)):
        return _asked(plan, results)
    return _outputs(plan, library, values, gemm or plan.kernels.gemm)


def run_arrays(plan: Computation, arrays: Sequence[Any], gemm: Gemm | None, check_finite: bool) -> Any:
    """Return the outputs for arrays in the order of the inputs, which must have the plan's shapes."""
    library = library_of(arrays)
    names = [name for name, _ in plan.inputs]
    for name, array in zip(names, arrays):
        require_numbers(array, name)
    values = dict(zip(names, one_type(library, arrays)))
    if check_finite:
        for name, array in values.items():
            check_elements(plan, library, name, array)
    return _outputs(plan, library, values, gemm or plan.kernels.gemm)


def _outputs(plan: Computation, library: ModuleType, values: dict[str, Any], gemm: Gemm | None) -> Any:
    """Run the assignments in order. Arrays are dropped after their last use."""
    if len(plan.assignments) == 1 and not (plan.blocked or plan.identities or plan.assignments[0].accumulate):
        return _assigned(library, plan.assignments[0], values, gemm)
    like = next((x for x in values.values() if not callable(x)), np.zeros(1))
    if plan.blocked:
        values = {k: x for name, whole in values.items() for k, x in plan.blocked.inputs[name].split(whole).items()}
    values |= identities(plan, library, like)
    last = plan.last_reads()
    for k, assignment in enumerate(plan.assignments):
        values[assignment.target] = _assigned(library, assignment, values, gemm)
        for name in [name for name in values if last.get(name, -1) <= k and name not in plan.kept]:
            del values[name]
    if plan.blocked:
        values = {name: plan.blocked.targets[name].join(library, values, like) for name in plan.outputs}
    return _asked(plan, values)


def _by_tape(
    plan: Computation, tape: Tape, operands: Mapping[str, Any], check_finite: bool
) -> dict[str, np.ndarray] | None:
    """Return the outputs for plain arrays that need no check of their elements but whether they are finite.

    Elements that are not finite make the outputs so; None then, as for other operands.
    """
    if check_finite and (plan.exchanges or plan.divisors):
        return None
    shapes = plan.shapes
    if any(getattr(operands[name], "shape", None) != shape for name, shape in shapes.items()):
        return None
    results = run_tape(tape, operands)
    if results and check_finite and not all(np.isfinite(x).all() for x in results.values()):
        return None
    return results


def _asked(plan: Computation, values: Mapping[str, Any]) -> Any:
    if len(plan.outputs) == 1:
        return values[plan.outputs[0]]
    return {name: values[name] for name in plan.outputs}


def _assigned(library: ModuleType, assignment: SumAssignment, values: Mapping[str, Any], gemm: Gemm | None) -> Array:
    """Return the sum of the parts or its function, added to the target if the assignment accumulates."""
    total, is_new = (values[assignment.target] if assignment.accumulate else None), False
    for part in assignment.parts:
        term, term_is_new = run_part(library, part, values, gemm)
        total, is_new = added(total, is_new, term, term_is_new)
    return element_function(library, assignment.function, total, is_new) if assignment.function else total


def run_part(
    library: ModuleType, part: Part, values: Mapping[str, Any], gemm: Gemm | None = None
) -> tuple[Array, bool]:
    """Return coefficient * result of a part, and whether it is a new array; `values` are operands by name."""
    operands = {leaf.name: values[leaf.name] for leaf in part.tree.leaves}
    term, is_new = EXECUTORS[_kind(part, operands)](library, part, operands, gemm)
    return (term, is_new) if part.coefficient == 1 else (_scaled(term, part.coefficient, is_new), True)


def element_function(library: ModuleType, name: str, x: Array, is_new: bool) -> Array:
    """Return a function of each element, in place if x is a new array of floating-point numbers without derivatives."""
    if is_new and "float" in str(x.dtype) and x.ndim and not transform_of(x):
        if library is np:
            return getattr(np, name)(x, out=x)
        if is_tensor(x):
            return getattr(x, f"{name}_")()
    return getattr(library, name)(x)


def added(total: Array | None, total_is_new: bool, term: Array, term_is_new: bool) -> tuple[Array, bool]:
    """Return total + term, and whether it is a new array; a new total is added to in place."""
    if total is None:
        return term, term_is_new
    if total_is_new and total.dtype == term.dtype and total.ndim and not transform_of(term):
        total += term
        return total, True
    return total + term, True


def _kind(part: Part, operands: Mapping[str, Any]) -> str:
    if part.loops:
        return "ladder"
    if part.schedule is None:
        return "steps"
    return "loops on a device" if any(getattr(x, "is_cuda", False) for x in operands.values()) else "loops"


def _by_ladder(library: ModuleType, part: Part, operands: Mapping[str, Any], gemm: Gemm | None) -> tuple[Array, bool]:
    assert part.loops is not None
    if is_other(library):
        # The loops write into slices, which arrays of other libraries may not allow.
        on_host = {name: x if callable(x) else host_array(x, name) for name, x in operands.items()}
        return library.asarray(run_ladder(np, part.loops, on_host, gemm)), True
    return run_ladder(library, part.loops, operands, gemm), True


def _by_steps(library: ModuleType, part: Part, operands: Mapping[str, Any], gemm: Gemm | None) -> tuple[Array, bool]:
    whole = {leaf.name: _whole(leaf, part.tree, operands[leaf.name]) for leaf in part.tree.leaves}
    # If the last step only permutes axes, the result is a view of another array.
    is_new = part.steps[-1].operation.kind != "copy"
    if library is np and gemm is None and part.calls:
        return part.calls([whole[name] for name in part.names]), is_new
    plain = library is np and gemm is None and not any(transform_of(x) for x in whole.values())
    return run_steps(library, part.steps, whole, gemm, chains=part.chains if plain else ()), is_new


def _by_loops(library: ModuleType, part: Part, operands: Mapping[str, Any], gemm: Gemm | None) -> tuple[Array, bool]:
    assert part.schedule is not None
    on_host = {k: x if callable(x) else host_array(x, k) for k, x in sorted(operands.items())}
    result = run_schedule(part.schedule, on_host, gemm=gemm, orders=part.axis_orders, tapes=part.tapes)
    return (result if library is np else library.asarray(result)), True


def _on_device(library: ModuleType, part: Part, operands: Mapping[str, Any], gemm: Gemm | None) -> tuple[Array, bool]:
    assert part.schedule is not None
    like = next(x for x in operands.values() if getattr(x, "is_cuda", False))
    return run_on_device(library, part.schedule, operands, like, gemm), True


# Kind of a part -> the function that runs it.
EXECUTORS: dict[str, Executor] = {
    "steps": _by_steps,
    "loops": _by_loops,
    "loops on a device": _on_device,
    "ladder": _by_ladder,
}


def _whole(leaf: Leaf, tree: Tree, value: Any) -> Array:
    """Return the array of a leaf; a function is asked for all of its elements."""
    return value(*(slice(0, tree.extent(label)) for label in leaf.indices)) if callable(value) else value


def _scaled(x: Array, coefficient: Fraction, is_new: bool) -> Array:
    """Return coefficient * x. Whole coefficients keep the element type; a new array is scaled in place if it can."""
    factor = int(coefficient) if coefficient.denominator == 1 else float(coefficient)
    holds_product = isinstance(factor, int) or "float" in str(x.dtype) or "complex" in str(x.dtype)
    if is_new and holds_product and x.ndim:
        x *= factor
        return x
    return x * factor
