"""`trnqc.blas` on GPUs: blocks and panels that end differently, memory, errors, and what is asked of the driver."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from tests.backends.simulated_cuda import ColumnMajorBlas, RecordedCuda, SimulatedCuda
from tests.tolerances import PRODUCT
from trnqc import backends, blas
from trnqc.backends.cuda import gemm, linear_algebra, solvers
from trnqc.backends.cuda.products import DeviceMatrix
from trnqc.errors import BackendUnavailable, InputError, MemoryLimit, NotPositiveDefinite, UnsupportedPrecision

PRECISIONS = ["fp64", "fp32", "bf16x3"]


def random(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng([seed, *shape]).standard_normal(shape)


def positive(n: int) -> np.ndarray:
    x = random(n, 2 * n)
    return x @ x.T / n


@pytest.fixture(params=[SimulatedCuda, RecordedCuda])
def cuda(request, monkeypatch):
    """A stand-in that `backend="cuda"` finds."""
    monkeypatch.setattr(request.param, "name", "cuda")
    monkeypatch.setitem(backends._CLASSES, "cuda", (request.param.__module__, request.param.__name__))
    backends._instance.cache_clear()
    yield
    backends._instance.cache_clear()


@pytest.mark.parametrize("precision", PRECISIONS)
def test_operations_of_users(cuda, precision):
    """Both triangles, sides and transposes reach the GPU in the one form that it has."""
    options, error = {"backend": "cuda", "precision": precision}, 8 * PRODUCT[precision]
    a, b, c = random(7, 13), random(7, 5), random(13, 5)
    expected, size = 2 * a.T @ b - c, 2 * abs(a.T) @ abs(b) + abs(c)
    assert (abs(blas.gemm(a, b, c=c, alpha=2.0, beta=-1.0, trans_a=True, **options) - expected) <= error * size).all()
    upper = blas.syrk(a, lower=False, **options)
    assert (abs(upper - np.triu(a @ a.T)) <= error * (abs(a) @ abs(a.T))).all()
    s = positive(7)
    assert (abs(blas.symm(np.tril(s), b, **options) - s @ b) <= error * (abs(s) @ abs(b))).all()
    factor = blas.cholesky(s, lower=False, **options).astype(float)
    assert (abs(factor.T @ factor - s) <= error * (abs(factor.T) @ abs(factor))).all()
    x = blas.trsm(factor, b.T, side="right", lower=False, **options)
    assert (abs(x @ factor - b.T) <= error * (abs(x) @ abs(factor) + abs(b.T))).all()


@pytest.mark.parametrize("n", [63, 64, 65, 130])
def test_triangles_of_several_panels(monkeypatch, n):
    monkeypatch.setattr(gemm, "TRIANGLE_ROWS", 64)
    a, c = random(n, 9), random(n, n)
    for backend in (SimulatedCuda(), RecordedCuda()):
        result = np.tril(backend.blas("fp64").triangle(a.T, c, 2.0, 0.5))
        np.testing.assert_allclose(result, np.tril(2 * a @ a.T + 0.5 * c), rtol=0, atol=1e-12)


@pytest.mark.parametrize("n", [31, 32, 33, 97])
def test_factors_and_systems_of_several_panels(monkeypatch, n):
    monkeypatch.setattr(linear_algebra, "PANEL", 32)
    a, b, engine = positive(n), random(n, 3), SimulatedCuda().blas("bf16x3")
    lower = engine.cholesky(a).astype(float)
    assert (abs(lower @ lower.T - a) <= 4 * PRODUCT["bf16x3"] * (abs(lower) @ abs(lower).T)).all()
    x = engine.solve(lower, b)
    assert (abs(lower @ x - b) <= 8 * PRODUCT["bf16x3"] * (abs(lower) @ abs(x) + abs(b))).all()
    a[n - 1, n - 1] = -1.0
    with pytest.raises(NotPositiveDefinite, match=f"order {n}, of {n}"):
        engine.cholesky(a)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_large_stacks_are_copied_matrix_by_matrix(monkeypatch, precision):
    a, b = random(3, 13, 7), random(3, 13, 5)
    at_once = RecordedCuda().blas(precision).product(a, b, None, 1.0, 0.0)
    monkeypatch.setattr(gemm, "STAGING_BYTES", 0)
    np.testing.assert_array_equal(RecordedCuda().blas(precision).product(a, b, None, 1.0, 0.0), at_once)


def test_a_stack_is_one_product_and_two_copies():
    """The number of calls of the driver does not depend on the number of matrices."""

    def calls(count: int) -> tuple[int, ...]:
        backend = RecordedCuda()
        backend.blas("bf16x3").product(random(count, 13, 7), random(count, 13, 5), None, 1.0, 0.0)
        return tuple(backend.driver.count(name) for name in ("launch", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync"))

    assert calls(2) == calls(9) == (2, 2, 1)


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@pytest.mark.parametrize("make", [SimulatedCuda, RecordedCuda])
@pytest.mark.parametrize("n", [1, 2, 7])
def test_eigenvectors_are_rows_and_the_upper_triangle_is_not_read(make, n, dtype):
    (gpu,), a = make().gpus(), positive(n).astype(dtype)
    held = gpu.device.upload(
        np.stack([np.full((n, n), np.nan, dtype), np.tril(a) + np.triu(np.full_like(a, np.nan), 1)])
    )
    values = gpu.device.zeros(n + 1, dtype=dtype)
    assert gpu.solvers.eigenvectors(DeviceMatrix(held, n, n, n, n * n), DeviceMatrix(values, 1, n, n, 1)) == 0
    found, vectors = gpu.device.download(values), gpu.device.download(held)[1]
    error = 50 * np.finfo(dtype).eps * np.linalg.norm(a)
    np.testing.assert_allclose(found, [0.0, *np.linalg.eigvalsh(a)], rtol=0, atol=error)
    np.testing.assert_allclose(vectors @ a @ vectors.T, np.diag(found[1:]), rtol=0, atol=error)
    assert np.isnan(gpu.device.download(held)[0]).all()


def test_memory_is_released_after_results_and_errors():
    backend = SimulatedCuda(memory=20_000)
    (device,), engine = backend.simulated, backend.blas("fp64")
    engine.product(random(9, 9), random(9, 9), None, 1.0, 0.0)
    engine.solve(engine.cholesky(positive(9)), random(9, 2))
    with pytest.raises(NotPositiveDefinite):
        engine.cholesky(-np.eye(9))
    with pytest.raises(MemoryLimit, match="simulated 0 has"):
        engine.product(random(50, 50), random(50, 50), None, 1.0, 0.0)
    assert device.used == 0 < device.most_used


def test_bad_input_has_one_clear_error(cuda):
    with pytest.raises(UnsupportedPrecision, match="'bf16x6' was asked for"):
        blas.gemm(np.eye(2), np.eye(2), backend="cuda", precision="bf16x6")
    with pytest.raises(InputError, match="a must have finite elements"):
        blas.cholesky(np.diag([1.0, np.nan]), backend="cuda")
    with pytest.raises(InputError, match="a overflows in bf16x3"):
        blas.gemm(np.full((2, 2), 3.4e38), np.eye(2), backend="cuda", precision="bf16x3")
    with pytest.raises(NotPositiveDefinite, match="order 2, of 2"):
        blas.cholesky(np.diag([1.0, -1.0]), backend="cuda")


def test_a_gpu_without_bf16_is_named():
    old = SimulatedCuda(arch="sm_75")
    with pytest.raises(UnsupportedPrecision, match=r"bf16x3 needs .* 8\.0 or later, but simulated 0 has 7\.5"):
        old.blas("bf16x3")


@pytest.mark.parametrize("library", ["cuBLAS", "cuSOLVER"])
def test_a_library_that_does_not_start_is_named(monkeypatch, library):
    def create() -> int:
        raise RuntimeError("NOT_INITIALIZED")

    (gpu,) = RecordedCuda().gpus()
    own = solvers.CusolverSolvers(gpu.device)
    monkeypatch.setattr(
        solvers, library.lower(), lambda: SimpleNamespace(create=create, FillMode=ColumnMajorBlas.FillMode)
    )
    memory = DeviceMatrix(gpu.device.zeros(2, 2), 2, 2, 2)
    with pytest.raises(
        BackendUnavailable, match=rf"{library} does not start on recorded 0 .*NOT_INITIALIZED.*pip install"
    ):
        own.solve(memory, memory) if library == "cuBLAS" else own.eigen_label
