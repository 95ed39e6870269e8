"""The couplings A[i, k] = pw sum_j C[i, j, k] y[j] of some paths: which of them differ, and what each is made of.

Two couplings that are equal, or differ in sign, are one form; so paths of the same degrees share theirs.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from trnqc.cg.problem.coefficients import sparse
from trnqc.cg.problem.problem import TPProblem

Form = tuple[tuple[int, float], ...]


@dataclass(frozen=True)
class PathCoupling:
    """One path's part. at[i, k] = (number of the form, 1 or -1); terms: (i, j, k, pw C[i, j, k]) of what is not zero.

    y[j]: place of component j among the `y` of the table, for the path's first channel of y.
    """

    at: dict[tuple[int, int], tuple[int, int]]
    terms: tuple[tuple[int, int, int, float], ...]
    y: tuple[int, ...]

    @property
    def distinct(self) -> int:
        return len({form for form, _ in self.at.values()})


@dataclass(frozen=True)
class Couplings:
    """forms: sums of (element of y, coefficient); y: the elements of y that they read; paths by number.

    An element of y is that of a slot's first channel; `step` leads to the next one.
    """

    forms: tuple[Form, ...]
    y: tuple[int, ...]
    paths: dict[int, PathCoupling]
    step: int


@lru_cache(maxsize=4096)
def couplings(problem: TPProblem, numbers: tuple[int, ...]) -> Couplings:
    """The couplings of the paths with these numbers."""
    forms: dict[Form, int] = {}
    places: dict[int, int] = {}
    paths: dict[int, PathCoupling] = {}
    step = 1
    for number in numbers:
        path = problem.instructions[number]
        slot, start = problem.irreps_in2[path.i_in2], problem.slices2[path.i_in2].start
        apart = slot.mul if problem.layout == "ir_mul" else 1
        step = 1 if problem.layout == "ir_mul" else slot.ir.dim
        terms = tuple((i, j, k, c * path.path_weight) for i, j, k, c in sparse(*problem.degrees(path)))
        sums: dict[tuple[int, int], list[tuple[int, float]]] = {}
        for i, j, k, c in terms:
            sums.setdefault((i, k), []).append((start + j * apart, c))
        at = {ik: _entry(forms, tuple(found)) for ik, found in sums.items()}
        y = tuple(places.setdefault(start + j * apart, len(places)) for j in range(slot.ir.dim))
        paths[number] = PathCoupling(at, terms, y)
    return Couplings(tuple(forms), tuple(places), paths, step)


def _entry(forms: dict[Form, int], found: Form) -> tuple[int, int]:
    sign = 1 if found[0][1] > 0 else -1
    form = tuple((j, sign * c) for j, c in found)
    return forms.setdefault(form, len(forms)), sign
