"""Weighted amplitudes and their sums, by compiled code and by NumPy, against the formulas written out."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.backends.cpu.pair_amplitudes import (
    AmplitudeWeights,
    CompiledAmplitudes,
    NumpyAmplitudes,
    make_amplitudes,
)
from trnqc.backends.cpu.pair_products import Slab
from trnqc.errors import CompilerError

WAYS = pytest.mark.parametrize("way", [CompiledAmplitudes, NumpyAmplitudes])
# One tile of pair_energy.c is 32 x 32.
SIZES = {"one": 1, "prime": 7, "tile": 32, "more than a tile": 33, "tiles": 96}
WEIGHTS = {
    "MP2": AmplitudeWeights(2.0, 1.0, True),
    "SCS": AmplitudeWeights(6 / 5 + 1 / 3, 1 / 3, True),
    "one spin of two": AmplitudeWeights(0.7, 0.7, True),
    "symmetric part only": AmplitudeWeights(0.5, -0.5, True),
    "no amplitudes": AmplitudeWeights(0.0, 0.0, True),
    "opposite spin": AmplitudeWeights(1.3, 0.0, False),
}


class Block:
    """Random integrals of orbitals 0 and 1 with three orbitals j, of which the last is 1 for pairs of the same spin."""

    def __init__(self, weights, nvir, seed=0):
        rng = np.random.default_rng(seed)
        left, right = (np.sort(rng.uniform(0.2, 3, n)) for n in (nvir, nvir + 5))
        self.weights, self.eps_vir = weights, (left, left if weights.same_spin else right)
        self.k = rng.standard_normal((2, 3, *map(len, self.eps_vir)))
        if weights.same_spin:
            self.k[1, 2] += self.k[1, 2].T
        self.e_pair = -rng.uniform(1, 2, (2, 3))
        self.t = self.k / (self.e_pair[:, :, None, None] - self.eps_vir[0][:, None] - self.eps_vir[1])
        exchanged = self.t.swapaxes(2, 3) if weights.same_spin else 0.0
        self.w = weights.direct * self.t - weights.exchange * exchanged

    def symmetric(self, i):
        return self.weights.same_spin and i == 1

    def computed(self, way):
        """The object, W of all pairs with j from 1 on in a block of four, and the energy sums."""
        amplitudes = way(self.weights, self.eps_vir)
        w = np.full((2, len(self.eps_vir[0]), 4, len(self.eps_vir[1])), np.nan)
        sums = []
        for i in range(2):
            # One column of other numbers precedes the integrals, as where packed products begin inside a panel.
            slab = np.concatenate([np.ones((len(self.eps_vir[0]), 1)), *self.k[i]], axis=1)
            sums.append(amplitudes.weighted(Slab(slab, 1, self.symmetric(i)), self.e_pair[i], w, i, 1))
        assert np.isnan(w[:, :, 0]).all()
        return amplitudes, w, sums


@pytest.fixture(params=[(w, n) for w in WEIGHTS for n in SIZES], ids=lambda case: ", ".join(case))
def block(request):
    weights, size = request.param
    return Block(WEIGHTS[weights], SIZES[size])


@WAYS
def test_amplitudes_and_energies(way, block):
    _, w, sums = block.computed(way)
    np.testing.assert_allclose(w[:, :, 1:].swapaxes(1, 2), block.w, rtol=0, atol=1e-14)
    energies, norms = np.array([s.energies for s in sums]), np.array([s.norms for s in sums])
    np.testing.assert_allclose(energies[..., 0], np.einsum("ijab,ijab->ij", block.k, block.t), rtol=1e-13)
    expected = np.einsum("ijba,ijab->ij", block.k, block.t) if block.weights.same_spin else np.zeros((2, 3))
    np.testing.assert_allclose(energies[..., 1], expected, rtol=1e-13, atol=1e-12)
    np.testing.assert_allclose(norms, np.einsum("ijab,ijab->ij", block.w, block.t), rtol=1e-13, atol=1e-12)


@WAYS
def test_virtual_densities(way, block):
    """The sums over ij and ji of W t^T, of which `virtual_sums` may leave out what cancels."""
    amplitudes, w, diagonals = block.computed(way)
    left, right = (np.array([(n - 1, 0), (0, 0)]) for n in w.shape[1::2])
    for i, diagonal in enumerate(diagonals):
        sums = amplitudes.virtual_sums(w, i, slice(1, 4), block.symmetric(i), (left, right))
        ij = np.einsum("jac,jbc->ab", block.w[i], block.t[i])
        pairs = slice(0, 2 if block.symmetric(i) else 3)
        ji = np.einsum("jca,jcb->ab", block.w[i, pairs], block.t[i, pairs])
        if block.weights.same_spin:
            np.testing.assert_allclose(sums[0] + sums[1], (ij + ji)[tuple(left.T)], rtol=1e-13, atol=1e-12)
            np.testing.assert_allclose(diagonal.left, np.diag(ij + ji), rtol=1e-13, atol=1e-12)
            assert not diagonal.right.any()
        else:
            np.testing.assert_allclose(sums[0], ij[tuple(left.T)], rtol=0, atol=1e-12)
            np.testing.assert_allclose(sums[1], ji[tuple(right.T)], rtol=0, atol=1e-12)
            np.testing.assert_allclose(diagonal.left, np.diag(ij), rtol=0, atol=1e-12)
            np.testing.assert_allclose(diagonal.right, np.diag(ji), rtol=0, atol=1e-12)


@WAYS
def test_overlaps(way, block):
    amplitudes, w, _ = block.computed(way)
    weighted, t = block.w[0, 0], block.t[1, 1]
    assert amplitudes.overlap(w, (0, 1), (1, 2)) == pytest.approx(np.vdot(weighted, t), abs=1e-12)
    if block.weights.same_spin:
        crossed = amplitudes.overlap(w, (0, 1), (1, 2), transposed=True)
        assert crossed == pytest.approx(np.vdot(weighted, t.T), abs=1e-12)


def test_without_a_compiler(monkeypatch):
    block = Block(WEIGHTS["MP2"], 7)
    assert isinstance(make_amplitudes(block.weights, block.eps_vir), CompiledAmplitudes)

    def no_compiler():
        raise CompilerError("no C compiler")

    monkeypatch.setattr("trnqc.backends.cpu.pair_amplitudes.amplitude_library", no_compiler)
    assert isinstance(make_amplitudes(block.weights, block.eps_vir), NumpyAmplitudes)
