"""The kernel that measures products, against its reference and against other roundings of products."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nki_kernels.precision.probe import probe, reference_probe
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc import sim


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_agrees_with_its_reference(precision, target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    rng = np.random.default_rng(3)
    a, b = (split(rng.standard_normal((256, 128)), precision) for _ in range(2))
    square = rng.standard_normal((128, 128)).astype(np.float32)
    out, expected = sim.simulate(probe)(a, b, square), reference_probe(a, b, square)
    np.testing.assert_allclose(out[0], expected[0], rtol=1e-6, atol=1e-30)
    np.testing.assert_allclose(out[1], expected[1], rtol=0, atol=1e-4)
    np.testing.assert_array_equal(out[2], expected[2])


def test_single_products_are_not_summed_with_others(monkeypatch):
    """The first result is the product of the first rows alone, so that it shows how a device rounds one product."""
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    rng = np.random.default_rng(4)
    a, b = (split(rng.standard_normal((128, 128)), "bf16") for _ in range(2))
    out = sim.simulate(probe)(a, b, np.zeros((128, 128), np.float32))
    products = np.outer(a[0, 0].astype(np.float32), b[0, 0].astype(np.float32))
    np.testing.assert_array_equal(out[0], products.astype(ml_dtypes.bfloat16).astype(np.float32))
