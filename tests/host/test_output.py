"""Messages of trnqc go through `logging`: silent in a library, on standard error on the command line."""

from __future__ import annotations

import ast
import logging
import subprocess
import sys
from pathlib import Path

import pytest

from trnqc.cli import main
from trnqc.host.output import log_on_standard_error
from trnqc.jit.cache import Cache

ROOM = Path(__file__).resolve().parents[2] / "trnqc"
# Modules that print: programs of their own, and the function of NKI whose purpose it is.
PRINTERS = {
    "bench/floors.py",
    "bench/job.py",
    "eri/compiled/builder.py",
    "host/output.py",
    "profiling/command.py",
    "ranks/watch.py",
    "sim/functions/alloc.py",
}
LOG = logging.getLogger("trnqc.host.test")


def printers() -> set[str]:
    """The modules of the package that call `print`, apart from those of the command line."""
    found = set()
    for path in ROOM.rglob("*.py"):
        calls = (node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call))
        if any(isinstance(function, ast.Name) and function.id == "print" for function in calls):
            found.add(path.relative_to(ROOM).as_posix())
    return {name for name in found if not name.startswith("cli/")}


def test_library_code_prints_nothing():
    assert printers() == PRINTERS


def test_a_program_that_imports_trnqc_sees_nothing_unless_it_asks():
    ask = "import logging, trnqc; logging.getLogger('trnqc.jit').error('heard')"
    silent = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True)
    assert silent.stdout + silent.stderr == ""
    loud = ask.replace("trnqc;", "trnqc; logging.basicConfig();")
    assert "heard" in subprocess.run([sys.executable, "-c", loud], capture_output=True, text=True, check=True).stderr


@pytest.mark.parametrize(
    ("verbose", "heard"), [(0, ["warning"]), (1, ["info", "warning"]), (3, ["debug", "info", "warning"])]
)
def test_verbose_sets_the_level_within_the_context(verbose, heard, capsys):
    before = logging.getLogger("trnqc").handlers[:], logging.getLogger("trnqc").level
    with log_on_standard_error(verbose):
        for level in (logging.DEBUG, logging.INFO, logging.WARNING):
            LOG.log(level, "%d kernels", 3)
    LOG.warning("not printed")
    assert capsys.readouterr().err.splitlines() == [f"trnqc: {level}: 3 kernels" for level in heard]
    assert (logging.getLogger("trnqc").handlers, logging.getLogger("trnqc").level) == before


def test_each_compiled_file_is_a_message_of_its_module(tmp_path, caplog):
    with caplog.at_level(logging.DEBUG, logger="trnqc"):
        path = Cache(tmp_path).get("nothing", lambda out: out.write_bytes(b""))
        Cache(tmp_path).get("nothing", lambda out: out.write_bytes(b""))
    [record] = caplog.records
    assert record.name == "trnqc.jit.cache"
    assert str(path) in record.getMessage()


def test_a_command_says_what_it_does_only_if_asked(tmp_path, capsys):
    job = ["mp2", "water", "--basis", "sto-3g", "--checkpoint", str(tmp_path / "kept")]
    assert main([*job, "--quiet"]) == 0
    assert capsys.readouterr().err == ""
    assert main([*job, "--verbose"]) == 0
    err = capsys.readouterr().err
    assert "trnqc: info: " in err
    assert "the job continues after" in err
