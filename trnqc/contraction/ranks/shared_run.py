"""One run of a shared program on one rank: its shares of the parts, and the messages between them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from trnqc.contraction.computation import SumAssignment
from trnqc.contraction.kernels import Gemm
from trnqc.contraction.ranks.exchange import RankExchange
from trnqc.contraction.run.dispatch import added, element_function, run_part
from trnqc.contraction.shares.division import Division, SharedAssignment
from trnqc.contraction.shares.local_parts import LocalPart, LocalRead, cut
from trnqc.ranks import Ranks


class _Sums:
    """The sums of an assignment in progress: of whole results, of ranges, and of arrays to be added over ranks."""

    def __init__(self) -> None:
        self.values: dict[str, tuple[Any, bool]] = {}

    def add(self, kind: str, term: Any, is_new: bool) -> None:
        """Add a term to the sum "whole", "range" or "partial"; new arrays are added to in place."""
        total, total_is_new = self.values.get(kind, (None, False))
        self.values[kind] = added(total, total_is_new, term, is_new)

    def take(self, kind: str) -> tuple[Any, bool]:
        """Return a sum and whether it is a new array, and forget it; None if there is none."""
        return self.values.pop(kind, (None, False))


class SharedRun:
    """One run on this rank. `parts` are its shares of the parts of each assignment.

    Attributes
    ----------
    exchange : RankExchange
        The messages of the run.
    """

    def __init__(
        self,
        assignments: Sequence[SumAssignment],
        division: Division,
        parts: Sequence[Sequence[LocalPart]],
        ranks: Ranks,
        gemm: Gemm | None,
    ) -> None:
        self.assignments, self.division, self.parts, self.ranks, self.gemm = assignments, division, parts, ranks, gemm
        self.exchange = RankExchange(ranks, division.piece)
        self.values: dict[str, Any] = {}
        # Array -> the axis along which it is divided; None if it is whole.
        self.forms: dict[str, int | None] = {}
        # Targets that are no views of operands, so that a later assignment may add to them in place.
        self.owned: set[str] = set()
        self.shapes = {a.target: tuple(a.parts[0].tree.extent(label) for label in a.labels) for a in assignments}

    def results(self, values: dict[str, Any], kept: frozenset[str]) -> dict[str, Any]:
        """Return the whole arrays `kept` from operands by name."""
        self.values, self.forms = values, dict.fromkeys(values)
        last = {name: k for k, assignment in enumerate(self.assignments) for name in assignment.reads}
        for k, (assignment, step) in enumerate(zip(self.assignments, self.division.steps)):
            self.ranks.at(f"{assignment.target}, assignment {k + 1} of {len(self.assignments)}")
            self._gather(step.gathered)
            self._assign(assignment, step, self.parts[k])
            for name in [name for name in self.values if last.get(name, -1) <= k and name not in kept]:
                del self.values[name]
        self.ranks.at("outputs")
        self._gather(self.division.gathered)
        return {name: self.values[name] for name in kept}

    def _gather(self, names: Sequence[str]) -> None:
        """Make arrays whole."""
        for name in names:
            axis = self.forms[name]
            assert axis is not None
            self.values[name] = self.exchange.gathered(self.values[name], axis, self.shapes[name][axis])
            self.forms[name] = None
            self.owned.add(name)

    def _assign(self, assignment: SumAssignment, step: SharedAssignment, parts: Sequence[LocalPart]) -> None:
        """Compute a target and leave it as the step says."""
        target, sums = assignment.target, _Sums()
        if assignment.accumulate:
            self._begin(assignment, step, sums)
        for local in parts:
            operands = {read.local: self._read(read) for read in local.reads}
            self._add(sums, local, step, *run_part(np, local.part, operands, self.gemm))
        value, is_new = self._combined(sums, step, self.shapes[target])
        if assignment.function:
            value, is_new = element_function(np, assignment.function, value, is_new), True
        self.values[target], self.forms[target] = value, None if step.whole else step.axis
        (self.owned.add if is_new else self.owned.discard)(target)

    def _begin(self, assignment: SumAssignment, step: SharedAssignment, sums: _Sums) -> None:
        """Begin a sum with what the target is."""
        target = assignment.target
        value, is_divided = self.values[target], self.forms[target] is not None
        is_read = any(target in part.names for part in assignment.parts)
        if is_divided or step.whole:
            sums.add("range" if is_divided else "whole", value, target in self.owned and not is_read)
        else:
            assert step.axis is not None
            sums.add("range", self._own(value, step.axis).copy(), True)

    def _add(self, sums: _Sums, local: LocalPart, step: SharedAssignment, term: Any, is_new: bool) -> None:
        """Add the result of a part to the sum to which it belongs."""
        if local.partial:
            sums.add("partial", np.asarray(term), is_new)
        elif local.axis is not None:
            sums.add("range", term, is_new)
        elif step.whole:
            sums.add("whole", term, is_new)
        else:
            assert step.axis is not None
            # A view would keep all of a new array.
            own = self._own(term, step.axis)
            sums.add("range", own.copy() if is_new else own, is_new)

    def _combined(self, sums: _Sums, step: SharedAssignment, shape: tuple[int, ...]) -> tuple[Any, bool]:
        """Return the sum of the sums in progress, whole or this rank's range of it, and whether it is a new array."""
        unfinished, _ = sums.take("partial")
        if unfinished is not None:
            if step.axis is None:
                sums.add("whole", self.exchange.total(unfinished), True)
            else:
                sums.add("range", self.exchange.added(unfinished, step.axis), True)
            del unfinished
        if not step.whole:
            return sums.take("range")
        own, _ = sums.take("range")
        if own is not None:
            assert step.axis is not None
            sums.add("whole", self.exchange.gathered(own, step.axis, shape[step.axis]), True)
        return sums.take("whole")

    def _own(self, array: Any, axis: int) -> Any:
        """Return this rank's range of an array along an axis."""
        own = cut(array.shape[axis], self.ranks.size, self.ranks.rank)
        return array[(slice(None),) * axis + (own,)]

    def _read(self, read: LocalRead) -> Any:
        """Return an operand with the range of this rank along its divided axes."""
        value, held = self.values[read.name], self.forms[read.name]
        if callable(value):
            return partial(self._shifted, value, read) if read.axes else value
        for axis in read.axes:
            value = value if axis == held else self._own(value, axis)
        return value

    def _shifted(self, function: Callable[..., Any], read: LocalRead, *cuts: slice) -> Any:
        """Return a block of a function from slices of this rank's ranges."""
        start = cut(read.extent, self.ranks.size, self.ranks.rank).start
        moved = (start if axis in read.axes else 0 for axis in range(len(cuts)))
        return function(*(slice(c.start + by, c.stop + by) for c, by in zip(cuts, moved)))
