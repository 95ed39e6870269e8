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


# The residual of steps in single precision, whose products have errors of 1e-7 to 1e-6, is replaced after it has become
# smaller by this factor: its error is then about 1e-2 of it.
REPLACED_AFTER = 1e-4
# Largest relative error of products in single precision with which steps are taken.
LEAST_PRECISION = 1e-5

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

    rough = response.rough_rotation

    cheaper = (lambda z: gap * z + _flat(rough(_parts(z, shapes)))) if rough else None
    return _parts(conjugate_gradients(product, _flat(right), gap, options, report, cheaper), shapes)


def conjugate_gradients(
    product: Callable[[np.ndarray], np.ndarray],
    right: np.ndarray,
    gap: np.ndarray,
    options: ZVectorOptions,
    report: Callable[[int], None] = lambda cycle: None,
    rough: Callable[[np.ndarray], np.ndarray] | None = None,
) -> np.ndarray:
    """Solve product(z) = right for a symmetric positive definite matrix whose diagonal is about `gap`.

    With `rough`, a cheaper product that has about six digits, the steps use it, and `product` computes the residual
    again where it has fallen by the factor REPLACED_AFTER, and before z is returned (H. A. van der Vorst and Q. Ye,
    SIAM J. Sci. Comput. 22, 835 (2000)). `rough` is given up if it differs from `product` in the first step by more
    than LEAST_PRECISION, as it does where basis functions are nearly dependent. Raises TrnqcError and NotConverged as
    `solve_z_vector` does.
    """
    z, residual = np.zeros_like(gap), right
    step, old = np.zeros_like(gap), 1.0
    computed = float(np.abs(right / gap).max())
    for cycle in range(options.max_cycle + 1):
        error = float(np.abs(residual / gap).max())
        if rough and cycle and error < max(options.tolerance, REPLACED_AFTER * computed):
            residual = right - product(z)
            error = computed = float(np.abs(residual / gap).max())
        if error < options.tolerance:
            return z
        if not np.isfinite(error) or cycle == options.max_cycle:
            break
        scaled = residual / gap
        new = float(residual @ scaled)
        step = scaled + (new / old if cycle else 0.0) * step
        applied = rough(step) if rough else product(step)
        if rough and not cycle:
            exact = product(step)
            if np.abs((applied - exact) / gap).max() > LEAST_PRECISION * np.abs(exact / gap).max():
                applied, rough = exact, None
        curvature = float(step @ applied)
        if curvature <= 0:
            raise _unstable("the matrix of the orbital response is not positive definite")
        z, residual, old = z + new / curvature * step, residual - new / curvature * applied, new
        report(cycle + 1)
    raise NotConverged(
        f"the Z-vector equations have not converged in {options.max_cycle} iterations: the residual is {error:.1e}, "
        f"below {options.tolerance:.1e} was expected. Allow more iterations, or check with mf.stability() whether the "
        "SCF solution is (nearly) unstable"
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
