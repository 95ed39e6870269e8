"""The points of a kernel that keep its rules and those of the chip."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from nki_kernels.descriptors.descriptor import Infeasible, Values
from trnqc.tuning.requests import check

Point = dict[str, int]


@dataclass(frozen=True)
class Space:
    """Feasible points of one kernel at one shape.

    Parameters
    ----------
    knobs
        The values of each knob that some feasible point has.
    points
        One for each distinct set of constants; the default is the first if it is a point.
    constants
        The constants of each point.
    cut
        How many points each rule has cut.
    """

    knobs: dict[str, list[int]]
    points: list[Point]
    constants: list[dict[str, int]]
    cut: Counter[str]

    def __len__(self) -> int:
        return len(self.points)


def space(kernel: str, shape: Values, precision: str, target: str) -> Space:
    """All feasible points. Raises InputError for an unknown kernel, shape, precision or target."""
    known = check(kernel, shape, precision, target)
    values = known.knobs(shape)
    grid = [dict(zip(values, combination)) for combination in itertools.product(*values.values())]
    points: list[Point] = []
    constants: list[dict[str, int]] = []
    cut: Counter[str] = Counter()
    for point in [known.default_point(shape, precision), *grid]:
        try:
            realised = known.realise(point, shape, precision, target)
        except Infeasible as rule:
            cut[str(rule).partition(":")[0] if ":" in str(rule) else "shape"] += 1
            continue
        if realised not in constants:
            points.append(point)
            constants.append(realised)
    knobs = {knob: sorted({point[knob] for point in points}) for knob in values}
    return Space(knobs, points, constants, cut)
