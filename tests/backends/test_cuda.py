"""The backend of GPUs meets the contract of all backends: on simulated devices, and on GPUs where there are any."""

from __future__ import annotations

import ctypes
import sys
from types import SimpleNamespace
from typing import ClassVar

import ml_dtypes
import numpy as np
import pytest

from tests.backends.contract import factor_set, random_factors, random_spins, reference_opposite_spin
from tests.backends.gamma_contract import GammaContract, weighted_products
from tests.backends.simulated_cuda import SimulatedCuda
from tests.tolerances import PRODUCT
from trnqc import backends
from trnqc.backends.cuda import blocks, products
from trnqc.backends.cuda.backend import Cuda
from trnqc.backends.cuda.products import CublasProducts, Matrix, SimulatedProducts
from trnqc.errors import BackendUnavailable, MemoryLimit, UnsupportedPrecision
from trnqc.jit.device import DeviceArray
from trnqc.jit.simulated_device import SimulatedDevice

STATUS = backends.statuses()["cuda"]


class TestSimulated(GammaContract):
    backend = SimulatedCuda()


if STATUS.usable and not STATUS.reason:

    class TestGpus(GammaContract):
        backend = Cuda()

else:

    @pytest.mark.skip(reason=f"needs a GPU and cuBLAS: {STATUS.reason}")
    def test_gpus():
        """Stands for the contract of all backends."""


SIZE = (13, 7, 19)


def energies(backend: Cuda, precision: str = "fp64", **options) -> tuple[np.ndarray, np.ndarray]:
    result = backend.mp2_pairs(*random_factors(*SIZE), precision=precision, **options)
    return result.os, result.ss


