"""Counts of loops' turns: exact for one operand, close for products."""

import numpy as np
import pytest

from trnqc.sparse.network.network import network
from trnqc.sparse.search.statistics import Statistics, occupied
from trnqc.sparse.tensors.storage import from_dense

EXTENTS = {"K": 60, "m": 20, "n": 25, "i": 12, "u": 7}


def make(subscripts, stored):
    """Statistics, and which elements are stored: random with probability `stored`, near the diagonal for None."""
    rng = np.random.default_rng(5)
    arrays = []
    for labels, part in zip(subscripts.split("->")[0].split(","), stored):
        shape = [EXTENTS[x] for x in labels]
        places = np.indices(shape) / np.array(shape).reshape(-1, *(1,) * len(shape))
        near = np.ptp(places, axis=0) < 0.2 if part is None else rng.random(shape) < part
        arrays.append(near.astype(float))
    operands = [from_dense(a, kinds=["compressed"] * a.ndim) for a in arrays]
    return Statistics(network(subscripts, [a.shape for a in arrays]), operands), arrays


@pytest.mark.parametrize("part", [0.0, 0.1, 1.0, None])
def test_one_operand_is_counted(part):
    statistics, (array,) = make("Kmn->K", [part])
    assert statistics.count((0,), frozenset("Kmn")) == np.count_nonzero(array)
    assert statistics.count((0,), frozenset("Kn")) == np.count_nonzero(array.any(axis=1))
    assert statistics.fill((0,), "Kmn") == np.count_nonzero(array) / array.size


@pytest.mark.parametrize(
    ("subscripts", "stored", "kept", "within"),
    [
        ("Kmn,mi->Kni", (0.1, 0.3), "Kmni", 0.05),  # turns of random operands: independent indeed
        ("Kmn,mi->Kni", (0.02, 0.3), "Kni", 0.2),
        ("Kmn,mi->Kni", (None, None), "Kni", 0.3),  # guesses would be off by a factor
        ("Kmn,mi->Kni", (0.1, 1.0), "Kni", 1e-12),  # a full operand restricts nothing
        ("Kmn,nu,mi->Kui", (0.02, 1.0, 0.3), "Kui", 0.2),
        ("Kmn,mi,Ki->Kni", (0.02, 0.3, 0.2), "Kni", 0.3),
        ("Km,ni->Kmni", (0.3, 0.2), "Kmni", 1e-12),
        ("Km,mi,nu->Kinu", (0.1, 0.2, 0.3), "Kiu", 0.3),
        ("Km,mi->Ki", (0.0, 0.5), "Ki", 0.0),
    ],
)
def test_products(subscripts, stored, kept, within):
    statistics, arrays = make(subscripts, stored)
    true = np.count_nonzero(np.einsum(f"{subscripts.split('->')[0]}->{kept}", *arrays))
    result = statistics.count(tuple(range(len(arrays))), frozenset(kept))
    assert abs(result - true) <= within * true


def test_occupied():
    assert occupied(0, 10) == 0 and occupied(5, 0) == 0
    assert occupied(1e9, 10) == pytest.approx(10) and occupied(1, 1e9) == pytest.approx(1)
