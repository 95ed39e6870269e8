"""The search for the division of a program over ranks: a dynamic program over its assignments.

    state before an assignment: which arrays are whole on all ranks, and along which axis each other one is divided
    ─► which arrays are gathered first, over which label each part is divided, and how the target is left
    ─► state after it; of equal states the one that was reached in the least time is kept

Inputs are whole on all ranks. A rank that has an array whole can take its range along any axis without a message.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from math import prod

from trnqc.contraction.computation import Computation, SumAssignment
from trnqc.contraction.cost.rates import OperationRates
from trnqc.contraction.memory.schedule import ElementLimit
from trnqc.contraction.shares.division import Division, SharedAssignment
from trnqc.contraction.shares.local_parts import within
from trnqc.contraction.shares.options import Link, Option, elements, options
from trnqc.errors import InputError, MemoryLimit

# States that are followed from each assignment to the next.
STATES = 16
# Elements of a message without a memory limit.
PIECE = 2**20

# Array -> the axis along which it is divided; None if it is whole on all ranks.
Forms = Mapping[str, int | None]


def divide(
    plan: Computation, ranks: int, rates: OperationRates, link: Link | None = None, limit: int | None = None
) -> Division:
    """Return the division of a program over ranks that is estimated to take the least time.

    Parameters
    ----------
    plan : Computation
        The program, within the limit on one rank.
    ranks : int
        Number of ranks.
    rates : OperationRates
        Rates of a rank's arithmetic.
    link : Link, optional
        Rates of messages.
    limit : int, optional
        Elements of temporaries and buffers that each rank may hold.

    Raises
    ------
    InputError
        If there is no rank.
    """
    if ranks < 1:
        raise InputError(f"a program is divided over one or more ranks; found {ranks}")
    return _Search(plan, ranks, rates, link or Link(), limit).division()


@dataclass(frozen=True)
class _Path:
    """A state, the time and the elements received until it is reached, and the last step on the way to it."""

    forms: tuple[tuple[str, int | None], ...]
    seconds: float = 0.0
    received: int = 0
    step: SharedAssignment | None = None
    before: _Path | None = None


@dataclass(frozen=True)
class _Mode:
    """How an assignment ends: along which axis parts may be divided, whether the target becomes whole at the end, and
    whether parts may leave sums over ranks to be made."""

    axis: int | None
    whole: bool
    partial: bool


class _Search:
    """The search for one program."""

    def __init__(self, plan: Computation, ranks: int, rates: OperationRates, link: Link, limit: int | None) -> None:
        self.plan, self.ranks, self.rates, self.link, self.limit = plan, ranks, rates, link, limit
        self.piece = PIECE if limit is None else min(PIECE, max(1, limit // (32 * ranks)))
        self.options = [[tuple(options(p, ranks, rates)) for p in a.parts] for a in plan.assignments]
        self.shapes = {a.target: tuple(a.parts[0].tree.extent(label) for label in a.labels) for a in plan.assignments}
        self.last = plan.last_reads()
        self.found: dict[tuple[object, ...], list[tuple[SharedAssignment, float, int]]] = {}
        self.fits: dict[tuple[int, int, bool], bool] = {}

    def division(self) -> Division:
        """Return the best division."""
        paths = [_Path(())]
        for number, assignment in enumerate(self.plan.assignments):
            after: dict[tuple[tuple[str, int | None], ...], _Path] = {}
            for path in paths:
                for reached in self._continued(number, assignment, path):
                    known = after.get(reached.forms)
                    if known is None or reached.seconds < known.seconds:
                        after[reached.forms] = reached
            if not after:
                raise self._too_little(assignment.target)
            # All whole stays, so that no division is worse than none.
            ordered = sorted(after.values(), key=self._rank)
            paths = ordered[:STATES] + [
                path for path in ordered[STATES:] if all(axis is None for _, axis in path.forms)
            ]
        ends = [end for end in map(self._ended, paths) if end]
        if not ends:
            raise self._too_little("the outputs")
        best, seconds, received, gathered = min(ends, key=lambda end: end[1])
        steps: list[SharedAssignment] = []
        back: _Path | None = best
        while back is not None and back.step is not None:
            steps.append(back.step)
            back = back.before
        alone = sum(each[0].seconds for parts in self.options for each in parts)
        return Division(self.ranks, tuple(reversed(steps)), gathered, received, seconds, alone, self.piece)

    def _rank(self, path: _Path) -> float:
        """Return the time of a path with half of what it takes to gather the arrays that it leaves divided."""
        divided = [name for name, axis in path.forms if axis is not None]
        moved = (self.ranks - 1) * sum(prod(self.shapes[name]) for name in divided)
        return path.seconds + self._moving(moved, len(divided)) / 2

    def _too_little(self, what: str) -> MemoryLimit:
        assert self.limit is not None
        return MemoryLimit(
            f"{what} cannot be computed by {self.ranks} ranks within {self.limit} elements of memory each, "
            "with results that are held meanwhile and messages; raise memory_limit"
        )

    def _ended(self, path: _Path) -> tuple[_Path, float, int, tuple[str, ...]] | None:
        """Return the path with the outputs gathered at its end; None if there is no room for their messages."""
        gathered = tuple(name for name, axis in path.forms if axis is not None and name in self.plan.kept)
        size = sum(prod(self.shapes[name]) for name in gathered)
        if gathered and not self._has_room(self._held(dict(path.forms)) + self._buffers):
            return None
        moved = (self.ranks - 1) * size
        return path, path.seconds + self._moving(moved, len(gathered)), path.received + moved, gathered

    def _continued(self, number: int, assignment: SumAssignment, path: _Path) -> Iterator[_Path]:
        """Yield the states after an assignment."""
        forms = dict(path.forms)
        read = {name: forms[name] for name in sorted(assignment.reads) if name in forms}
        held = self._held(forms)
        key = (number, tuple(read.items()), held if self.limit is not None else None)
        if key not in self.found:
            self.found[key] = list(self._steps(number, assignment, read, held))
        for step, seconds, received in self.found[key]:
            new = forms | dict.fromkeys(step.gathered)
            new[assignment.target] = None if step.whole else step.axis
            left = {k: x for k, x in new.items() if k in self.plan.kept or self.last.get(k, -1) > number}
            yield _Path(tuple(sorted(left.items())), path.seconds + seconds, path.received + received, step, path)

    def _held(self, forms: Forms) -> int:
        """Return the elements that count as held between assignments: outputs count while they are divided."""
        return sum(
            elements(self.shapes[name], axis, self.ranks)
            for name, axis in forms.items()
            if axis is not None or name not in self.plan.kept
        )

    def _steps(
        self, number: int, assignment: SumAssignment, read: Forms, held: int
    ) -> Iterator[tuple[SharedAssignment, float, int]]:
        """Yield the best step for each set of gathered arrays and form of the target, with time and elements."""
        divided = [name for name, axis in read.items() if axis is not None]
        best: dict[tuple[tuple[str, ...], int | None], tuple[SharedAssignment, float, int]] = {}
        for count in range(len(divided) + 1):
            for gathered in combinations(divided, count):
                room = self._after_gathering(gathered, read, held)
                if room is None:
                    continue
                forms = dict(read) | dict.fromkeys(gathered)
                moved = (self.ranks - 1) * sum(prod(self.shapes[name]) for name in gathered)
                for mode in self._modes(assignment):
                    step = self._step(number, assignment, forms, gathered, mode, room)
                    if step is None:
                        continue
                    seconds = step[1] + self._moving(moved, len(gathered))
                    key = (gathered, None if mode.whole else mode.axis)
                    if key not in best or seconds < best[key][1]:
                        best[key] = (step[0], seconds, step[2] + moved)
        yield from best.values()

    def _after_gathering(self, gathered: tuple[str, ...], read: Forms, held: int) -> int | None:
        """Return the elements held after arrays have been gathered; None if there is no room for it."""
        for name in gathered:
            shape = self.shapes[name]
            own, whole = elements(shape, read[name], self.ranks), prod(shape)
            counted = 0 if name in self.plan.kept else whole
            if not self._has_room(held + counted + self._buffers):
                return None
            held += counted - own
        return held

    @property
    def _buffers(self) -> int:
        """Elements of the messages that are under way at once."""
        return 2 * self.ranks * self.piece

    def _has_room(self, held: int) -> bool:
        return self.limit is None or held <= self.limit

    def _modes(self, assignment: SumAssignment) -> Iterator[_Mode]:
        """Yield the ways in which an assignment may end."""
        shape = self.shapes[assignment.target]
        for partial in (False, True):
            yield _Mode(None, True, partial)
            for axis, extent in enumerate(shape):
                if extent >= self.ranks:
                    yield _Mode(axis, True, partial)
                    yield _Mode(axis, False, partial)

    def _step(
        self, number: int, assignment: SumAssignment, forms: Forms, gathered: tuple[str, ...], mode: _Mode, held: int
    ) -> tuple[SharedAssignment, float, int] | None:
        """Return the fastest step in one mode, its time and the elements received; None if there is none."""
        target = assignment.target
        kept, shape = target in self.plan.kept, self.shapes[target]
        if assignment.accumulate and forms.get(target) not in (None, mode.axis):
            return None
        # The sums in progress: of whole results, of ranges, and of arrays to be added over ranks.
        sizes = {"whole": 0 if kept else prod(shape), "range": elements(shape, mode.axis, self.ranks)}
        sizes["partial"] = prod(shape)
        sums: dict[str, int] = {}
        if assignment.accumulate and target in forms:
            # A range of a whole array is copied; else the array is added to in place where no part reads it.
            is_copied = (forms[target] is None and not mode.whole) or any(target in p.names for p in assignment.parts)
            kind = "range" if forms[target] is not None or not mode.whole else "whole"
            sums[kind] = sizes[kind] if is_copied else 0
        chosen, others, seconds = [], [], 0.0
        for choices in self.options[number]:
            now, first = held + sum(sums.values()), kept and not sums
            best = self._best(choices, forms, mode, now, first)
            if best is None:
                return None
            kind = "partial" if best.partial else "whole" if best.axis is None and mode.whole else "range"
            chosen.append(best.label)
            others.append((now, first and kind == "whole"))
            seconds += best.seconds + (self.rates.copy(sizes[kind], 2 * sizes[kind], turned=False) if sums else 0.0)
            sums.setdefault(kind, sizes[kind])
        if "range" not in sums and mode.axis is not None and mode.whole and "partial" not in sums:
            return None
        received, messages = self._received(mode, sums, prod(shape))
        if messages and not self._has_room(held + sum(sums.values()) + sizes["range"] + sizes["whole"] + self._buffers):
            return None
        step = SharedAssignment(gathered, tuple(chosen), mode.axis, mode.whole, tuple(others))
        return step, seconds + self._moving(received, messages), received

    def _received(self, mode: _Mode, sums: Mapping[str, int], size: int) -> tuple[int, int]:
        """Return (elements received by all ranks, number of exchanges) when the sums are combined."""
        exchanges = 0
        if "partial" in sums:
            exchanges += 1
        if mode.whole and ("range" in sums or "partial" in sums):
            exchanges += 1
        return exchanges * (self.ranks - 1) * size, exchanges

    def _best(
        self, choices: tuple[Option, ...], forms: Forms, mode: _Mode, held: int, is_output: bool
    ) -> Option | None:
        """Return the fastest option of a part that reads the arrays as they are and fits; None if there is none."""
        best = None
        for option in choices:
            if (option.partial and not mode.partial) or (option.axis is not None and option.axis != mode.axis):
                continue
            if any(forms.get(read.name) not in (None, *read.axes) for read in option.reads):
                continue
            if best is not None and option.seconds >= best.seconds:
                continue
            if self.limit is None or self._fits(
                option, held, is_output and mode.whole and option.axis is None and not option.partial
            ):
                best = option
        return best

    def _fits(self, option: Option, held: int, is_output: bool) -> bool:
        """Return whether an option fits into what is left of the limit, in loops if need be."""
        key = (id(option), held, is_output)
        if key not in self.fits:
            try:
                within(option.part, option.label, is_output, held, self.limit)
                self.fits[key] = True
            except ElementLimit:
                self.fits[key] = False
        return self.fits[key]

    def _moving(self, received: int, exchanges: int) -> float:
        """Return the time of exchanges in which all ranks together receive so many elements."""
        return received / self.ranks * self.link.element + exchanges * self.link.start
