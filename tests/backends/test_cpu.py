from __future__ import annotations

import functools
import re
import subprocess
import tracemalloc
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from threadpoolctl import threadpool_info

from tests.backends.contract import BackendContract, random_factors
from tests.tolerances import PRODUCT
from trnqc import backends
from trnqc.backends.cpu import pairs
from trnqc.backends.cpu.backend import Cpu
from trnqc.backends.cpu.formats import FORMATS, encode
from trnqc.backends.cpu.pair_blocks import plan_triangle
from trnqc.backends.cpu.pair_products import make_products, source_of
from trnqc.errors import CompilerError, InputError, MemoryLimit
from trnqc.host.blas import numpy_blas, single_threaded
from trnqc.jit import find_compiler

BACKEND = Cpu()
SIZE = (7, 67, 131)


class TestContract(BackendContract):
    backend = BACKEND


@pytest.mark.parametrize("precision", FORMATS)
def test_any_number_of_threads_gives_the_same_bits(precision):
    runs = [BACKEND.pair_step(precision, threads=n).triangle(*random_factors(*SIZE)) for n in (1, 2, 5)]
    for run in runs[1:]:
        np.testing.assert_array_equal(run.os, runs[0].os)
        np.testing.assert_array_equal(run.ss, runs[0].ss)


@pytest.mark.parametrize("precision", FORMATS)
@pytest.mark.parametrize("fused", [True, False])
def test_rows_on_disk_give_the_same_bits(tmp_path, precision, fused):
    h5py = pytest.importorskip("h5py")
    B, eps_occ, eps_vir = random_factors(*SIZE)
    in_memory = BACKEND.pair_step(precision, fused=fused).triangle(B, eps_occ, eps_vir)
    np.save(tmp_path / "B.npy", B)
    mapped = np.load(tmp_path / "B.npy", mmap_mode="r")
    with h5py.File(tmp_path / "B.h5", "w") as file:
        dataset = file.create_dataset("B", data=B)
        products = make_products(dataset, precision, compiled=fused)
        tight = 2.5 * products.orbital_bytes + products.slab_bytes + products.scratch_bytes
        plan = plan_triangle(SIZE[0], products, threads=1, limit=tight, fixed=products.scratch_bytes)
        assert not plan.whole
        for source in (mapped, dataset):
            for limit in (tight, None):
                run = BACKEND.pair_step(precision, fused=fused, threads=1).triangle(
                    source, eps_occ, eps_vir, max_memory=limit
                )
                np.testing.assert_array_equal(run.os, in_memory.os)
                np.testing.assert_array_equal(run.ss, in_memory.ss)


def test_the_limit_counts_b_and_its_copy():
    B, eps_occ, eps_vir = random_factors(*SIZE)
    limit = B.nbytes + 5 * 8 * 67 * 67
    run = BACKEND.pair_step("fp64", fused=False, threads=1).triangle(B, eps_occ, eps_vir, max_memory=limit)
    assert run.os.sum() < 0
    for precision, fused in (("fp32", False), ("fp64", True)):
        with pytest.raises(MemoryLimit):
            BACKEND.pair_step(precision, fused=fused, threads=1).triangle(B, eps_occ, eps_vir, max_memory=limit)


@pytest.mark.parametrize(("precision", "fused"), [("fp64", True), ("fp64", False), ("fp32", True), ("bf16x3", True)])
def test_what_is_allocated_stays_within_the_plan(precision, fused):
    B, eps_occ, eps_vir = random_factors(9, 120, 300)
    products = make_products(B, precision, compiled=fused)
    fixed = B.nbytes + 2 * products.scratch_bytes
    tight = fixed + 4 * products.orbital_bytes + 2 * products.slab_bytes
    for limit in (None, tight):
        plan = plan_triangle(9, products, threads=2, limit=limit, fixed=fixed)
        tracemalloc.start()
        BACKEND.pair_step(precision, fused=fused, threads=2).triangle(B, eps_occ, eps_vir, max_memory=limit)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert B.nbytes + peak <= plan.bytes + 2e5  # of Python objects


