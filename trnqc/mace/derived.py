"""What follows from evaluations of a structure: descriptors of its atoms.

structure -> features of all layers -> descriptors
"""

from __future__ import annotations

import numpy as np

from trnqc.errors import InputError
from trnqc.mace.evaluate import Evaluator

# Numbers, positions, cell and periodic directions, as `Evaluator` takes them.
System = tuple[np.ndarray, np.ndarray, np.ndarray, tuple[bool, ...]]


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
