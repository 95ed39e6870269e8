"""The points of a kernel that obey its rules and those of the chip."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from nki_kernels.descriptors.descriptor import Infeasible, Values
from trnqc.tuning.requests import check

Point = dict[str, int]


@dataclass(frozen=True)
class Space:
    """The feasible points of a kernel at one shape.

    Parameters
    ----------
    knobs
        The values of each knob that occur in feasible points.
    points
        One point for each different set of constants. The default is the first one if it is a point.
    constants
        The constants of each point.
    cut
        For each rule, the number of points that break it.
    """

    knobs: dict[str, list[int]]
    points: list[Point]
    constants: list[dict[str, int]]
    cut: Counter[str]

    def __len__(self) -> int:
        return len(self.points)


def space(kernel: str, shape: Values, precision: str, target: str) -> Space:
    """All feasible points. Raises InputError if the kernel, shape, precision or target is unknown."""
    descriptor = check(kernel, shape, precision, target)
    values = descriptor.knobs(shape)
    grid = [dict(zip(values, combination)) for combination in itertools.product(*values.values())]
    points: list[Point] = []
    constants: list[dict[str, int]] = []
    cut: Counter[str] = Counter()
    for point in [descriptor.default_point(shape, precision), *grid]:
        try:
            realised = descriptor.realise(point, shape, precision, target)
        except Infeasible as rule:
            cut[str(rule).partition(":")[0] if ":" in str(rule) else "shape"] += 1
            continue
        if realised not in constants:
            points.append(point)
            constants.append(realised)
    knobs = {knob: sorted({point[knob] for point in points}) for knob in values}
    return Space(knobs, points, constants, cut)
