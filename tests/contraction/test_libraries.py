"""Arrays of libraries other than NumPy and PyTorch, through Python's array API standard."""

from __future__ import annotations

from types import SimpleNamespace

import array_api_strict as strict
import numpy as np
import pytest

import trnqc
from trnqc.errors import InputError, UnsupportedError

DOUBLE, SINGLE = {"rtol": 1e-12, "atol": 1e-12}, {"rtol": 1e-5, "atol": 1e-4}
EXPRESSIONS = ["ij,jk,kl->il", "ijk,ik->j", "ij,j->", "ab,cd->dacb", "bij,bjk->bik", "ij->ji", "ijk->j"]


def numbers(expression: str, kind: str = "d") -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [
        rng.standard_normal([3 + "abcdijkl".index(x) for x in labels]).astype(kind)
        for labels in expression.split("->")[0].split(",")
    ]


@pytest.mark.parametrize("kind", ["d", "f", "D"])
@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_strict_arrays_give_strict_arrays(expression, kind):
    arrays = numbers(expression, kind)
    result = trnqc.einsum(expression, *map(strict.asarray, arrays))
    assert isinstance(result, type(strict.asarray(0.0)))
    expected = np.einsum(expression, *arrays)
    assert np.asarray(result).dtype == expected.dtype
    np.testing.assert_allclose(np.asarray(result), expected, **(SINGLE if kind == "f" else DOUBLE))


def test_mixed_types_limits_and_symmetries():
    a, b, c = numbers("ij,jk,kl->il")
    single = strict.asarray(a.astype("f"))
    assert trnqc.einsum("ij,jk,kl->il", single, strict.asarray(b), strict.asarray(c)).dtype == strict.float64
    t = np.random.default_rng(2).standard_normal((40, 40, 6, 6))
    t, v = t - t.transpose(1, 0, 2, 3), np.random.default_rng(3).standard_normal((40, 40, 40, 40))
    v = v - v.transpose(0, 1, 3, 2)
    expected = np.einsum("abef,efij->abij", v, t)
    for options in ({}, {"memory_limit": 10**6}, {"symmetries": {0: "abef = -abfe", 1: "efij = -feij"}}):
        result = trnqc.einsum("abef,efij->abij", strict.asarray(v), strict.asarray(t), **options)
        np.testing.assert_allclose(np.asarray(result), expected, rtol=1e-10, atol=1e-10)


def test_elements_are_checked():
    a, b = numbers("ij,jk->ik")
    a[0, 0] = np.nan
    with pytest.raises(InputError, match="1 elements that are not finite"):
        trnqc.einsum("ij,jk->ik", strict.asarray(a), strict.asarray(b))
    with pytest.raises(InputError, match="array_api_strict and numpy"):
        trnqc.einsum("ij,kj->ik", strict.asarray(b), b)


def test_functions_that_a_library_lacks_are_named(monkeypatch):
    x = strict.ones((3, 3))
    with pytest.raises(UnsupportedError, match=r"has no einsum.*diagonal"):
        trnqc.einsum("ii,ij->j", x, x)
    monkeypatch.delattr(strict, "matmul")
    with pytest.raises(UnsupportedError, match="has no matmul"):
        trnqc.einsum("ij,jk->ik", x, x)


def test_other_objects_are_named():
    labelled = type("DataArray", (), {"__module__": "xarray.core.dataarray", "shape": (2, 2), "dtype": np.dtype("d")})()
    with pytest.raises(UnsupportedError, match=r"xarray.*take its \.data"):
        trnqc.einsum("ij,jk->ik", labelled, labelled)
    with pytest.raises(UnsupportedError, match="SimpleNamespace"):
        trnqc.einsum("ij,jk->ik", *[SimpleNamespace(shape=(2, 2), dtype=np.dtype("d"))] * 2)


def test_jax_arrays_are_traced_and_differentiated():
    jax = pytest.importorskip("jax")
    arrays = [x.astype("f") for x in numbers("ij,jk,kl->il")]
    expected = arrays[0] @ arrays[1] @ arrays[2]

    def product(*operands):
        return trnqc.einsum("ij,jk,kl->il", *operands)

    a, b, c = map(jax.numpy.asarray, arrays)
    close = {"rtol": 1e-4, "atol": 1e-4}
    np.testing.assert_allclose(product(a, b, c), expected, **close)
    np.testing.assert_allclose(jax.jit(product)(a, b, c), expected, **close)
    np.testing.assert_allclose(
        jax.grad(lambda x: product(x, b, c).sum())(a), np.ones((3 + 4, 3 + 7)) @ (arrays[1] @ arrays[2]).T, **close
    )
    np.testing.assert_allclose(jax.vmap(lambda x: product(x, b, c))(a[None])[0], expected, **close)
    tangent = jax.jvp(lambda x: product(x, b, c), (a,), (a,))[1]
    np.testing.assert_allclose(tangent, expected, **close)
    with pytest.raises(UnsupportedError, match="traced"):
        jax.jit(lambda x: trnqc.einsum("ij,jk,kl->il", x, b, c, memory_limit=8))(a)
