"""Programs as compiled functions: found again, built anew when their makers change, and named when they fail."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path

import numpy as np
import pytest

from trnqc.eri.compiled import programs
from trnqc.errors import CompilerError, ProgramError
from trnqc.gen import Array, Var, emit_c
from trnqc.gen import statements as st
from trnqc.jit import Compiler, Recipe, Signature, find_compiler, sources
from trnqc.jit import compile as compiling

X, GROUP = Array("x", "f64", (None,)), Var("group", "i64")


def program(make, name: str = "add_one", maker: str = "trnqc.eri.classes") -> Recipe:
    return Recipe(name, (Signature.declared(name, (X,), ("x",)),), make, maker)


def add_one() -> tuple[st.Function, ...]:
    return (st.Function("add_one", (X,), st.block(st.accumulate(X[GROUP], 1.0)), group=GROUP),)


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(compiling, "_loaded", {})
    return tmp_path


def test_built_once_and_found_again(directory):
    x = np.zeros(3)
    programs.build([program(add_one)])["add_one"].add_one(x, 1, 3)
    np.testing.assert_array_equal(x, [0, 1, 1])

    def unwanted():
        raise AssertionError("made again")

    compiling._loaded.clear()
    programs.build([program(unwanted)])["add_one"].add_one(x, 0, 1)
    np.testing.assert_array_equal(x, [1, 1, 1])
    assert len(list(directory.glob("add_one-*.so"))) == 1


def test_a_changed_source_is_a_new_program(directory, monkeypatch):
    room = directory / "makers"
    room.mkdir()
    (room / "maker.py").write_text("from trnqc.gen import Array\nNUMBER = 1\n")
    monkeypatch.syspath_prepend(str(room))
    sys.modules.pop("maker", None)
    digests = set()
    for number in (1, 2):
        (room / "maker.py").write_text(f"from trnqc.gen import Array\nNUMBER = {number}\n")
        sources.sources.cache_clear()
        digests.add(sources.sources("maker"))
    assert len(digests) == 2
    assert digests.isdisjoint({sources.sources("trnqc.gen.values"), sources.sources("trnqc.eri.classes")})


def test_sources_reach_all_that_is_imported():
    """A change of the emitter or of a recurrence must not find an old kernel."""
    sources.sources.cache_clear()
    seen = set()
    waiting = ["trnqc.eri.jk.batch"]
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            spec = importlib.util.find_spec(name)
            waiting += sources.imported(Path(spec.origin).read_text())
    assert {
        "trnqc.eri.kernels.quartet",
        "trnqc.eri.kernels.horizontal",
        "trnqc.eri.kernels.boys",
        "trnqc.gen.emit.vectors",
    } <= seen


def test_a_failure_names_its_program():
    def broken():
        raise CompilerError("internal error, segmentation fault")

    with pytest.raises(CompilerError, match=r"add_one cannot be built: .*segmentation fault"):
        programs.build([program(broken)])


ADD = st.Function("add", (X, GROUP), st.block(st.accumulate(X[GROUP], 2.0)))


def caller(name: str) -> Recipe:
    """A program that calls a part, which another program calls too."""

    def make() -> tuple[st.Function, ...]:
        return (st.Function(name, (X,), st.block(st.Call(ADD, (X, GROUP)), st.accumulate(X[GROUP], 1.0)), group=GROUP),)

    part = Recipe("add", (), lambda: (ADD,), "trnqc.eri.classes")
    return Recipe(name, (Signature.declared(name, (X,), ("x",)),), make, "trnqc.eri.classes", parts=(part,))


def test_what_programs_share_is_compiled_once(directory, monkeypatch):
    texts = []
    build = Compiler._compile

    def counted(self, text: str, *rest) -> None:
        texts.append(text)
        build(self, text, *rest)

    monkeypatch.setattr(Compiler, "_compile", counted)
    built = programs.build([caller("one"), caller("two")])
    for name in ("one", "two"):
        x = np.zeros(3)
        getattr(built[name], name)(x, 1, 3)
        np.testing.assert_array_equal(x, [0, 3, 3])
    assert sum("+= 2.0" in text for text in texts) == 1
    assert len(texts) == 3
    assert len(list(directory.glob("add-*.o"))) == 1
    for path in directory.glob("add-*"):  # a library holds all that it needs
        path.unlink()
    compiling._loaded.clear()
    x = np.zeros(2)
    programs.build([caller("one")])["one"].one(x, 0, 2)
    np.testing.assert_array_equal(x, [3, 3])
    assert len(texts) == 3


def test_a_part_has_no_lanes_where_it_is_declared():
    y = Array("y", "f64", (None,), lanes=True)
    inner = st.Function("inner", (Var("v"), y), st.block(st.store(y[0], Var("v"))))
    outer = st.Function("outer", (y,), st.block(st.Call(inner, (y[0], y))))
    with pytest.raises(
        ProgramError, match="inner must be called with values that are the same on every lane; v differ"
    ):
        emit_c(outer, lanes=4, external=["inner"])


@pytest.mark.parametrize(
    "macros, lanes", [("__AVX512F__ __AVX__ __SSE2__", 8), ("__AVX__", 4), ("__ARM_NEON", 2), ("", 1)]
)
def test_lanes_follow_the_target(macros, lanes):
    target = "\n".join(f"#define {macro} 1" for macro in macros.split())
    assert dataclasses.replace(find_compiler(), target=target).lanes() == lanes
    assert programs.words().split(", ")[-1].startswith(f"{programs.lanes()} lanes")
