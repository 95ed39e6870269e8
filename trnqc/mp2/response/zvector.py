"""The Z-vector equations: the rotation of the orbitals that relaxes a density.

    (ε_a - ε_i) z_ai + G[z]_ai = -X_ai

for canonical orbitals (N. C. Handy and H. F. Schaefer, J. Chem. Phys. 81, 5031 (1984)). The matrix on the left is
proportional to the second derivative of the SCF energy with respect to rotations of real orbitals. It is symmetric, and
positive definite if the SCF solution is a minimum. Conjugate gradients therefore solve the equations, and notice if the
solution is no minimum.

    residual -> the same equations with `MinimalResponse`, solved roughly -> direction -> product in single precision
    after some digits: residual in double precision

A direction is made conjugate to the last one explicitly, because the approximate solution is not quite linear in the
residual (Y. Notay, SIAM J. Sci. Comput. 22, 1444 (2000)).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import InputError, NotConverged, TrnqcError
from trnqc.host.blas import single_threaded
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.mp2.response.minimal import MinimalResponse
from trnqc.mp2.response.response import Densities, FockResponse, RotationResponse
from trnqc.mp2.response.rotations import Rotations


@dataclass(frozen=True)
class ZVectorOptions:
    """The largest element of the residual over ε_a - ε_i (about the error of z, without unit), and the largest number
    of iterations, each of which builds one Fock matrix.
    """

    tolerance: float = 1e-9
    max_cycle: int = 60

    def __post_init__(self) -> None:
        if not (self.tolerance > 0 and self.max_cycle >= 1):
            raise InputError(
                "the Z-vector equations need a positive tolerance and at least one cycle, found "
                f"tolerance={self.tolerance} and max_cycle={self.max_cycle}"
            )


# Steps in single precision have errors of up to this factor of the residual that was last computed in double precision.
# It is computed again before such errors exceed the tolerance or a tenth of it.
ROUGH_ERROR = 1e-5
REPLACED_AFTER = 10 * ROUGH_ERROR
# If it is then not smaller by this factor, single precision is not enough, as where basis functions are nearly
# dependent, and is given up.
LEAST_FALL = 10 * REPLACED_AFTER
# The approximate equations that give the direction of a step are solved until the norm of their residual is smaller by
# this factor, or in the greatest number of iterations.
DIRECTION_TOLERANCE, DIRECTION_CYCLES = 2e-2, 12

# What is used where the caller chooses nothing.
DEFAULTS = ZVectorOptions()


@dataclass(frozen=True, eq=False)
class Relaxed:
    """The relaxed density [nmo, nmo] of each spin, and G[P]_qi [nmo, nocc] of these densities, Hartree."""

    densities: tuple[np.ndarray, ...]
    columns: tuple[np.ndarray, ...]


def solve_z_vector(
    constant: np.ndarray,
    densities: Densities,
    spins: Sequence[SpinOrbitals],
    rotations: Rotations,
    response: FockResponse,
    options: ZVectorOptions = DEFAULTS,
    *,
    minimal: MinimalResponse | None = None,
    report: Callable[[int], None] = lambda cycle: None,
) -> Relaxed:
    """Relax densities by solving the Z-vector equations.

    `constant` is the part of the derivative of the energy that does not come from the response of the Fock matrix.
    `minimal` approximates `response` and saves about half of the iterations; `report` is called with the number of
    finished ones. Raises TrnqcError if the matrix is not positive definite, which means that the SCF solution is not a
    minimum; NotConverged if the residual stays above the tolerance.
    """
    gap = rotations.gap
    if gap.size and gap.min() <= 0:
        raise _unstable(f"its lowest virtual orbital lies {-gap.min():.3g} Hartree below the highest occupied one")

    def relaxed(x: np.ndarray) -> list[np.ndarray]:
        return [p + spin.rotated(z) for p, spin, z in zip(densities, spins, rotations.blocks(x))]

    def residual_of(x: np.ndarray, columns: Sequence[np.ndarray]) -> tuple[np.ndarray, float]:
        residual = -constant - rotations.response_part(columns) - rotations.fock_part(x)
        return residual, _largest(residual / gap)

    source: RotationResponse = response.rough or response
    last: tuple[np.ndarray, np.ndarray] | None = None  # A direction and its product, scaled to unit curvature.
    at_start = columns = response.columns(densities)
    x = np.zeros_like(gap)
    residual, error = residual_of(x, columns)
    computed = error
    uncertain = 0.0 if source is response else ROUGH_ERROR * error  # The error of the residual.
    for cycle in range(options.max_cycle + 1):
        if error < max(options.tolerance, REPLACED_AFTER * computed) and uncertain > options.tolerance:
            columns = [g + of_x for g, of_x in zip(at_start, response.rotation(rotations.blocks(x)))]
            residual, error = residual_of(x, columns)
            if error > max(options.tolerance, LEAST_FALL * computed):
                source, last = response, None
            computed, uncertain = error, 0.0 if source is response else ROUGH_ERROR * error
        if error < options.tolerance:
            return Relaxed(tuple(relaxed(x)), tuple(columns))
        if not np.isfinite(error) or cycle == options.max_cycle:
            break
        with single_threaded():
            step = direction(residual, rotations, minimal)
        if last is not None:
            step = step - float(step @ last[1]) * last[0]
        of_step = source.rotation(rotations.blocks(step))
        product = rotations.response_part(of_step) + rotations.fock_part(step)
        curvature = float(step @ product)
        if curvature <= 0:
            raise _unstable("the matrix of the orbital response is not positive definite")
        length = float(step @ residual) / curvature
        x, residual = x + length * step, residual - length * product
        columns = [c + length * g for c, g in zip(columns, of_step)]
        error, last = _largest(residual / gap), (step / curvature**0.5, product / curvature**0.5)
        report(cycle + 1)
    raise NotConverged(
        f"the Z-vector equations have not converged in {options.max_cycle} iterations: the residual is {error:.1e}, "
        f"below {options.tolerance:.1e} was expected. Allow more iterations, or check with mf.stability() whether the "
        "SCF solution is (nearly) unstable"
    )


def direction(residual: np.ndarray, rotations: Rotations, minimal: MinimalResponse | None) -> np.ndarray:
    """Solve the approximate equations roughly by conjugate gradients, preconditioned with the gap.

    Without an approximation, and where it is not positive definite, the solution so far is the direction.
    """
    gap = rotations.gap
    x = residual / gap
    if minimal is None:
        return x
    step, x, rest = x, np.zeros_like(x), residual
    start = old = float(rest @ step)
    for _ in range(DIRECTION_CYCLES):
        product = rotations.fock_part(step) + rotations.response_part(minimal.rotation(rotations.blocks(step)))
        curvature = float(step @ product)
        if curvature <= 0:
            break
        x, rest = x + old / curvature * step, rest - old / curvature * product
        scaled = rest / gap
        new = float(rest @ scaled)
        if new < DIRECTION_TOLERANCE**2 * start:
            break
        step, old = scaled + new / old * step, new
    return x if x.any() else residual / gap


def _largest(values: np.ndarray) -> float:
    return float(np.abs(values).max(initial=0.0))


def _unstable(reason: str) -> TrnqcError:
    return TrnqcError(
        f"the SCF solution is not a minimum, so that MP2 has no relaxed density: {reason}. mf.stability() returns "
        "orbitals of lower energy, from which to run the SCF again"
    )
