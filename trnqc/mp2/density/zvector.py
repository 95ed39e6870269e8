"""The Z-vector equations: the rotation of occupied into virtual orbitals that relaxes a density.

    (ε_a - ε_i) z_ai + G[z]_ai = -X_ai

(N. C. Handy and H. F. Schaefer, J. Chem. Phys. 81, 5031 (1984)). The matrix on the left is proportional to the second
derivative of the SCF energy with respect to rotations of real orbitals. It is symmetric, and positive definite if the
SCF solution is a minimum. Conjugate gradients, preconditioned with ε_a - ε_i, therefore solve the equations, and notice
if the solution is no minimum.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import InputError, NotConverged, TrnqcError
from trnqc.mp2.density.response import Response
from trnqc.mp2.density.spins import SpinOrbitals


@dataclass(frozen=True)
class ZVectorOptions:
    """How the equations are solved.

    Attributes
    ----------
    tolerance
        Largest element of the residual over ε_a - ε_i, which is about the error of z; without unit.
    max_cycle
        Iterations at most; each of them builds one Fock matrix.
    """

    tolerance: float = 1e-9
    max_cycle: int = 60

    def __post_init__(self) -> None:
        if not (self.tolerance > 0 and self.max_cycle >= 1):
            raise InputError(
                "the Z-vector equations need a positive tolerance and at least one cycle, found "
                f"tolerance={self.tolerance} and max_cycle={self.max_cycle}"
            )


# What is used where the caller chooses nothing.
DEFAULTS = ZVectorOptions()


def solve_z_vector(
    right: Sequence[np.ndarray],
    spins: Sequence[SpinOrbitals],
    response: Response,
    options: ZVectorOptions,
    report: Callable[[int], None] = lambda cycle: None,
) -> list[np.ndarray]:
    """Solve for z[a, i] [nvir, nocc] of each spin.

    Parameters
    ----------
    right
        -X[a, i] of each spin.
    report
        Called with the number of finished iterations.

    Raises
    ------
    TrnqcError
        If the matrix is not positive definite, which means that the SCF solution is not a minimum.
    NotConverged
        If the residual stays above the tolerance.
    """
    gaps = [np.subtract.outer(s.energies[~s.occupied], s.energies[s.occupied]) for s in spins]
    shapes = [gap.shape for gap in gaps]
    gap = _flat(gaps)
    if not gap.size:
        return [np.zeros(shape) for shape in shapes]
    if gap.min() <= 0:
        raise _unstable(f"its lowest virtual orbital lies {-gap.min():.3g} Hartree below the highest occupied one")

    def product(z: np.ndarray) -> np.ndarray:
        return gap * z + _flat(response.rotation(_parts(z, shapes)))

    return _parts(conjugate_gradients(product, _flat(right), gap, options, report), shapes)


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    gap: np.ndarray,
    options: ZVectorOptions,
    report: Callable[[int], None] = lambda cycle: None,
) -> np.ndarray:
    """Solve product(z) = right for a symmetric positive definite matrix whose diagonal is about `gap`.

    Raises TrnqcError and NotConverged as `solve_z_vector` does.
    """
    z, residual = np.zeros_like(gap), right
    step, old = np.zeros_like(gap), 1.0
    for cycle in range(options.max_cycle + 1):
        error = float(np.abs(residual / gap).max())
        if error < options.tolerance:
            return z
        if not np.isfinite(error) or cycle == options.max_cycle:
            break
        scaled = residual / gap
        new = float(residual @ scaled)
        step = scaled + (new / old if cycle else 0.0) * step
        applied = product(step)
        curvature = float(step @ applied)
        if curvature <= 0:
            raise _unstable("the matrix of the orbital response is not positive definite")
        z, residual, old = z + new / curvature * step, residual - new / curvature * applied, new
        report(cycle + 1)
    raise NotConverged(
        f"the Z-vector equations have not converged in {options.max_cycle} iterations: the residual is {error:.1e}, "
        f"below {options.tolerance:.1e} was expected. Allow more iterations (cphf_max_cycle), or check with "
        "mf.stability() whether the SCF solution is (nearly) unstable"
    )


def _unstable(reason: str) -> TrnqcError:
    return TrnqcError(
        f"the SCF solution is not a minimum, so that MP2 has no relaxed density: {reason}. mf.stability() returns "
        "orbitals of lower energy, from which to run the SCF again"
    )


def _flat(parts: Sequence[np.ndarray]) -> np.ndarray:
    return np.concatenate([part.ravel() for part in parts])


def _parts(flat: np.ndarray, shapes: Sequence[tuple[int, int]]) -> list[np.ndarray]:
    ends = np.cumsum([rows * columns for rows, columns in shapes])[:-1]
    return [part.reshape(shape) for part, shape in zip(np.split(flat, ends), shapes)]
