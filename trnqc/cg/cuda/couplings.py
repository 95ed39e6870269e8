"""The couplings A[i, k] = pw sum_j C[i, j, k] y[j] of some paths: which of them differ, and what each is made of.

Two couplings that are equal, or differ in sign, are one form; so paths of the same degrees share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.coupling import by_pair

Form = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PathCoupling:
    """One path's part.

    Parameters
    ----------
    forms : dict of (i, k) to (int, int)
        The number of the form and its sign, 1 or -1.
    terms : tuple of (i, j, k, pw C[i, j, k])
        What is not zero.
    y : tuple of int
        The place of each component among the `y` of the table, for the path's first channel of y.
    """

    forms: dict[tuple[int, int], tuple[int, int]]
    terms: tuple[tuple[int, int, int, float], ...]
    y: tuple[int, ...]


@dataclass(frozen=True)
class Couplings:
    """The couplings of some paths.

    Parameters
    ----------
    forms : tuple of Form
        Sums of (element of y, coefficient).
    y : tuple of int
        The elements of y that they read, those of a slot's first channel.
    paths : dict
        `PathCoupling` by number of the path.
    step : int
        Elements from a channel of y to the next.
    """

    forms: tuple[Form, ...]
    y: tuple[int, ...]
    paths: dict[int, PathCoupling]
    step: int

    @property
    def pitch(self) -> int:
        """Elements from a lane's sums of gy to the next lane's; odd, so that lanes use different banks."""
        return len(self.y) | 1


@lru_cache(maxsize=4096)
def couplings(problem: TPProblem, numbers: tuple[int, ...]) -> Couplings:
    """The couplings of the paths with these numbers."""
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
    sign = 1 if form[0][1] > 0 else -1
    form = tuple((j, sign * c) for j, c in form)
    return forms.setdefault(form, len(forms)), sign