@pytest.mark.parametrize("precision", ["fp64", "bf16x3"])
def test_gpus_share_the_pairs_and_give_the_same_digits(precision):
    three, seen = SimulatedCuda(3), []
    shared = energies(three, precision, progress=lambda *step: seen.append(step))
    assert seen[-1] == (91, 91) and [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert all(device.launches > 2 for device in three.simulated)
    np.testing.assert_allclose(
        shared, energies(SimulatedCuda(1), precision), rtol=1e-6 if precision != "fp64" else 1e-13
    )


def test_more_gpus_than_orbitals():
    B, eps_occ, eps_vir = random_factors(1, 7, 13)
    assert SimulatedCuda(3).mp2_pairs(B, eps_occ, eps_vir, precision="fp64").e_os < 0


def test_panels_come_and_go_where_memory_is_short():
    """Memory for two or three orbitals at a time gives the same energies, and all of it is freed."""
    (one_orbital, pair), whole = (8 * 7 * 24, 8 * 49), energies(SimulatedCuda())
    for orbitals in (2, 3, 5):
        short = SimulatedCuda(memory=int((2 * orbitals * one_orbital + 2 * pair * orbitals) / 0.45 + 4000))
        (device,) = short.simulated
        np.testing.assert_allclose(energies(short), whole, rtol=1e-13)
        assert device.used == 0 and device.most_used < device.memory < 8 * 13 * 7 * 24 + 8 * 91 * 49 + 30_000
        (left, right), eps_occ, eps_vir = spins = random_spins(6, 5, (7, 9), 19)
        result = short.mp2_opposite_spin(left, right, eps_occ, eps_vir, precision="fp64")
        np.testing.assert_allclose(result.os, reference_opposite_spin(spins), rtol=1e-12)


@pytest.mark.parametrize("precision", ["fp64", "bf16x3"])
def test_gamma_of_several_gpus_with_little_memory(monkeypatch, precision):
    """Panels of two orbitals and blocks of one of them: every product adds to what is there."""
    monkeypatch.setattr(blocks, "BLOCK_BYTES", 1)
    monkeypatch.setattr(blocks, "PANELS_A_GPU", 3)
    small = SimulatedCuda(2, memory=40_000)
    left, right = factor_set((11, 7, 13)), factor_set((9, 5, 13))
    for other in (None, right):
        sets, exchange = [left, *([other] if other else [])], 0.0 if other else 0.5
        sums = [np.zeros(s.B.shape) for s in sets]

        def add(side: int, rows: slice, values: np.ndarray, sums=sums) -> None:
            assert rows.stop - rows.start <= 2
            sums[side][rows] += values

        small.mp2_gamma(left, other, add, direct=1.5, exchange=exchange, precision=precision)
        for gamma, of, with_ in zip(sums, sets, [other or left, left]):
            exact, scale = weighted_products(of, with_, 1.5, exchange)
            assert np.all(abs(gamma - exact) <= 4 * PRODUCT[precision] * scale)
    assert all(device.used == 0 and device.most_used < 40_000 for device in small.simulated)


def test_a_gpu_with_too_little_memory_is_named():
    with pytest.raises(MemoryLimit, match=r"one pair of orbitals \(7 and 7 .* needs 0\.00\d+ MB, but simulated 0 has"):
        energies(SimulatedCuda(memory=3000))


def test_a_limit_of_the_host_counts_what_a_gpu_needs_there():
    needed = random_factors(*SIZE)[0].nbytes + SimulatedCuda(2).pair_block_bytes(13, 13, 7, 19, precision="fp64")
    np.testing.assert_array_equal(energies(SimulatedCuda(2), max_memory=needed), energies(SimulatedCuda(2)))
    with pytest.raises(MemoryLimit, match=r"needs 0\.0\d+ MB on the host .* keep B on disk"):
        energies(SimulatedCuda(2), max_memory=needed - 1)


def test_an_error_on_one_gpu_ends_the_job(monkeypatch):
    backend = SimulatedCuda(2)

    def fail(*arguments, **options):
        raise MemoryLimit("the second one is full")

    monkeypatch.setattr(backend.simulated[1], "write", fail)
    with pytest.raises(MemoryLimit, match="the second one is full"):
        energies(backend)


def test_an_old_gpu_lacks_bf16():
    old = SimulatedCuda(arch="sm_75")
    assert np.isfinite(energies(old, "fp32")).all()
    with pytest.raises(UnsupportedPrecision, match=r"bf16x3 needs .* 8\.0 or later, but simulated 0 has 7\.5"):
        energies(old, "bf16x3")


def test_numbers_that_are_not_finite_are_passed_on():
    """`trnqc.mp2.pairs.run_pairs` refuses them; no lane outside of a matrix may hide or spread them."""
    B, eps_occ, eps_vir = random_factors(3, 33, 5)
    B = B.copy()
    B[1, 32, 4] = np.nan
    result = SimulatedCuda().mp2_pairs(B, eps_occ, eps_vir, precision="fp64")
    assert np.isnan(result.os[1, :2]).all() and np.isnan(result.os[2, 1])
    assert np.isfinite([result.os[0, 0], result.os[2, 0], result.os[2, 2]]).all()


class HostDevice:
    """A simulated device whose memory has addresses, as `CublasProducts` takes it."""

    name, arch, streams = "host", "sm_80", 2

    def make_current(self) -> None: ...

    def stream_address(self, stream: int) -> int:
        return 100 + stream

    def address(self, memory: DeviceArray) -> int:
        return memory.handle.ctypes.data


class ColumnMajorBlas:
    """cublasGemmEx by NumPy: C = alpha op(A) op(B) + beta C of matrices in the order of Fortran, at addresses."""

    Operation = SimpleNamespace(N=0, T=1)
    ComputeType = SimpleNamespace(COMPUTE_32F=68, COMPUTE_64F=70)
    GemmAlgo = SimpleNamespace(DFALT=-1)
    dtypes: ClassVar = {0: np.dtype(np.float32), 1: np.dtype(np.float64), 14: np.dtype(ml_dtypes.bfloat16)}

    def __init__(self) -> None:
        self.streams: dict[int, int] = {}

    def create(self) -> int:
        return len(self.streams) + 1

    def set_stream(self, handle: int, stream: int) -> None:
        self.streams[handle] = stream

    def get_version(self, handle: int) -> int:
        return 130000

    def matrix(self, address: int, kind: int, ld: int, rows: int, columns: int) -> np.ndarray:
        assert ld >= rows
        size = ((columns - 1) * ld + rows) * self.dtypes[kind].itemsize
        flat = np.frombuffer((ctypes.c_char * size).from_address(address), self.dtypes[kind])
        return np.lib.stride_tricks.as_strided(flat, (rows, columns), (flat.itemsize, ld * flat.itemsize))

    def gemm_ex(self, handle, transa, transb, m, n, k, alpha, a, atype, lda, b, btype, ldb, beta, c, ctype, ldc,
                compute_type, algo):  # fmt: skip
        assert handle in self.streams and algo == -1
        scalar = {68: np.float32, 70: np.float64}[compute_type]
        one, old = (
            np.frombuffer((ctypes.c_char * scalar().itemsize).from_address(x), scalar)[0] for x in (alpha, beta)
        )
        left = self.matrix(a, atype, lda, *((k, m) if transa else (m, k)))
        right = self.matrix(b, btype, ldb, *((n, k) if transb else (k, n)))
        out = self.matrix(c, ctype, ldc, m, n)
        factors = (left.T if transa else left).astype(scalar), (right.T if transb else right).astype(scalar)
        out[...] = one * (factors[0] @ factors[1]) + (old * out if old else 0)


def with_addresses() -> CublasProducts:
    return CublasProducts(HostDevice())


@pytest.mark.parametrize("transpose", [(False, False), (False, True), (True, False), (True, True)], ids=str)
@pytest.mark.parametrize("dtype", [np.float64, np.float32, ml_dtypes.bfloat16])
@pytest.mark.parametrize(
    "make", [lambda: SimulatedProducts(SimulatedDevice()), with_addresses], ids=["NumPy", "cuBLAS"]
)
def test_products_of_parts_of_arrays(monkeypatch, make, dtype, transpose):
    monkeypatch.setattr(products, "cublas", ColumnMajorBlas)
    rng, (m, k, n), device = np.random.default_rng(0), (3, 4, 5), SimulatedDevice()
    shapes = (m, k)[:: -1 if transpose[0] else 1], (k, n)[:: -1 if transpose[1] else 1]
    wide = [rng.integers(-8, 8, (rows, columns + 3)).astype(dtype) for rows, columns in shapes]
    left, right = (Matrix(device.upload(x), *s, x.shape[1], 2) for x, s in zip(wide, shapes))
    a, b = ((x[:, 2:-1].T if flag else x[:, 2:-1]).astype(float) for x, flag in zip(wide, transpose))
    out = device.zeros(m + 1, n + 2, dtype=np.float64 if dtype == np.float64 else np.float32)
    for add in (False, True):
        make().multiply(left, right, Matrix(out, m, n, n + 2, 1), transpose=transpose, add=add, stream=1)
        result = device.download(out).ravel()[1 : 1 + m * (n + 2)].reshape(m, n + 2)[:, :n]
        np.testing.assert_array_equal(result, (1 + add) * (a @ b))


def test_every_stream_has_a_handle_of_its_own(monkeypatch):
    blas = ColumnMajorBlas()
    monkeypatch.setattr(products, "cublas", lambda: blas)
    assert with_addresses().label == "products by cuBLAS 130000 on host (sm_80)"
    assert blas.streams == {1: 100, 2: 101}


def test_no_gpu_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(BackendUnavailable, match=r"bindings of cuBLAS .* pip install 'trnqc\[cuda\]'"):
        products.cublas()
    if not STATUS.usable:
        with pytest.raises(BackendUnavailable, match="backend 'cuda' cannot run here"):
            backends.select("cuda", "fp32")


def test_the_bindings_have_what_is_called():
    """Without a GPU the calls cannot be made, but their names and parameters can be looked up."""
    cublas = pytest.importorskip("nvmath.bindings.cublas", reason="needs nvmath-python")
    signature = (cublas.gemm_ex.__doc__ or "").split(")")[0]
    names = [part.split()[-1] for part in signature.partition("(")[2].split(",")]
    assert names == (
        [
            "handle",
            "transa",
            "transb",
            "m",
            "n",
            "k",
            "alpha",
            "a",
            "atype",
            "lda",
            "b",
            "btype",
            "ldb",
            "beta",
            "c",
            "ctype",
            "ldc",
            "compute_type",
            "algo",
        ]
    )
    for name in ("create", "set_stream", "get_version"):
        assert callable(getattr(cublas, name))
    for enumeration in ("Operation", "ComputeType", "GemmAlgo"):
        for name, value in vars(getattr(ColumnMajorBlas, enumeration)).items():
            assert getattr(cublas, enumeration)[name] == value
