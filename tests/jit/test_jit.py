from __future__ import annotations

import dataclasses
import os
import shlex
import stat
import subprocess
import sys
import weakref
from pathlib import Path

import numpy as np
import pytest

from trnqc import jit
from trnqc.errors import CompilerError
from trnqc.jit import cache, compiler

SCALE = """
void scale(double *x, long long n, double by) { for (long long i = 0; i < n; i++) x[i] *= by; }
long long version(void) { return VERSION; }
"""
X, N, BY = (
    jit.Parameter("x", "f64", array=True, written=True, ndim=1),
    jit.Parameter("n", "i64"),
    jit.Parameter("by", "f64"),
)
SIGNATURES = (jit.Signature("scale", (X, N, BY)), jit.Signature("version", returns="i64"))


@pytest.fixture
def directory(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path / "cache"


def build(version: int = 1) -> jit.Library:
    return jit.compile_c(SCALE, SIGNATURES, name="scale", defines=(f"VERSION={version}",))


def test_compiles_binds_and_calls(directory):
    library = build(7)
    x = np.arange(5.0)
    library.scale(x, 5, 3.0)
    np.testing.assert_array_equal(x, 3 * np.arange(5.0))
    assert library.version() == 7
    assert "scale" in repr(library)


def test_small_gemm_with_native_flags(directory):
    source = """
    void gemm(const float *a, const float *b, float *c, long long m, long long n, long long k) {
        for (long long i = 0; i < m; i++)
            for (long long j = 0; j < n; j++) {
                float sum = 0;
                for (long long l = 0; l < k; l++) sum += a[i * k + l] * b[l * n + j];
                c[i * n + j] = sum;
            }
    }"""
    matrices = (jit.Parameter(x, "f32", array=True, ndim=2, written=x == "c") for x in "abc")
    signature = jit.Signature("gemm", (*matrices, *(jit.Parameter(x, "i64") for x in "mnk")))
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((13, 7), dtype=np.float32), rng.standard_normal((7, 17), dtype=np.float32)
    c = np.empty((13, 17), np.float32)
    jit.compile_c(source, [signature], name="gemm").gemm(a, b, c, m=13, n=17, k=7)
    np.testing.assert_allclose(c, a @ b, rtol=0, atol=1e-5)


@pytest.mark.parametrize(
    "argument",
    [np.zeros(3, np.float32), np.zeros((3, 1)), np.zeros(6)[::2], [0.0, 0.0, 0.0], 5],
    ids=["dtype", "rank", "strides", "list", "number"],
)
def test_refuses_a_wrong_array(directory, argument):
    with pytest.raises(TypeError, match="x: expected a writable, C-contiguous array f64 of rank 1, found"):
        build().scale(argument, 3, 1.0)


@pytest.mark.parametrize("n", [2.5, "3", None, np.zeros(2)])
def test_refuses_what_is_no_number(directory, n):
    with pytest.raises(TypeError, match="n: expected a number i64, found"):
        build().scale(np.zeros(3), n, 1.0)


def test_arguments_go_by_name_or_position(directory):
    scale, x = build().scale, np.arange(3.0)
    scale(by=2.0, x=x, n=3)
    scale(x, by=2.0, n=3)
    np.testing.assert_array_equal(x, [0, 4, 8])
    for args, named in (
        ((x,), {"n": 3}),
        ((x, 3, 2.0), {"by": 2.0}),
        ((x, 3), {"n": 3}),
        ((x, 3), {"to": 1.0}),
        ((x, 3, 1.0, 1.0), {}),
    ):
        with pytest.raises(TypeError, match="scale takes the arguments x, n, by; found"):
            scale(*args, **named)
    np.testing.assert_array_equal(x, [0, 4, 8])


def test_bound_arguments_are_checked_once_and_kept(directory):
    scale, x = build().scale, np.arange(3.0)
    by_two = scale.bind(x).bind(by=2.0)
    by_two(n=2)
    by_two(3)
    np.testing.assert_array_equal(x, [0, 4, 4])
    assert repr(by_two) == "scale(n)"
    with pytest.raises(TypeError, match="scale takes the arguments n; found"):
        by_two(x=x, n=2)
    with pytest.raises(TypeError, match="scale takes the arguments x, n, by; found 1 by position, x"):
        scale.bind(x, x=x)
    with pytest.raises(TypeError, match="found 4 by position"):
        scale.bind(x, 1, 1.0, 1.0)
    with pytest.raises(TypeError, match="x: expected"):
        scale.bind(x=[1.0])
    last = weakref.ref(x)
    del x
    assert last() is not None
    del by_two
    assert last() is None


def test_refuses_a_read_only_array_to_write(directory):
    x = np.zeros(3)
    x.flags.writeable = False
    with pytest.raises(TypeError, match=r"x: .* read-only"):
        build().scale(x, 3, 1.0)


def test_refuses_a_wrong_number_of_arguments(directory):
    with pytest.raises(TypeError):
        build().scale(np.zeros(3))


def test_unbound_function_is_no_attribute(directory):
    with pytest.raises(AttributeError, match="absent"):
        build().absent


def test_a_missing_function_is_an_error(directory):
    with pytest.raises(CompilerError, match="nowhere"):
        jit.compile_c("int here;", [jit.Signature("nowhere")], name="empty")


def test_rejected_text_shows_command_and_message(directory):
    with pytest.raises(CompilerError) as caught:
        jit.compile_c("int broken(", [], name="broken")
    assert compiler.find_compiler().command[0] in str(caught.value)
    assert "error" in str(caught.value)
    assert not list(directory.glob("broken*"))


def test_each_text_is_compiled_once(directory, monkeypatch):
    first = build()

    def unwanted(*_: object) -> None:
        raise AssertionError("compiled again")

    monkeypatch.setattr(jit.Compiler, "build", unwanted)
    monkeypatch.setattr("trnqc.jit.compile._loaded", {})
    assert build().path == first.path
    with pytest.raises(AssertionError, match="compiled again"):
        build(2)


def test_everything_that_matters_is_in_the_key():
    assert len({cache.key_of("ab", "c"), cache.key_of("a", "bc"), cache.key_of("abc")}) == 3
    cc = compiler.find_compiler()
    for field in ("command", "version", "flags", "target"):
        value = getattr(cc, field)
        other = dataclasses.replace(cc, **{field: value[:-1]})
        assert cache.key_of(other.identity) != cache.key_of(cc.identity)


@pytest.mark.parametrize("harm", ["truncated", "altered", "emptied", "no seal", "wrong seal", "seal is no text"])
def test_a_harmed_entry_is_built_again(directory, harm, monkeypatch):
    # Built but not loaded before it is harmed: a process keeps what it has loaded from a path.
    with monkeypatch.context() as patch:
        patch.setattr("trnqc.jit.compile.Library", lambda path, signatures: path)
        patch.setattr("trnqc.jit.compile._loaded", {})
        library = build(5)
    seal, data = library.with_suffix(".sha256"), library.read_bytes()
    if harm.startswith(("trunc", "alter", "empt")):
        library.write_bytes({"truncated": data[:700], "altered": data[:-9] + b"?" + data[-8:], "emptied": b""}[harm])
    elif harm == "no seal":
        seal.unlink()
    else:
        seal.write_bytes(b"0" * 64 if harm == "wrong seal" else b"\xff\xfe")
    again = build(5)
    assert (again.version(), again.path) == (5, library)
    assert seal.read_text() == cache.digest_of(library)


def test_leaves_nothing_half_written(directory):
    path = build().path
    left = {p.name for p in directory.iterdir() if not p.name.startswith("compiler-")}
    assert left == {path.name, path.with_suffix(".sha256").name}
    assert stat.S_IMODE(directory.stat().st_mode) & 0o077 == 0


def test_a_compiler_is_probed_once_a_machine(directory, monkeypatch):
    first = compiler.find_compiler()
    compiler._find.cache_clear()
    assert compiler.find_compiler() == first  # written into this directory

    def unwanted(*_: object) -> None:
        raise CompilerError("probed again")

    monkeypatch.setattr(compiler, "_fields", unwanted)
    compiler._find.cache_clear()
    assert compiler.find_compiler() == first
    monkeypatch.setattr("trnqc.jit.probed.cpu_features", lambda: "another CPU")
    compiler._find.cache_clear()
    with pytest.raises(CompilerError, match="probed again"):
        compiler.find_compiler()
    compiler._find.cache_clear()


def test_one_process_builds_an_entry_and_others_wait(directory, tmp_path):
    """Each build writes a line; the second process finds what the first has built."""
    program = f"""
import sys, time; sys.path.insert(0, {str(Path(__file__).resolve().parents[2])!r})
from pathlib import Path
from trnqc.jit.cache import library_cache
def build(out):
    with open({str(tmp_path / "builds")!r}, "a") as log: print("built", file=log)
    time.sleep(1)
    out.write_text("whole")
print(library_cache().get("entry", build).read_text())
"""
    started = [subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True) for _ in range(3)]
    assert [one.communicate()[0] for one in started] == ["whole\n"] * 3
    assert (tmp_path / "builds").read_text() == "built\n"
    assert not list(directory.glob(".*"))