@given(
    nocc=st.integers(1, 30),
    orbital=st.integers(0, 10**6),
    slab=st.integers(1, 10**7),
    threads=st.integers(1, 9),
    share=st.floats(0.01, 4),
    fixed=st.integers(0, 10**7),
)
@settings(max_examples=200, deadline=None)
def test_every_plan_keeps_the_limit_and_covers_each_pair_once(nocc, orbital, slab, threads, share, fixed):
    limit = share * (nocc * orbital + fixed + threads * slab)
    sizes = SimpleNamespace(orbital_bytes=orbital, slab_bytes=slab)
    try:
        plan = plan_triangle(nocc, sizes, threads=threads, limit=limit, fixed=fixed)
    except MemoryLimit:
        assert share < 1
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
    sizes = SimpleNamespace(orbital_bytes=10**6, slab_bytes=3 * 10**5)
    assert len({plan_triangle(20, sizes, threads=n, limit=None, fixed=0).block for n in (1, 2, 64)}) == 1


@pytest.mark.parametrize("dtype", [np.float64, np.float32])
@given(rows=st.integers(1, 150), orbitals=st.integers(1, 4), naux=st.integers(1, 1100), data=st.data())
@settings(max_examples=25, deadline=None)
def test_compiled_products_are_products(dtype, rows, orbitals, naux, data):
    B = np.random.default_rng([rows, orbitals, naux]).standard_normal((orbitals, rows, naux))
    precision = "fp64" if dtype is np.float64 else "fp32"
    products = make_products(B, precision, compiled=True)
    i = data.draw(st.integers(0, orbitals - 1))
    j0 = data.draw(st.integers(0, i))
    j1 = data.draw(st.integers(j0 + 1, i + 1))
    loaded = products.load(0, orbitals)
    slab = products.multiply(loaded, loaded, i, j0, j1, products.slab(j1 - j0))
    result = slab.data[:, slab.column : slab.column + (j1 - j0) * rows].reshape(rows, j1 - j0, rows)
    exact = np.einsum("ap,jbp->ajb", B[i], B[j0:j1])
    bound = PRODUCT[precision] * np.einsum("ap,jbp->ajb", abs(B[i]), abs(B[j0:j1]))
    needed = np.ones_like(exact, dtype=bool)
    if slab.symmetric:
        needed[:, -1, :] = np.tril(needed[:, -1, :])
    assert np.all((abs(result - exact) <= bound) | ~needed)


@pytest.mark.parametrize("real", ["double", "float"])
@pytest.mark.parametrize("target", ["haswell", "znver3", "skylake-avx512"])
def test_sums_and_columns_of_a_product_stay_in_registers(tmp_path, target, real):
    """Whatever CPU gcc tunes for: a column read anew for each row costs a Zen 3 core a third of its speed."""
    compiler = find_compiler()
    if not compiler.label.startswith("gcc") or "#define __x86_64__ 1" not in compiler.target:
        pytest.skip("reads what gcc makes for x86-64")
    text, assembly = tmp_path / "pair_product.c", tmp_path / "pair_product.s"
    text.write_text(source_of("pair_product.c"))
    # Quick tests compile without most of the optimiser, which this test is about.
    flags = [flag for flag in compiler.flags if not flag.startswith(("-march", "-O"))]
    command = [*compiler.command, *flags, "-O3", f"-march={target}", "-fPIC", f"-DREAL={real}", "-S"]
    subprocess.run([*command, "-o", str(assembly), str(text)], check=True)
    lines = assembly.read_text().splitlines()
    multiplied = [line for line in lines if "vfmadd" in line]
    assert len(multiplied) >= (8 * 2 if "512" in target else 4 * 3)
    assert not [line for line in multiplied if "(" in line]
    assert not [line for line in lines if re.search(r"vmov[au]p[sd]\s+%[yz]mm\d+, .*\(%r[sb]p", line)]


