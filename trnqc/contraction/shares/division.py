"""A program divided over ranks, as data: what each rank computes, and what moves between assignments."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.contraction.computation import Computation, SumAssignment

# Bytes of an element in fp64.
FP64 = 8


@dataclass(frozen=True)
class SharedAssignment:
    """How one assignment is divided.

    Attributes
    ----------
    gathered : tuple of str
        Arrays of which each rank holds a range, and that become whole on all ranks before.
    labels : tuple of str or None
        The label over which each part is divided, `TILES` for a ladder; None if every rank computes all of it.
    axis : int or None
        The axis of the target along which ranks hold their ranges of divided parts.
    whole : bool
        Whether the target is whole on all ranks afterwards; else a rank holds its range along `axis`.
    held : tuple of (int, bool)
        For each part, the elements of the memory limit that other arrays hold while it runs, and whether its result is
        the output itself, which is not counted.
    """

    gathered: tuple[str, ...]
    labels: tuple[str | None, ...]
    axis: int | None
    whole: bool
    held: tuple[tuple[int, bool], ...]


@dataclass(frozen=True)
class Division:
    """A program divided over `ranks`; printing it shows the label of every part and what is sent.

    `steps` belong to the assignments of the program; the outputs in `gathered` become whole at the end. `received` is
    the number of elements that all ranks together receive, `seconds` the estimated time of a run, and `alone` that on
    one rank. Messages have at most `piece` elements.
    """

    ranks: int
    steps: tuple[SharedAssignment, ...]
    gathered: tuple[str, ...]
    received: int
    seconds: float
    alone: float
    piece: int

    @property
    def received_bytes(self) -> int:
        """`received` in bytes, for elements in fp64."""
        return self.received * FP64

    def text(self, plan: Computation) -> str:
        """Return what is divided, line by line, for the program `plan`."""
        lines = [_line(assignment, step) for assignment, step in zip(plan.assignments, self.steps)]
        if self.gathered:
            lines.append(f"gathered at the end: {', '.join(self.gathered)}")
        return "\n".join(
            [
                f"{self.ranks} ranks",
                *lines,
                f"received     {self.received:.4g} elements, {self.received_bytes / 1e6:.4g} MB in fp64, by all ranks",
                f"time         {self.seconds:.3g} s, {self.alone:.3g} s on one rank, estimates",
            ]
        )


def _line(assignment: SumAssignment, step: SharedAssignment) -> str:
    """Return the line of one assignment."""
    over = [
        f"{part.tree.root.name} over {label}" if label else f"{part.tree.root.name} by all"
        for part, label in zip(assignment.parts, step.labels)
    ]
    ends = "whole" if step.whole or step.axis is None else f"divided over {assignment.labels[step.axis]}"
    before = f", after {', '.join(step.gathered)} is gathered" if step.gathered else ""
    sign = "+=" if assignment.accumulate else "="
    return f"{assignment.target}[{','.join(assignment.labels)}] {sign} {', '.join(over)}; {ends}{before}"
