from __future__ import annotations

import json
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path

import pytest

from tests.gen.programs import polynomial
from trnqc import jit
from trnqc.errors import CompilerError
from trnqc.jit import compiler, shipped
from trnqc.jit.compile import Compilation, c_library

SOURCE = "long long answer(void) { return 42; }"
SIGNATURE = jit.Signature("answer", returns="i64")
POLYNOMIAL = jit.Recipe.of(polynomial())


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """An installed wheel with two libraries for this CPU, a machine without a compiler, and an empty cache."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "release"))
    jit.compile_c(SOURCE, [SIGNATURE], name="answer")
    jit.library(POLYNOMIAL)
    made, level = jit.find_compiler(), tmp_path / "prebuilt" / "x86-64-v3"
    (tmp_path / "prebuilt").mkdir()
    (tmp_path / "release").rename(level)
    digests = {path.name: sha256(path.read_bytes()).hexdigest() for path in level.glob("*.so")}
    (level / shipped.INDEX).write_text(json.dumps({"compiler": asdict(made), "cpp": "", "digests": digests}))
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    for name in ("CC", compiler.ARCHITECTURE_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(compiler, "_candidates", lambda cc: [("gcc",)] if cc else [])
    found = shipped.shipment.__wrapped__(tmp_path / "prebuilt")
    monkeypatch.setattr(compiler, "shipment", lambda: found)
    compiler._find.cache_clear()
    yield level
    compiler._find.cache_clear()


def test_without_a_compiler_what_the_wheel_has_is_loaded(wheel):
    assert jit.compile_c(SOURCE, [SIGNATURE], name="answer").answer() == 42
    compilation = Compilation(POLYNOMIAL, c_library())
    assert compilation.is_stored and compilation.file.parent == wheel
    assert jit.library(POLYNOMIAL).polynomial.signature == POLYNOMIAL.signatures[0]
    assert "prebuilt" in jit.find_compiler().label
    assert not list((wheel.parents[1] / "cache").glob("*.so"))


def test_without_a_compiler_what_the_wheel_lacks_is_an_error_that_says_what_to_install(wheel):
    with pytest.raises(CompilerError, match=r"not among those of the installed wheel.*apt-get install gcc"):
        jit.compile_c(SOURCE + "\n", [SIGNATURE], name="answer")


def test_a_changed_library_is_not_loaded(wheel):
    (library,) = wheel.glob("answer*.so")
    library.write_bytes(library.read_bytes() + b"changed")
    with pytest.warns(RuntimeWarning, match="is not used: its digest"), pytest.raises(CompilerError, match="not among"):
        jit.compile_c(SOURCE, [SIGNATURE], name="answer")


def test_a_named_architecture_leaves_the_wheel_aside(wheel, monkeypatch):
    monkeypatch.setenv(compiler.ARCHITECTURE_VARIABLE, "x86-64-v3")
    with pytest.raises(CompilerError, match="there is no usable C compiler"):
        jit.compile_c(SOURCE, [SIGNATURE], name="answer")


def test_the_best_level_of_a_cpu_comes_first():
    v3 = {"avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "xsave"}
    v4 = v3 | {"avx512f", "avx512bw", "avx512cd", "avx512dq", "avx512vl"}
    assert shipped.levels_of(v4) == ("x86-64-v4", "x86-64-v3")
    assert shipped.levels_of(v3) == ("x86-64-v3",)
    assert shipped.levels_of(v3 - {"fma"}) == ()


def test_code_for_a_named_architecture(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv(compiler.ARCHITECTURE_VARIABLE, "no-such-cpu")
    with pytest.raises(CompilerError, match="does not know -march=no-such-cpu"):
        jit.find_compiler()
