"""What follows from evaluations of a structure: descriptors of its atoms, and second derivatives of the energy.

structure  -> features of all layers -> descriptors
structures -> forces where one coordinate is moved -> Hessian
"""

from __future__ import annotations

import numpy as np

from trnqc.errors import InputError
from trnqc.mace.evaluate import Evaluator

# Numbers, positions, cell and periodic directions, as `Evaluator` takes them.
System = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[bool, ...]]

# By how much a coordinate is moved for second derivatives, in Angstrom. The error of a central difference grows with
# its square, that by rounding of float64 forces with its inverse. Beside automatic differentiation, models with random
# weights have errors of 7e-8 of the largest element with 1e-4, 7e-10 with 1e-5, and 1e-10 with 3e-6, where rounding
# begins.
STEP = 1e-5


def descriptors(evaluator: Evaluator, system: System, invariants: bool, layers: int) -> np.ndarray:
    """The features of the first layers, -1 for all, one beside the other, in the type of the evaluator.

    Those of the last layer of the model, and all with `invariants`, are scalars. Raises InputError for a number of
    layers that the model does not have.
    """
    irreps = [product.linear.irreps_out for product in evaluator.model.products]
    if layers != -1 and not 1 <= layers <= len(irreps):
        raise InputError(f"num_layers: expected -1 or 1 to {len(irreps)}, the layers of the model; found {layers}")
    features = evaluator.features(*system)
    scalars = [invariants or t == len(irreps) - 1 for t in range(len(irreps))]
    parts = [h[:, : slots[0].mul] if only else h for h, slots, only in zip(features, irreps, scalars)]
    return np.concatenate(parts[: None if layers == -1 else layers], axis=1).astype(evaluator.dtype)


def hessian(evaluator: Evaluator, system: System) -> np.ndarray:
    """Second derivatives of the energy in eV/Angstrom^2, [3N, N, 3], by central differences of forces in float64."""
    exact = evaluator.in_float64()
    numbers, positions, cell, periodic = system
    result = np.empty((positions.size, *positions.shape))
    for place in np.ndindex(positions.shape):
        moved = np.zeros(positions.shape)
        moved[place] = STEP
        up, down = (exact(numbers, positions + sign * moved, cell, periodic).forces for sign in (1, -1))
        result[:, *place] = (down - up).ravel() / (2 * STEP)
    return result