def test_an_unwritable_cache_is_said_and_left_alone(tmp_path, monkeypatch):
    occupied = tmp_path / "a-file"
    occupied.write_text("mine")
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(occupied / "cache"))
    with pytest.warns(RuntimeWarning, match="TRNQC_CACHE_DIR"):
        library = build(11)
    assert library.version() == 11
    assert not library.path.is_relative_to(tmp_path)
    assert occupied.read_text() == "mine"


def test_directories_by_environment(monkeypatch, tmp_path):
    monkeypatch.delenv("TRNQC_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.cache_directory() == tmp_path / "trnqc"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache.cache_directory() == Path.home() / ".cache" / "trnqc"


def test_no_compiler_says_what_to_install(monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(CompilerError, match="install"):
        compiler.find_compiler()


@pytest.mark.parametrize("wrong", ["no-such-compiler", "false", "echo"])
def test_a_wrong_cc_is_not_passed_over(monkeypatch, wrong):
    monkeypatch.setenv("CC", wrong)
    with pytest.raises(CompilerError, match=wrong):
        compiler.find_compiler()


def test_flags_that_a_compiler_refuses_are_left_out(monkeypatch, tmp_path):
    real = compiler.find_compiler()
    picky = tmp_path / "picky-cc"
    picky.write_text(
        "#!/bin/sh\n"
        'for word in "$@"; do case "$word" in -march=*|-mprefer*) echo "unknown: $word" >&2; exit 1;; esac; done\n'
        f'exec {shlex.join(real.command)} "$@"\n'
    )
    picky.chmod(0o755)
    monkeypatch.setenv("CC", str(picky))
    cc = compiler.find_compiler()
    assert {"-std=gnu11", "-fno-math-errno"} < set(cc.flags)
    assert not any(flag.startswith(("-march", "-mprefer")) for flag in cc.flags)
    assert cc.identity != real.identity


def test_the_label_is_short():
    name, version = compiler.find_compiler().label.split()
    assert name in ("gcc", "clang")
    assert version.split(".")[0].isdigit()


def test_the_target_s_vectors():
    cc = jit.find_compiler()
    assert cc.vector_bytes in (0, 16, 32, 64)
    for target, size in (("#define __AVX__ 1\n#define __SSE2__ 1", 32), ("#define __AVX512F__ 1", 64), ("", 0)):
        assert dataclasses.replace(cc, target=target).vector_bytes == size