@pytest.mark.parametrize("precision", FORMATS)
@pytest.mark.parametrize("fused", [True, False])
@pytest.mark.parametrize("cut", [1, 3, 6])
def test_blocks_of_pairs_change_no_bit(precision, fused, cut):
    B, o, v = random_factors(*SIZE)
    options = {"precision": precision, "fused": fused}
    whole = BACKEND.pair_step(**options).triangle(B, o, v)
    top, bottom = (BACKEND.pair_step(**options).triangle(B[s].copy(), o[s], v) for s in (slice(cut), slice(cut, None)))
    block = BACKEND.pair_step(**options).block(B[cut:].copy(), B[:cut].copy(), o[cut:], o[:cut], v)
    for name in ("os", "ss"):
        parts = [[getattr(top, name), np.zeros((cut, len(o) - cut))], [getattr(block, name), getattr(bottom, name)]]
        np.testing.assert_array_equal(np.block(parts), getattr(whole, name))


@pytest.mark.parametrize(("precision", "fused"), [("fp64", True), ("fp64", False), ("fp32", True), ("bf16x3", True)])
def test_a_block_allocates_what_it_says(precision, fused):
    B, o, v = random_factors(9, 120, 300)
    left, right = B[5:], B[:5]
    run = functools.partial(BACKEND.pair_step(precision, fused, threads=2).block, left, right, o[5:], o[:5], v)
    run()  # what is compiled and imported once
    tracemalloc.start()
    run()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    said = BACKEND.pair_step(precision, fused=fused, threads=2).block_bytes(4, 5, 120, 300)
    assert 0.3 * said < peak < said + 2e5


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
        BACKEND.pair_step("fp64", progress=interrupt).triangle(*random_factors(*SIZE))


def test_without_a_compiler_numpy_takes_the_place_of_kernels_that_a_wheel_lacks(monkeypatch):
    def lacking(dtype: str):
        raise CompilerError(f"pair_product for {dtype} is not among those of the installed wheel")

    monkeypatch.setattr(pairs, "product_library", lacking)
    pairs._warn_of_numpy.cache_clear()
    arrays = random_factors(2, 5, 7)
    with pytest.warns(RuntimeWarning, match="NumPy instead of compiled code: .*not among those"):
        result = BACKEND.pair_step("fp64").triangle(*arrays)
    assert "apart in NumPy (there is no C compiler)" in result.ran_on
    np.testing.assert_array_equal(result.os, BACKEND.pair_step("fp64", fused=False).triangle(*arrays).os)


def test_without_a_compiler_numpy_takes_the_place_of_compiled_code(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    arrays = random_factors(3, 32, 127)
    with pytest.warns(RuntimeWarning, match="NumPy instead of compiled code: .*no-such-compiler|install one"):
        fused = BACKEND.pair_step("fp64").triangle(*arrays)
    assert "apart in NumPy (there is no C compiler)" in fused.ran_on
    apart = BACKEND.pair_step("fp64", fused=False).triangle(*arrays)
    assert "apart" in apart.ran_on and "no C compiler" not in apart.ran_on
    np.testing.assert_array_equal(fused.os, apart.os)
    status = BACKEND.status()
    assert status.usable and "cannot be compiled" in status.reason and "install" in status.hint


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda a, b: (a + 1j, b), "a_t holds complex128"),
        (lambda a, b: (a, b > 0), "b holds bool"),
        (lambda a, b: (a, b[:2]), r"a_t\[K, M\] and b\[K, N\]; found shapes \(4, 3\) and \(2, 5\)"),
        (lambda a, b: (a[None], b[None]), r"found shapes \(1, 4, 3\)"),
    ],
)
@pytest.mark.parametrize("name", ["cpu", "simulator"])
def test_products_take_real_matrices(name, change, message):
    a, b = np.ones((4, 3)), np.ones((4, 5))
    with pytest.raises(InputError, match=message):
        backends.get(name).gemm(*change(a, b), precision="fp32")
    if a.shape == change(a, b)[0].shape:
        with pytest.raises(InputError):
            backends.get(name).batched_contraction(*(x[None] for x in change(a, b)), precision="fp32")
