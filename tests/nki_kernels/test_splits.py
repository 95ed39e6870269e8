"""Splits of operands: what their parts leave of a number, and which products of parts need no rounding."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from nki_kernels.precision.splits import PRECISIONS, products_of, split, sum_of_products

# What the parts leave of a number, relative to it: half a unit in the last place of the last part.
LEFT = {"fp32": 2.0**-24, "bf16x15": 2.0**-24, "bf16x6": 2.0**-26, "bf16x3": 2.0**-17, "bf16": 2.0**-8}


def numbers(*shape):
    """Numbers of both signs over many orders of magnitude, and powers of two and their neighbours."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(shape) * 2.0 ** rng.integers(-20, 20, shape)
    x.ravel()[:4] = 0.0, 1.0, 1.0 - 2.0**-30, 1.0 + 2.0**-30
    return x


@pytest.mark.parametrize("precision", PRECISIONS)
def test_the_parts_add_up_to_the_number(precision):
    x = numbers(1000)
    parts = split(x, precision)
    assert parts.dtype == PRECISIONS[precision].dtype and len(parts) == PRECISIONS[precision].parts
    assert np.all(np.abs(parts.astype(np.float64).sum(0) - x) <= LEFT[precision] * np.abs(x))


@pytest.mark.parametrize("precision", PRECISIONS)
def test_sums_of_products_have_the_promised_error(precision):
    a, b = numbers(50, 20), numbers(50, 30)
    error = np.abs(sum_of_products(split(a, precision), split(b, precision)) - a.T @ b)
    assert np.all(error <= PRECISIONS[precision].error * (np.abs(a).T @ np.abs(b)))


@pytest.mark.parametrize("precision", ["bf16x3", "bf16x6", "bf16x15"])
def test_the_name_tells_the_number_of_products(precision):
    parts = PRECISIONS[precision].parts
    assert precision == f"bf16x{len(products_of(parts, parts))}"


def test_products_of_four_bit_parts_are_numbers_in_bf16():
    a, b = split(numbers(400), "bf16x15"), split(numbers(400)[::-1].copy(), "bf16x15")
    products = a.astype(np.float64)[:, None] * b.astype(np.float64)[None]
    assert np.array_equal(products.astype(ml_dtypes.bfloat16).astype(np.float64), products)
    high = split(numbers(400), "bf16").astype(np.float64)
    assert not np.array_equal((high**2).astype(ml_dtypes.bfloat16).astype(np.float64), high**2)
