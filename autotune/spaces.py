"""Spaces as data: the values that each knob may take, and the points that keep the rules of kernel and chip."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass

from trnqc.tuning.kernels import Infeasible, P, Values, ceil, check, tunable

Point = dict[str, int]


def _few(n: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to n, and n itself."""
    ladder = sorted({1, *(2**k for k in range(1, 16)), *(3 * 2**k for k in range(15))})
    return sorted({*(value for value in ladder if value < n), n})


def knob_values(kernel: str, shape: Values) -> dict[str, list[int]]:
    """The values of each knob before any rule."""
    if kernel == "mp2_energy":
        return {
            "blocks": list(range(1, min(ceil(shape["nvir"], P), 12) + 1)),
            "chunks": _few(ceil(shape["naux"], P)),
            "group": [1, 2, 3, 4, 6, 8, 12, 16],
        }
    return {
        "rows": [128, 256, 384, 512, 768, 1024, 1536, 2048],
        "cols": [512, 1024, 2048, 4096],
        "chunks": _few(ceil(shape["K"], P)),
        "batch": _few(min(shape.get("Z", 1), 8)),
        "hold": [0, 1],
        "drains": [2, 4, 8],
        "drainer": [0, 1, 2],
    }


@dataclass(frozen=True)
class Space:
    """Feasible points of one kernel at one shape.

    knobs: values that some feasible point takes. points: one for each distinct set of constants, the default's first if
    it is one. constants: of each point. cut: how many points each rule took away.
    """

    knobs: dict[str, list[int]]
    points: list[Point]
    constants: list[dict[str, int]]
    cut: Counter[str]

    def __len__(self) -> int:
        return len(self.points)


def space(kernel: str, shape: Values, precision: str, target: str) -> Space:
    """All feasible points; raises InputError for an unknown kernel, shape, precision or target."""
    check(kernel, shape, precision, target)
    known = tunable(kernel)
    values = knob_values(kernel, shape)
    grid = [dict(zip(known.knobs, combination)) for combination in itertools.product(*(values[k] for k in known.knobs))]
    points: list[Point] = []
    constants: list[dict[str, int]] = []
    cut: Counter[str] = Counter()
    for point in [known.default_point(shape, precision), *grid]:
        try:
            found = known.realise(point, shape, precision, target)
        except Infeasible as rule:
            cut[str(rule).partition(":")[0] if ":" in str(rule) else "shape"] += 1
            continue
        if found not in constants:
            points.append(point)
            constants.append(found)
    knobs = {k: sorted({point[k] for point in points}) for k in known.knobs}
    return Space(knobs, points, constants, cut)
