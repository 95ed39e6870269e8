"""Clebsch-Gordan coefficients against e3nn, and their defining properties where e3nn is slow."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.cg.problem.coefficients import clebsch_gordan, sparse
from trnqc.errors import IrrepsError

TRIPLES = [(a, b, c) for a in range(5) for b in range(5) for c in range(abs(a - b), min(a + b, 5) + 1)]
HIGH = [(7, 7, 7), (8, 8, 8), (8, 3, 7), (6, 8, 2), (0, 8, 8)]


@pytest.mark.parametrize("triple", [*TRIPLES, *HIGH], ids=str)
def test_they_are_e3nns(triple):
    torch, o3 = pytest.importorskip("torch"), pytest.importorskip("e3nn.o3")
    theirs = o3.wigner_3j(*triple, dtype=torch.float64).numpy()
    ours = clebsch_gordan(*triple)
    # e3nn's own rounding grows with the degree: it adds terms that cancel.
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=2e-15)
    assert np.array_equal(ours != 0, abs(theirs) > 1e-12)


@pytest.mark.parametrize("triple", [(1, 1, 1), (4, 3, 5), (8, 8, 8), (10, 9, 12)], ids=str)
def test_the_components_of_an_output_are_orthonormal(triple):
    c = clebsch_gordan(*triple)
    d = 2 * triple[2] + 1
    np.testing.assert_allclose(np.einsum("ijk,ijl->kl", c, c), np.eye(d) / d, rtol=0, atol=1e-16 * d)


def test_vectors_couple_to_dot_and_cross_products():
    """Components stand as y, z, x, which is cyclic: the cross product keeps its sign."""
    x, y = np.array([0.3, -1.2, 0.7]), np.array([1.1, 0.4, -0.9])
    dot, cross = (np.einsum("ijk,i,j->k", clebsch_gordan(1, 1, l), x, y) for l in (0, 1))
    np.testing.assert_allclose(dot, [x @ y / np.sqrt(3)], rtol=1e-15)
    np.testing.assert_allclose(cross, np.cross(x, y) / np.sqrt(6), rtol=1e-14)


def test_triplets_are_the_array():
    c = np.zeros((5, 7, 5))
    for i, j, k, value in sparse(2, 3, 2):
        assert value != 0
        c[i, j, k] = value
    assert np.array_equal(c, clebsch_gordan(2, 3, 2))


def test_the_array_cannot_be_changed():
    with pytest.raises(ValueError, match="read-only"):
        clebsch_gordan(1, 1, 0)[0, 0, 0] = 1


@pytest.mark.parametrize("triple", [(1, 1, 3), (0, 2, 1), (2, 2, -1)], ids=str)
def test_degrees_that_do_not_couple_are_refused(triple):
    with pytest.raises(IrrepsError, match="found l3"):
        clebsch_gordan(*triple)
