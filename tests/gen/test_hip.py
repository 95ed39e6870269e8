"""HIP text against the interpreter: run with the threads of a block as threads of the host, and compiled by hipcc."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.gen.programs import gemm, polynomial
from trnqc.gen import Array, Var, emit_hip, run
from trnqc.gen import statements as st
from trnqc.gen.values import cast, lane

HEADER = Path(__file__).with_name("host_threads.h")


def shared_sums() -> st.Function:
    """Each lane adds what its neighbour wrote to shared memory to one element, and the sums of groups to another."""
    x, out = Array("x", "f64", (None,), lanes=True), Array("out", "f64", (2,))
    near, group, count = Array("near", "f64", (64,), "shared"), Var("group", "i64"), Var("count", "i64")
    body = st.block(
        st.DeclareArray(near),
        st.store(near[lane()], x[group]),
        st.Barrier(),
        st.accumulate(out[0], near[(lane() + 1) % count] * cast(lane(), "f64")),
        st.accumulate(out[1], near[0]),
    )
    return st.Function("shared_sums", (count, x, out), body, group=group)


def on_host(folder: Path, function: st.Function, lanes: int, groups: int, arguments: dict) -> None:
    """Run a kernel's HIP text on arrays of NumPy."""
    (folder / "hip").mkdir()
    shutil.copy(HEADER, folder / "hip" / "hip_runtime.h")
    names = [st.name_of(p) for p in function.params]
    kinds = [{"f64": "double ", "i64": "long long "}[p.dtype] + "*" * isinstance(p, Array) for p in function.params]
    head = ", ".join(f"{kind}{name}" for kind, name in zip(kinds, names))
    call = f"run_blocks({groups}, {lanes}, [&] {{ {function.name}({', '.join(names)}); }});"
    text = f'{emit_hip(function, lanes=lanes)}\nextern "C" void started({head}) {{ {call} }}\n'
    (folder / "kernel.cpp").write_text(text)
    library = folder / "kernel.so"
    options = ["-std=c++20", "-O1", "-shared", "-fPIC", "-pthread", f"-I{folder}"]
    subprocess.run(["g++", *options, str(folder / "kernel.cpp"), "-o", str(library)], check=True)
    values = [arguments[name] for name in names]
    pointers = [ctypes.c_void_p(v.ctypes.data) if isinstance(v, np.ndarray) else ctypes.c_longlong(v) for v in values]
    ctypes.CDLL(str(library)).started(*pointers)


def inputs(function: st.Function, lanes: int, groups: int) -> dict:
    rng = np.random.default_rng(0)
    if function.name == "shared_sums":
        return {"count": lanes, "x": rng.normal(size=(groups, lanes)), "out": np.zeros(2)}
    x = rng.normal(size=(groups, 5, lanes))
    return {"n": 5, "x": x, "y": np.zeros_like(x), "z": np.zeros_like(x)}


needs_threads = pytest.mark.skipif(not shutil.which("g++"), reason="needs g++ with C++20")


@needs_threads
@pytest.mark.parametrize("lanes", [1, 4, 32, 64])
@pytest.mark.parametrize("function", [polynomial(), shared_sums()], ids=lambda f: f.name)
def test_threads_do_what_the_interpreter_says(function, lanes, tmp_path):
    """64 lanes are one wavefront of an AMD GPU, whose sums are those of two warps."""
    expected, found = (inputs(function, lanes, 3) for _ in range(2))
    run(function, expected, lanes=lanes, groups=(0, 3))
    on_host(tmp_path, function, lanes, 3, found)
    for name, array in expected.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-13, atol=1e-13)


def test_text_has_nothing_of_cuda():
    text = emit_hip(shared_sums(), lanes=64)
    assert text.startswith("#include <hip/hip_runtime.h>")
    assert "_sync(" not in text and "__CUDACC" not in text and "__shfl_xor(x, n, 32)" in text


@pytest.mark.skipif(not shutil.which("hipcc"), reason="needs AMD's compiler hipcc")
@pytest.mark.parametrize("function", [gemm(), polynomial(), shared_sums()], ids=lambda f: f.name)
def test_hipcc_compiles_the_text(function, tmp_path):
    source = tmp_path / "kernel.hip"
    source.write_text(emit_hip(function, lanes=64))
    options = ["--offload-arch=gfx90a", "--genco", "-O3"]
    subprocess.run(["hipcc", *options, str(source), "-o", str(tmp_path / "kernel.co")], check=True)
