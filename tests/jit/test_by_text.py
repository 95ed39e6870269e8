"""What has to be generated again is compiled only if its text is new."""

from __future__ import annotations

import errno
import importlib
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scripts.device.recording_driver import RecordingDriver
from tests.gen.programs import polynomial
from trnqc.cli.machine import kernel_cache
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.jit import Library, Recipe, Signature, cubin_builder, emulator, sources
from trnqc.jit.cache import BY_TEXT, Cache
from trnqc.jit.compile import Compilation, CompileTarget, c_library, c_object
from trnqc.jit.compiler import Compiler
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.cubins import Needs

F = polynomial()
X, GROUP = Array("x", "f64", (None,), lanes=True), Var("group", "i64")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch) -> Path:
    """An empty cache of this test's own, and a folder of modules that generate programs."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "modules").mkdir()
    monkeypatch.syspath_prepend(tmp_path / "modules")
    yield tmp_path / "cache"
    sources.sources.cache_clear()


@pytest.fixture
def texts(monkeypatch) -> list[str]:
    """The texts that the C compiler is given."""
    given, compile_text = [], Compiler._compile

    def counted(self, text: str, *rest) -> None:
        given.append(text)
        compile_text(self, text, *rest)

    monkeypatch.setattr(Compiler, "_compile", counted)
    return given


def generator(directory: Path, source: str) -> None:
    """Write the source of the module that generates the programs of this test."""
    (directory.parent / "modules" / "made_here.py").write_text(source)
    importlib.invalidate_caches()
    sources.sources.cache_clear()


def recipe(*coefficients: float, **changes) -> Recipe:
    functions = (polynomial(coefficients) if coefficients else F,)
    return replace(Recipe(F.name, (Signature.of(F),), lambda: functions, "made_here"), **changes)


def compiled_for(lanes: int = 1):
    return c_library(lanes, ("-O1",))


def stored(recipe: Recipe, target: CompileTarget) -> Path:
    return Compilation(recipe, target).file


def links(path: Path) -> int:
    return path.stat().st_nlink


def test_a_comment_compiles_nothing(directory, texts):
    generator(directory, "")
    first = stored(recipe(), compiled_for())
    generator(directory, "# Another version.")
    assert not Compilation(recipe(), compiled_for()).is_stored
    second = stored(recipe(), compiled_for())
    assert Compilation(recipe(), compiled_for()).is_stored
    assert first != second and first.samefile(second) and links(first) == 3
    assert len(texts) == 1
    assert {p.suffix for p in directory.glob("polynomial*")} == {".so", ".sha256", BY_TEXT}
    assert len(list(directory.glob("*.so"))) == 2
    facts = kernel_cache()
    seals, probes = list(directory.glob("*.sha256")), list(directory.glob("compiler-*.json"))
    assert facts["entries"] == len(seals) - 1
    assert facts["bytes"] == first.stat().st_size + 64 * len(seals) + sum(p.stat().st_size for p in probes)


def test_another_program_is_compiled(directory, texts):
    generator(directory, "")
    first = stored(recipe(), compiled_for())
    generator(directory, "COEFFICIENTS = 1, 2")
    second = stored(recipe(1.0, 2.0), compiled_for())
    stored(recipe(1.0, 2.0), compiled_for(2))
    assert not first.samefile(second) and len(texts) == 3


def test_two_recipes_with_one_text_share_a_file(directory, texts):
    generator(directory, "")
    one, other = stored(recipe(variant="one"), compiled_for()), stored(recipe(variant="other"), compiled_for())
    assert one != other and one.samefile(other) and len(texts) == 1


def caller(part: Recipe) -> Recipe:
    inner = st.Function("inner", (X, GROUP), st.block(st.accumulate(X[GROUP], 2.0)))
    outer = st.Function("outer", (X,), st.block(st.Call(inner, (X, GROUP))), group=GROUP)
    return Recipe("outer", (Signature.of(outer),), lambda: (outer,), "made_here", parts=(part,))


def adding(number: float) -> Recipe:
    inner = st.Function("inner", (X, GROUP), st.block(st.accumulate(X[GROUP], number)))
    return Recipe("inner", (), lambda: (inner,), "made_here")


def test_parts_that_change_are_linked_again(directory, texts):
    generator(directory, "")
    first = stored(caller(adding(2.0)), compiled_for())
    generator(directory, "# A comment, which changes neither.")
    assert stored(caller(adding(2.0)), compiled_for()).samefile(first) and len(texts) == 2
    generator(directory, "# The part adds three.")
    second = stored(caller(adding(3.0)), compiled_for())
    assert len(texts) == 4 and texts[1] == texts[3] and not second.samefile(first)
    x = np.zeros(3)
    Library(second, caller(adding(3.0)).signatures).outer(x, 0, 3)
    np.testing.assert_array_equal(x, [3.0] * 3)


@pytest.mark.parametrize("harm", ["altered", "no file", "no seal"])
def test_a_damaged_entry_of_a_text_is_built_again(directory, texts, harm):
    generator(directory, "")
    stored(recipe(), compiled_for())
    (entry,) = directory.glob(f"*{BY_TEXT}")
    seal = entry.with_name(entry.name.removesuffix(f".so{BY_TEXT}") + ".sha256")
    if harm == "altered":  # In place, so that all its links are.
        entry.write_bytes(entry.read_bytes()[:-9])
    else:
        (entry if harm == "no file" else seal).unlink()
    generator(directory, "# Another version.")
    path = stored(recipe(), compiled_for())
    assert path.samefile(entry) and len(texts) == 2
    cache = Cache(directory)
    assert cache._sound(path, path.with_suffix(".sha256")) and cache._sound(entry, seal)


def test_without_hard_links_there_are_copies(directory, texts, monkeypatch):
    def refused(*_: object) -> None:
        raise OSError(errno.EPERM, "Operation not permitted")

    monkeypatch.setattr(os, "link", refused)
    generator(directory, "")
    first = stored(recipe(), compiled_for())
    generator(directory, "# Another version.")
    second = stored(recipe(), compiled_for())
    assert len(texts) == 1 and links(first) == links(second) == 1
    assert first.read_bytes() == second.read_bytes() and first.stat().st_mtime == second.stat().st_mtime


def test_object_files_and_the_text_at_hand(directory, texts):
    """Functions at hand have one entry, whose key is that of the text already."""
    generator(directory, "")
    stored(recipe(), c_object(1))
    generator(directory, "# Another version.")
    stored(recipe(), c_object(1))
    assert len(texts) == 1
    stored(Recipe.of(F, name="at_hand"), compiled_for())
    assert len(list(directory.glob("at_hand*"))) == 2


def test_cubins(directory, monkeypatch):
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, len(cubin), 0))
    driver = RecordingDriver()
    built = CubinBuilder("sm_80", driver.bindings)
    for comment in ("", "# Another version.", "# Once more."):
        generator(directory, comment)
        built.build(recipe(), 32)
    assert driver.count("Program.compile") == len(built.compiled) == 1
    generator(directory, "COEFFICIENTS = 1, 2")
    built.build(recipe(1.0, 2.0), 32)
    assert driver.count("Program.compile") == len(built.compiled) == 2


def test_the_emulator(directory, monkeypatch):
    compiled, run = [], emulator.build.__globals__["_compile"]
    monkeypatch.setitem(emulator.build.__globals__, "_compile", lambda *a: compiled.append(a[0]) or run(*a))
    for comment in ("", "# Another version."):
        generator(directory, comment)
        emulator.build(recipe(), 4)
    assert len(compiled) == 1


def test_processes_compile_a_text_once(directory, tmp_path):
    """They have different sources, as two checkouts do, and ask at the same time."""
    program = f"""
