from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from tests.backends.contract import BackendContract, random_factors, reference_pairs
from tests.tolerances import PAIR_ENERGY
from trnqc.backends import cpu
from trnqc.backends.cpu_kernels.blas import numpy_blas, single_threaded
from trnqc.backends.cpu_kernels.formats import FORMATS, encode
from trnqc.backends.cpu_kernels.plan import make_plan
from trnqc.errors import CompilerError, InputError, MemoryLimit
from trnqc.jit import compiler
from trnqc.types import PRECISIONS

BACKEND = cpu.Cpu()
SIZE = (7, 67, 131)


class TestContract(BackendContract):
    backend = BACKEND


@pytest.mark.parametrize("precision", PRECISIONS)
def test_any_number_of_threads_gives_the_same_bits(precision):
    runs = [BACKEND.mp2_pairs(*random_factors(*SIZE), precision=precision, threads=n) for n in (1, 2, 5)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.os, runs[0].os)
        np.testing.assert_array_equal(run.ss, runs[0].ss)


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("fused", [True, False])
def test_rows_on_disk_give_the_same_energies(tmp_path, precision, fused):
    h5py = pytest.importorskip("h5py")
    B, eps_occ, eps_vir = random_factors(*SIZE)
    in_memory = BACKEND.mp2_pairs(B, eps_occ, eps_vir, precision=precision, fused=fused)
    np.save(tmp_path / "B.npy", B)
    mapped = np.load(tmp_path / "B.npy", mmap_mode="r")
    scale = reference_pairs(*SIZE)[2]
    # The factors are rounded alike; only the order of sums in the GEMM may differ with the shape of its operands.
    error = PAIR_ENERGY["fp64" if precision == "fp64" else "fp32"]
    with h5py.File(tmp_path / "B.h5", "w") as file:
        dataset = file.create_dataset("B", data=B)
        form = FORMATS[precision]
        row = 67 * 131 * (8 + form.copies * form.itemsize)
        tight = 2 * row + form.itemsize * 67 * 67
        options = {"threads": 1, "limit": tight, "in_memory": False}
        assert make_plan(B.shape, form, reuses=False, **options).panel < 3
        for source in (mapped, dataset):
            for limit in (tight, None):
                run = BACKEND.mp2_pairs(
                    source, eps_occ, eps_vir, precision=precision, fused=fused, threads=1, max_memory=limit
                )
                assert np.all(abs(run.os - in_memory.os) <= error * scale)
                assert np.all(abs(run.ss - in_memory.ss) <= error * scale)


def test_the_limit_counts_the_copy_in_fp32():
    B, eps_occ, eps_vir = random_factors(*SIZE)
    slab = 8 * 67 * 67
    BACKEND.mp2_pairs(B, eps_occ, eps_vir, precision="fp64", threads=1, max_memory=B.nbytes + slab)
    with pytest.raises(MemoryLimit):
        BACKEND.mp2_pairs(B, eps_occ, eps_vir, precision="fp32", threads=1, max_memory=B.nbytes + slab)


@given(
    shape=st.tuples(st.integers(1, 30), st.integers(1, 300), st.integers(1, 900)),
    precision=st.sampled_from(PRECISIONS),
    threads=st.integers(1, 9),
    share=st.floats(0.01, 4),
    in_memory=st.booleans(),
)
@settings(max_examples=200, deadline=None)
def test_every_plan_keeps_the_limit_and_covers_each_pair_once(shape, precision, threads, share, in_memory):
    nocc = shape[0]
    limit = share * 8 * np.prod(shape) + 1e5
    try:
        plan = make_plan(
            shape, FORMATS[precision], threads=threads, limit=limit, in_memory=in_memory, reuses=precision == "fp64"
        )
    except MemoryLimit:
        return
    assert plan.bytes <= limit
    pairs = [
        (i, j)
        for i0, i1 in plan.panels()
        for task in plan.tasks(i0, i1)
        for i in range(max(task.i0, task.j0), task.i1)
        for j in range(task.j0, min(task.j1, i + 1))
    ]
    assert sorted(pairs) == [(i, j) for i in range(nocc) for j in range(i + 1)]
    assert sum(task.pairs for i0, i1 in plan.panels() for task in plan.tasks(i0, i1)) == len(pairs)


def test_a_plan_does_not_depend_on_threads_while_memory_is_plenty():
    plans = {make_plan((20, 190, 840), FORMATS["fp64"], threads=n, limit=None, in_memory=True, reuses=True).block
             for n in (1, 2, 64)}  # fmt: skip
    assert len(plans) == 1


@given(st.lists(st.floats(-8, 8, allow_subnormal=False), min_size=1, max_size=40))
def test_the_split_holds_sixteen_bits(values):
    x = np.array([values])
    encoded = encode(x, "bf16x3")
    lo, hi, again, low = np.split(encoded, 4, axis=-1)
    np.testing.assert_array_equal(hi, again)
    np.testing.assert_array_equal(lo, low)
    # 8 bits of hi, 8 of the rest; below the normal range of bf16 an absolute bound.
    assert np.all(abs(hi.astype(float) + lo - x) <= 2.0**-17 * abs(x) + 1e-37)


def test_blas_threads_come_back(tmp_path):
    before = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
    with single_threaded():
        assert numpy_blas().threads in (1, None)
        inside = [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"]
        assert set(inside) <= {1}
    assert [lib["num_threads"] for lib in threadpool_info() if lib["user_api"] == "blas"] == before


def test_it_is_numpys_blas_that_is_named():
    blas = numpy_blas()
    built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    assert blas.name.lower() in built.lower()
    assert str(blas) in BACKEND.status().versions["BLAS"]


def test_an_interrupted_run_stops():
    def interrupt(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        BACKEND.mp2_pairs(*random_factors(*SIZE), precision="fp64", progress=interrupt)


def test_without_a_compiler_only_the_fused_pass_is_lost(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    compiler._find.cache_clear()
    arrays = random_factors(3, 32, 127)
    with pytest.raises(CompilerError, match="no-such-compiler"):
        BACKEND.mp2_pairs(*arrays, precision="fp64")
    apart = BACKEND.mp2_pairs(*arrays, precision="fp64", fused=False)
    assert "apart" in apart.ran_on
    status = BACKEND.status()
    assert status.usable and "cannot be compiled" in status.reason and "install" in status.hint


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert cpu.default_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(InputError, match="many"):
        cpu.default_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert cpu.default_threads() >= 1
