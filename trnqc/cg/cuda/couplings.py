"""The different couplings A[i, k] = pw sum_j C[i, j, k] y[j] of several paths, and the terms of each.

Couplings that are equal, or differ in sign only, are computed once, as one form. Paths of the same
degrees share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import by_pair

# A sum over y as (element in a row of y, coefficient) of each term; the first coefficient is positive.
Form = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PathCoupling:
    """The couplings of one path.

    `forms` gives each A[i, k] the number of its form and its sign; `terms` are the nonzero (i, j, k, pw C[i, j, k]);
    `y` are the positions in `Couplings.y` of the components of the path's first channel of y.
    """

    forms: dict[tuple[int, int], tuple[int, int]]
    terms: tuple[tuple[int, int, int, float], ...]
    y: tuple[int, ...]


@dataclass(frozen=True)
class Couplings:
    """The couplings of several paths.

    `y` has the elements of a row of y that the forms read for the first channel of each slot; the next channel is
    `step` elements further.
    """

    forms: tuple[Form, ...]
    y: tuple[int, ...]
    paths: dict[int, PathCoupling]
    step: int

    @property
    def pitch(self) -> int:
        """Number of elements between the sums of gy of neighbouring lanes; odd, so that lanes use different banks."""
        return len(self.y) | 1


@lru_cache(maxsize=4096)
def couplings(problem: TPProblem, numbers: tuple[int, ...]) -> Couplings:
    """Return the couplings of the paths with these numbers."""
    forms: dict[Form, int] = {}
    places: dict[int, int] = {}
    paths: dict[int, PathCoupling] = {}
    step = 1
    for number in numbers:
        path, degrees = problem.instructions[number], problem.degrees(problem.instructions[number])
        slot, start = problem.irreps_in2[path.i_in2], problem.slices2[path.i_in2].start
        apart = slot.mul if problem.layout == "ir_mul" else 1
        step = 1 if problem.layout == "ir_mul" else slot.ir.dim
        sums = {
            pair: tuple((start + j * apart, c * path.path_weight) for j, c in terms)
            for pair, terms in by_pair(degrees).items()
        }
        terms = tuple((i, j, k, c * path.path_weight) for i, j, k, c in sparse(*degrees))
        y = tuple(places.setdefault(start + j * apart, len(places)) for j in range(slot.ir.dim))
        paths[number] = PathCoupling({pair: _entry(forms, form) for pair, form in sums.items()}, terms, y)
    return Couplings(tuple(forms), tuple(places), paths, step)


def _entry(forms: dict[Form, int], form: Form) -> tuple[int, int]:
    """Return number and sign of a form, which is added to `forms` if neither it nor its negative is known."""
    sign = 1 if form[0][1] > 0 else -1
    form = tuple((j, sign * c) for j, c in form)
    return forms.setdefault(form, len(forms)), sign