import sys, time; sys.path[:0] = [{str(Path(__file__).resolve().parents[2])!r}, {str(tmp_path)!r} + "/" + sys.argv[1]]
from tests.gen.programs import polynomial
from trnqc.jit import Recipe, Signature
from trnqc.jit.compile import Compilation, c_library
from trnqc.jit.compiler import Compiler
build = Compiler._compile
def counted(*args):
    with open({str(tmp_path / "builds")!r}, "a") as log: print("compiled", file=log)
    time.sleep(0.5)
    build(*args)
Compiler._compile = counted
f = polynomial()
recipe = Recipe(f.name, (Signature.of(f),), lambda: (f,), "made_here")
print(Compilation(recipe, c_library(1, ("-O1",))).file)
"""
    for name in ("one", "two", "three"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "made_here.py").write_text(f"# The checkout {name}.")
    started = [
        subprocess.Popen([sys.executable, "-c", program, name], stdout=subprocess.PIPE, text=True)
        for name in ("one", "two", "three")
    ]
    paths = [Path(one.communicate()[0].strip()) for one in started]
    assert len(set(paths)) == 3 and all(path.samefile(paths[0]) for path in paths)
    assert (tmp_path / "builds").read_text() == "compiled\n"
    assert not [p for p in directory.glob(".*") if p.name.startswith((".build-", ".polynomial"))]
