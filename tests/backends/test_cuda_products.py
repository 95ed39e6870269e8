"""Products of matrices in the memory of devices, and the calls of cuBLAS behind them."""

from __future__ import annotations

import inspect

import ml_dtypes
import numpy as np
import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from tests.backends.simulated_cuda import ColumnMajorBlas, ColumnMajorSolver
from trnqc.backends.cuda import products
from trnqc.backends.cuda.products import CublasProducts, DeviceMatrix, SimulatedProducts
from trnqc.jit.simulated_device import SimulatedDevice


def with_addresses() -> tuple[CublasProducts, RecordedDevice]:
    device = RecordedDevice(RecordingDriver(), streams=2)
    return CublasProducts(device), device


def on_simulated() -> tuple[SimulatedProducts, SimulatedDevice]:
    device = SimulatedDevice()
    return SimulatedProducts(device), device


@pytest.mark.parametrize("transpose", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize("make", [on_simulated, with_addresses])
def test_products_of_parts_of_arrays(monkeypatch, make, dtype, transpose):
    monkeypatch.setattr(products, "cublas", ColumnMajorBlas)
    rng, (m, k, n), (multiplier, device) = np.random.default_rng(0), (3, 4, 5), make()
    shapes = (m, k)[:: -1 if transpose[0] else 1], (k, n)[:: -1 if transpose[1] else 1]
    wide = [rng.integers(-8, 8, (rows, columns + 3)).astype(dtype) for rows, columns in shapes]
    left, right = (DeviceMatrix(device.upload(x), *s, x.shape[1], 2) for x, s in zip(wide, shapes))
    a, b = ((x[:, 2:-1].T if flag else x[:, 2:-1]).astype(float) for x, flag in zip(wide, transpose))
    out = device.zeros(m + 1, n + 2, dtype=np.float64 if dtype == np.float64 else np.float32)
    for add in (False, True):
        multiplier.multiply(
            left, right, DeviceMatrix(out, m, n, n + 2, 1), transpose=transpose, beta=float(add), stream=1
        )
        result = device.download(out).ravel()[1 : 1 + m * (n + 2)].reshape(m, n + 2)[:, :n]
        np.testing.assert_array_equal(result, (1 + add) * (a @ b))


def test_every_stream_has_a_handle_of_its_own(monkeypatch):
    blas = ColumnMajorBlas()
    monkeypatch.setattr(products, "cublas", lambda: blas)
    assert with_addresses()[0].label == "products by cuBLAS 130000 on recorded 0 (sm_80)"
    assert blas.streams == {1: 0, 2: 1}


CALLED = [
    ("cublas", ColumnMajorBlas, "gemm_ex"),
    ("cublas", ColumnMajorBlas, "gemm_strided_batched_ex"),
    ("cublas", ColumnMajorBlas, "dtrsm"),
    ("cublas", ColumnMajorBlas, "strsm"),
    ("cusolverDn", ColumnMajorSolver, "dpotrf"),
    ("cusolverDn", ColumnMajorSolver, "spotrf"),
    ("cusolverDn", ColumnMajorSolver, "dpotrf_buffer_size"),
    ("cusolverDn", ColumnMajorSolver, "spotrf_buffer_size"),
]


@pytest.mark.parametrize("module, emulation, name", CALLED, ids=[name for *_, name in CALLED])
def test_the_bindings_have_what_is_called(module, emulation, name):
    """Without a GPU the calls cannot be made, but the emulation has the names and parameters of the bindings."""
    bindings = pytest.importorskip(f"nvmath.bindings.{module}", reason="needs nvmath-python")
    signature = (getattr(bindings, name).__doc__ or "").split(")")[0]
    names = [part.split()[-1] for part in signature.partition("(")[2].split(",")]
    assert names == list(inspect.signature(getattr(emulation, name)).parameters)[1:]


def test_the_bindings_have_handles_and_options():
    cublas = pytest.importorskip("nvmath.bindings.cublas", reason="needs nvmath-python")
    cusolver = pytest.importorskip("nvmath.bindings.cusolverDn", reason="needs nvmath-python")
    for function in (cublas.create, cublas.set_stream, cublas.get_version, cusolver.create, cusolver.set_stream):
        assert callable(function)
    for enumeration in ("Operation", "ComputeType", "GemmAlgo", "SideMode", "FillMode", "DiagType"):
        for name, value in vars(getattr(ColumnMajorBlas, enumeration)).items():
            assert getattr(cublas, enumeration)[name] == value
