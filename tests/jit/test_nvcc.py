"""CUDA compiled by nvcc without a GPU: reports, cache, failures, parallel builds."""

from __future__ import annotations

import math
import shutil

import pytest

from tests.gen.programs import gemm, polynomial
from trnqc import jit
from trnqc.errors import CompilerError
from trnqc.gen import Array, Var, const, emit_cuda
from trnqc.gen import statements as st
from trnqc.gen import values as v
from trnqc.jit import nvcc

needs_nvcc = pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")

# What ptxas -v prints, shortened.
PTXAS = """ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'one' for 'sm_80'
ptxas info    : Function properties for one
    176 bytes stack frame, 316 bytes spill stores, 384 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 176 bytes cumulative stack size, 2048 bytes smem, 380 bytes cmem[0]
ptxas info    : Compiling entry function 'two' for 'sm_80'
ptxas info    : Function properties for two
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 32 registers, used 0 barriers, 380 bytes cmem[0]
"""


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))


def test_ptxas_report_is_read():
    one, two = nvcc.read_ptxas(PTXAS)
    assert one == jit.PtxasReport("one", 255, 176, 316, 384, 2048)
    assert two == jit.PtxasReport("two", 32, 0, 0, 0, 0)
    assert not one.spills_excessively
    assert jit.PtxasReport("lost", 32, 90_000, 80_000, 90_000, 0).spills_excessively
    with pytest.raises(CompilerError, match="cannot parse the report"):
        nvcc.read_ptxas(PTXAS.replace("spill stores", "spilled"))


def test_no_nvcc_says_what_to_install(monkeypatch, tmp_path):
    monkeypatch.delenv("NVCC", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    with pytest.raises(CompilerError, match="CUDA toolkit"):
        nvcc.find_nvcc()


@needs_nvcc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize("function", [gemm(), gemm("f32"), polynomial()], ids=["gemm", "gemm f32", "polynomial"])
def test_generated_kernels_compile(function, arch):
    build = jit.compile_cuda(
        emit_cuda(function), name="test", arch=arch, flags=(*nvcc.DEFAULT_FLAGS, "-Werror=all-warnings")
    )
    kernel = build.kernel(function.name)
    assert 0 < kernel.registers < 128
    assert kernel.spill_stores == 0
    assert build.cubin[:4] == b"\x7fELF"
    with pytest.raises(CompilerError, match=function.name):
        build.kernel("other")


@needs_nvcc
def test_a_build_is_made_once(monkeypatch):
    source = emit_cuda(polynomial())
    first = jit.compile_cuda(source, name="test")
    monkeypatch.setattr(nvcc, "_nvcc", lambda *args: pytest.fail("compiled again"))
    assert jit.compile_cuda(source, name="test") == first


@needs_nvcc
def test_a_text_that_nvcc_rejects_is_shown():
    with pytest.raises(CompilerError, match="undeclared_name"):
        jit.compile_cuda('extern "C" __global__ void f(double *x) { *x = undeclared_name; }', name="test")


def test_builds_run_together_and_failures_are_results():
    seen = []

    def job(number: int):
        source = f"long long f(void) {{ return {number}; }}" if number else "not C"
        return jit.compile_c(source, [jit.Signature("f", returns="i64")], name="part")

    jobs = {str(number): (lambda number=number: job(number)) for number in (3, 0, 5)}
    results = jit.build_all(jobs, workers=2, progress=lambda done, total, name: seen.append((done, total, name)))
    assert list(results) == ["3", "0", "5"]
    assert results["3"].f() == 3
    assert results["5"].f() == 5
    assert isinstance(results["0"], CompilerError)
    assert [(done, total) for done, total, _ in seen] == [(1, 3), (2, 3), (3, 3)]


def everything() -> st.Function:
    """One kernel with every statement: shared and local arrays, a table, a call, sums over lanes, integers."""
    x, out = Array("x", "f64", (None, 4), lanes=True), Array("out", "f64", (4,))
    count, at = Array("count", "i64", (4,)), Array("at", "i32", (None, 4), lanes=True)
    work, near = Array("work", "f64", (4,), "local"), Array("near", "f64", (4,), "shared", lanes=True)
    common = Array("common", "f64", (4,), "shared")
    table = Array("table", "f64", (4,), "constant", data=(0.5, -math.inf, math.inf, 1e-300))
    group, factor, total, i = Var("group", "i64"), Var("factor"), Var("total"), Var("i", "i64")
    scale = st.Function("scale", (factor, work), st.block(st.loop(i, 4, st.store(work[i], work[i] * factor))))
    body = st.block(
        [st.DeclareArray(a) for a in (table, work, near, common)],
        st.loop(i, 4, st.store(work[i], x[group, i]), st.store(common[i], table[i]), st.store(near[i], x[group, i])),
        st.Call(scale, (x[group, 0], work)),
        st.Barrier(),
        st.Declare(total, const(0.0)),
        st.loop(i, 4, st.Assign(total, total + v.minimum(work[i], common[i]) * near[i]), st.Fence((total,))),
        st.While(v.lt(count[0], 0), st.block(st.accumulate(count[0], 1))),
        st.accumulate(out[0], total),
        st.accumulate(out[at[group, 1]], total),
        st.accumulate(count[1], v.cast(at[group, 2], "i64")),
        st.If(v.lt(common[0], 1.0), st.block(st.accumulate(out[1], common[0])), st.block(st.store(out[2], 1.0))),
    )
    return st.Function("everything", (x, at, out, count), body, group=group)


@needs_nvcc
@pytest.mark.parametrize("accumulate", ["plain", "fence", "atomic"])
def test_every_statement_compiles(accumulate):
    text = emit_cuda(everything(), lanes=64, accumulate=accumulate, min_blocks=2)
    # What differs by lane is added up in each warp first, unless its place differs as well.
    assert "{ const double sum_ = warp_sum_f64(total); if (lane % 32 == 0) atomicAdd(&out[0], sum_); }" in text
    assert "{ const double sum_ = common[0]; if (lane == 0) atomicAdd(&out[1], sum_); }" in text
    assert "warp_sum" not in emit_cuda(everything(), lanes=16)
    build = jit.compile_cuda(text, name="test", flags=(*nvcc.DEFAULT_FLAGS, "-Werror=all-warnings"))
    assert build.kernel("everything").shared == 4 * 8 * 64 + 4 * 8
