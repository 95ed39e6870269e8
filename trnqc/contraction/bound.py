"""Plans with some of their inputs bound: what depends on these alone is computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from trnqc.contraction.binding import Split, split
from trnqc.contraction.computation import Computation
from trnqc.contraction.products.arrays import itemsize
from trnqc.contraction.report import listing
from trnqc.contraction.run.dispatch import run_computation
from trnqc.contraction.run.operands import checked_operands, named_operands
from trnqc.contraction.tape.instructions import tape_of
from trnqc.errors import InputError, MemoryLimit


class BoundPlan:
    """A plan whose other inputs each run takes; `Plan.bind` makes it. Printing it shows what runs once and each time.

    Attributes
    ----------
    bound, rest : tuple of str
        Names of the inputs that are bound, and of those that a run takes, in the order of the plan.
    multiply_adds_once, multiply_adds : int
        Multiply-adds when the plan was bound, and in each run.
    kept_elements : int
        Elements of the intermediates that are kept.
    """

    def __init__(self, plan: Computation, operands: Mapping[str, Any], check_finite: bool) -> None:
        self.bound = tuple(name for name, _ in plan.inputs if name in operands)
        self.rest = tuple(name for name, _ in plan.inputs if name not in operands)
        self._plan, self._split = plan, split(plan, self.bound)
        _require_memory(plan, self._split, operands)
        values = checked_operands(plan, operands, check_finite)
        once, kept = self._split.once, self._split.kept
        if once:
            first = {name: values[name] for name, _ in once.inputs}
            results = run_computation(once, first, check_finite=False, tape=tape_of(once))
            values |= {kept[0]: results} if len(kept) == 1 else results
        each = self._split.each
        # The numbers of targets that no run changes are those of the arrays kept.
        self._is_kept = {a.target for a in each.assignments if all(set(p.names) <= set(kept) for p in a.parts)}
        read = {name for name, _ in each.inputs}
        self._values = {name: value for name, value in values.items() if name in read}
        self._tape = tape_of(each)

    @property
    def multiply_adds_once(self) -> int:
        return self._split.once.multiply_adds if self._split.once else 0

    @property
    def multiply_adds(self) -> int:
        return self._split.each.multiply_adds

    @property
    def kept_elements(self) -> int:
        return self._split.kept_elements

    def run(self, *operands: Any, check_finite: bool = True, **named: Any) -> Any:
        """Compute the outputs from the other inputs.

        Parameters
        ----------
        *operands, **named
            The inputs `rest`, in this order, by name, or as one mapping, as of `Plan.run`.
        check_finite : bool
            As of `Plan.run`, for these operands.

        Returns
        -------
        array or dict
            As of `Plan.run`.

        Raises
        ------
        InputError
            If an operand is missing, is bound already, or is refused.
        """
        given = {**operands[0], **named} if len(operands) == 1 and isinstance(operands[0], Mapping) else named
        if twice := [name for name in given if name in self.bound]:
            raise InputError(f"{twice[0]} is bound already; a run takes {', '.join(self.rest) or 'no operands'}")
        inputs = [(name, ()) for name in self.rest]
        values = checked_operands(self._plan, named_operands(inputs, operands, named), check_finite)
        each = self._split.each
        results = run_computation(each, self._values | values, check_finite=False, tape=self._tape)
        # Callers may write into results, but not into what is kept.
        if len(each.outputs) == 1:
            return results * 1 if each.outputs[0] in self._is_kept else results
        return {name: x * 1 if name in self._is_kept else x for name, x in results.items()}

    def __str__(self) -> str:
        once, each, kept = self._split.once, self._split.each, self._split.kept
        lines = [each.title, ", ".join(f"{symbol} = {extent}" for symbol, extent in each.extents.items())]
        if once:
            lines += ["", f"once, from {', '.join(self.bound)}", *listing.steps(once)]
        lines += ["", f"in each run, from {', '.join(self.rest) or 'what is kept'}", *listing.steps(each), ""]
        lines.append(
            f"multiply-adds  {self.multiply_adds_once:.4g} once, {self.multiply_adds:.4g} in each run; "
            f"{self._plan.multiply_adds:.4g} in each run with nothing bound"
        )
        held = f"{self.kept_elements:.4g} elements, {listing.bytes_text(self.kept_elements * listing.BYTES)} in fp64"
        lines.append(f"kept           {len(kept)} intermediates, {held}")
        peak = f"{each.peak:.4g} elements, {listing.bytes_text(each.peak * listing.BYTES)} in fp64"
        lines.append(f"peak memory    {peak} in a run, beside operands, results and what is kept")
        return "\n".join(lines)


def bound_operands(names: Sequence[str], operands: Sequence[Any], named: Mapping[str, Any]) -> dict[str, Any]:
    """Return the operands to bind by name; `names` are the inputs of the plan.

    Raises InputError for operands that are unknown, given twice, or given without a name.
    """
    expected = f"the plan takes {', '.join(names)}"
    if len(operands) > 1 or (operands and not isinstance(operands[0], Mapping)):
        raise InputError(f"operands are bound by name, bind({names[0]}=...), or as one mapping; {expected}")
    mapping: Mapping[str, Any] = operands[0] if operands else {}
    if twice := [name for name in mapping if name in named]:
        raise InputError(f"{twice[0]} is bound twice, in the mapping and by name; leave one of them out")
    given = {**mapping, **named}
    if unknown := [name for name in given if name not in names]:
        raise InputError(f"{expected}; found {unknown[0]}, which cannot be bound")
    return given


def _require_memory(plan: Computation, parts: Split[Computation], operands: Mapping[str, Any]) -> None:
    """Raise MemoryLimit if what is kept and the temporaries of a run together exceed the limit of the plan."""
    if plan.memory is None or parts.once is None:
        return
    size = itemsize([x for x in operands.values() if hasattr(x, "dtype")])
    kept = parts.kept_elements * size
    needed = kept + max(parts.once.peak, parts.each.peak) * size
    if needed > plan.memory:
        raise MemoryLimit(
            f"intermediates of the bound operands need {kept} bytes, and {needed} bytes together with temporaries; "
            f"memory_limit is {plan.memory} bytes: raise it to {needed} or more, bind fewer operands, or take Plan.run"
        )
