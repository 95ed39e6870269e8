"""Libraries in C++ that a wheel brings along."""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path

import pytest

from trnqc.errors import CompilerError
from trnqc.jit import cpp as compiler
from trnqc.jit.shipped import Shipment

TEXT = 'extern "C" int answer() { return 42; }\n'


@pytest.fixture
def wheel(tmp_path, monkeypatch) -> Path:
    """A wheel with the library of TEXT, which a compiler of this machine made, on a machine without a compiler."""
    main = tmp_path / "answer.cpp"
    main.write_text(TEXT)
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    library = compiler.shared_library("answer", main, (), (), (), ("-I/of/the/builder",))
    digests = {library.name: sha256(library.read_bytes()).hexdigest()}
    ships = Shipment(library.parent, {}, digests, compiler.cpp_version())
    monkeypatch.setattr(compiler, "used_shipment", lambda: ships)
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    return library


def test_without_a_compiler_the_library_of_the_wheel_is_used(wheel, tmp_path):
    main = tmp_path / "answer.cpp"
    assert compiler.shared_library("answer", main, (), (), (), ("-I/of/the/user",)) == wheel


@pytest.mark.parametrize("change", ["source", "options"])
def test_a_library_of_other_sources_or_options_is_not_used(wheel, tmp_path, change):
    main = tmp_path / "answer.cpp"
    if change == "source":
        main.write_text(TEXT + "// changed\n")
    flags = ("-DCHANGED",) if change == "options" else ()
    with pytest.raises(CompilerError, match=r"no C\+\+ compiler: install one"):
        compiler.shared_library("answer", main, (), flags, ())


def test_a_named_compiler_leaves_the_wheel_aside(wheel, tmp_path, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(CompilerError, match=r"no-such-compiler"):
        compiler.shared_library("answer", tmp_path / "answer.cpp", (), (), ())
