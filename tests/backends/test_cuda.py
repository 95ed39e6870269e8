"""The backend of GPUs meets the contract of all backends: on simulated devices, and on GPUs where there are any."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest

from tests.backends.contract import factor_set, random_factors, random_spins, reference_opposite_spin
from tests.backends.gamma_contract import GammaContract, weighted_products
from tests.backends.simulated_cuda import RecordedCuda, SimulatedCuda
from tests.tolerances import PRODUCT
from trnqc import backends
from trnqc.backends.cuda import blocks, products
from trnqc.backends.cuda.backend import Cuda
from trnqc.errors import BackendUnavailable, MemoryLimit, UnsupportedPrecision

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


def energies(
    backend: Cuda, precision: str = "fp64", max_memory: float | None = None, **options
) -> tuple[np.ndarray, np.ndarray]:
    result = backend.pair_step(precision, **options).triangle(*random_factors(*SIZE), max_memory)
    return result.os, result.ss


@pytest.mark.parametrize("precision", ["fp64", "bf16x3"])
def test_gpus_share_the_pairs_and_give_the_same_energies(precision):
    three, seen = SimulatedCuda(3), []
    shared = energies(three, precision, progress=lambda *step: seen.append(step))
    assert re.search(
        r"3 GPUs: .* 7 panels of 2 orbitals", three.pair_step(precision).triangle(*random_factors(*SIZE)).ran_on
    )
    assert seen[-1] == (91, 91) and [done for done, _ in seen] == sorted(done for done, _ in seen)
    assert all(device.launches > 2 for device in three.simulated)
    one = energies(SimulatedCuda(1), precision)
    np.testing.assert_allclose(shared, one, rtol=0, atol=(1e-14 if precision == "fp64" else 1e-6) * abs(one[0]).max())
    assert not shared[1].diagonal().any()


def test_more_gpus_than_orbitals():
    B, eps_occ, eps_vir = random_factors(1, 7, 13)
    assert SimulatedCuda(3).pair_step("fp64").triangle(B, eps_occ, eps_vir).e_os < 0


def test_panels_come_and_go_where_memory_is_short():
    """Memory for two or three orbitals at a time gives the same energies, and all of it is freed."""
    (one_orbital, pair), whole = (8 * 7 * 24, 8 * 49), energies(SimulatedCuda())
    for orbitals in (2, 3, 5):
        short = SimulatedCuda(memory=int((2 * orbitals * one_orbital + 2 * pair * orbitals) / 0.45 + 4000))
        (device,) = short.simulated
        np.testing.assert_allclose(energies(short), whole, rtol=1e-13)
        assert device.used == 0 and device.most_used < device.memory < 8 * 13 * 7 * 24 + 8 * 91 * 49 + 30_000
        (left, right), eps_occ, eps_vir = spins = random_spins(6, 5, (7, 9), 19)
        result = short.pair_step("fp64").opposite_spin(left, right, eps_occ, eps_vir)
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
    needed = random_factors(*SIZE)[0].nbytes + SimulatedCuda(2).pair_step("fp64").block_bytes(13, 13, 7, 19)
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
    result = SimulatedCuda().pair_step("fp64").triangle(B, eps_occ, eps_vir)
    assert np.isnan(result.os[1, :2]).all() and np.isnan(result.os[2, 1])
    assert np.isfinite([result.os[0, 0], result.os[2, 0], result.os[2, 2]]).all()


class TestRecorded(GammaContract):
    backend = RecordedCuda()
    sizes = ((1, 1, 1), (3, 1, 5), (2, 33, 129))
    gemm_sizes = ((1, 1, 1), (13, 7, 5))
    spins = ((1, 1, (1, 1), 1), (2, 3, (33, 31), 129))


def test_what_a_job_asks_of_the_driver():
    """Every orbital is uploaded once to a GPU that needs it; while blocks run the host waits for their streams only."""
    two = RecordedCuda(2)
    B, eps_occ, eps_vir = random_factors(*SIZE)
    result = two.pair_step("fp64").triangle(B, eps_occ, eps_vir)
    np.testing.assert_allclose(result.os, energies(SimulatedCuda())[0], rtol=0, atol=1e-14)
    calls = two.driver.calls
    sizes = [call.nbytes for call in calls if call.name == "cuMemcpyHtoDAsync"]
    assert set(sizes) == {B[0].nbytes, eps_occ.nbytes, eps_vir.nbytes}
    assert 13 < sizes.count(B[0].nbytes) <= 26
    launches = [call for call in calls if call.name == "launch"]
    assert {call.stream for call in launches if call.detail == "pack"} == {0}
    assert {call.stream for call in launches if call.detail == "same_spin_energies"} == {1, 2}
    # The sums of all pairs are downloaded once from each GPU, and all memory is freed.
    assert two.driver.count("cuMemcpyDtoHAsync") == 2 and two.driver.used == 0


def test_gpus_of_several_generations():
    recorded = energies(RecordedCuda(capability=90))
    np.testing.assert_allclose(recorded, energies(SimulatedCuda()), rtol=0, atol=1e-14)
    with pytest.raises(BackendUnavailable, match=r"recorded [01] has compute capability 12\.0, but NVRTC"):
        energies(RecordedCuda(2, capability=120))


def test_no_gpu_says_what_is_missing(monkeypatch):
    monkeypatch.setitem(sys.modules, "nvmath.bindings", None)
    with pytest.raises(BackendUnavailable, match=r"bindings of cuBLAS .* pip install 'trnqc\[cuda\]'"):
        products.cublas()
    if not STATUS.usable:
        with pytest.raises(BackendUnavailable, match="backend 'cuda' cannot run here"):
            backends.select("cuda", "fp32")
