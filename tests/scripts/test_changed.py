"""`./run test` runs the tests of what changed and of what uses it, and all tests where that cannot be told."""

from __future__ import annotations

import importlib
import os
import subprocess
from pathlib import Path

import pytest

from scripts.changed import __main__ as command
from scripts.changed.graph import can_tell, module_of
from scripts.changed.sources import page_of, source_of

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "trnqc/__init__.py": 'from trnqc.lazy import lazy_names\n_HOMES = {"solve": "trnqc.solver.api"}',
    "trnqc/lazy.py": "def lazy_names(package, homes): ...",
    "trnqc/solver/__init__.py": "",
    "trnqc/solver/api.py": "def f():\n    from trnqc.solver import steps",
    "trnqc/solver/steps.py": "",
    "trnqc/other.py": '"""Unlike `trnqc.solver.api`, this is short."""',
    "trnqc/typed.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from trnqc.other import Other",
    "trnqc/table.py": 'COMMANDS = {"solve": "trnqc.solver.api"}',
    "trnqc/data.json": "{}",
    "examples/solve.py": "from trnqc.solver import api",
    "docs/page.md": "Text.\n```python\nimport trnqc as t\nt.solve()\n```\n",
    "tests/helper.py": "from trnqc import other",
    "tests/a/test_lazy.py": "import trnqc\ntrnqc.solve",
    "tests/a/test_other.py": "from tests.helper import x",
    "tests/a/test_typed.py": "import trnqc.typed",
    "tests/a/test_table.py": "from trnqc.table import COMMANDS",
    "tests/a/test_string.py": 'PROGRAM = "from trnqc.solver import (steps)"',
    "tests/a/test_example.py": 'run(ROOT / "examples" / "solve.py")',
    "tests/a/test_page.py": 'PAGE = ROOT / "docs" / "page.md"',
    "tests/a/test_pages.py": 'PAGES = DOCS.rglob("*.md")',
    "tests/test_all.py": "",
}
OF_SOLVER = {"lazy", "table", "string", "example", "page", "pages"}


def git(root: Path, *arguments: str) -> None:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *who, *arguments], cwd=root, check=True, capture_output=True)


@pytest.fixture
def project(tmp_path) -> Path:
    """A project of a few files, committed on main."""
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "first")
    return tmp_path


def chosen(root: Path) -> set[str] | str:
    tests, reason = command.selection(root)
    if tests == ["tests"]:
        return reason
    assert tests[-1] == "tests/test_all.py"
    return {Path(test).stem.removeprefix("test_") for test in tests[:-1]}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        ("trnqc/solver/steps.py", OF_SOLVER),
        ("trnqc/solver/api.py", OF_SOLVER - {"string"}),
        ("trnqc/solver/__init__.py", OF_SOLVER),
        ("trnqc/other.py", {"other"}),
        ("trnqc/typed.py", {"typed"}),
        ("examples/solve.py", {"example"}),
        ("docs/page.md", {"page", "pages"}),
        ("tests/helper.py", {"other"}),
        ("tests/a/test_string.py", {"string"}),
    ],
)
def test_a_change_reaches_what_uses_it(project, path, expected):
    (project / path).write_text(FILES[path] + "\n")
    assert chosen(project) == expected
    (project / path).unlink()
    left = {name for name in expected if (project / f"tests/a/test_{name}.py").exists()}
    assert chosen(project) == left


def test_commits_and_new_files_count(project):
    git(project, "switch", "-qc", "work")
    (project / "trnqc/other.py").write_text("changed = 1")
    git(project, "commit", "-qam", "second")
    assert chosen(project) == {"other"}
    (project / "tests/a/test_new.py").write_text("")
    assert chosen(project) == {"other", "new"}
    git(project, "switch", "-q", "main")
    assert chosen(project) == {"new"}


@pytest.mark.parametrize("path", ["tests/a/conftest.py", "pyproject.toml", "constraints.txt", "trnqc/data.json", "run"])
def test_what_may_reach_every_test(project, path):
    (project / path).write_text("[]")
    assert chosen(project) == f"{path} changed, which may reach every test"


def test_a_clean_tree_and_a_tree_without_git(project):
    assert chosen(project) == "nothing differs from main"
    git(project, "branch", "-m", "work")
    assert chosen(project) == "git names no branch main to compare with"


def test_a_source_that_is_no_python(project):
    (project / "trnqc/other.py").write_text("def f(:")
    assert "cannot be read" in chosen(project)


@pytest.mark.parametrize("package", ["trnqc", "trnqc.cg", "trnqc.cg.jax", "trnqc.eri", "trnqc.mace", "trnqc.sparse"])
def test_public_names_lead_to_their_modules(package):
    module = importlib.import_module(package)
    source = source_of(Path(module.__file__).read_text(), package, True)
    assert source.homes == module._HOMES and set(module.__all__) <= {*source.homes, *source.own}


def test_names_in_sources():
    text = 'import importlib\nfor n in "ab":\n    importlib.import_module(f"scripts.peers.{n}")\nfrom . import sibling'
    assert source_of(text, "trnqc.cg.problem", False).names >= {"scripts.peers.*", "trnqc.cg.sibling"}
    assert source_of("from . import below", "trnqc.cg", True).names == {"trnqc.cg.below"}
    assert source_of('SCHEMA = "trnqc.analysis/1"', "a", False).names == set()
    assert source_of('run("-m", "trnqc", "mp2")', "a", False).names == {"trnqc.__main__"}
    assert page_of("Call `trnqc.eri.get_jk`.").names == {"trnqc.eri.get_jk"}
    assert module_of("trnqc/cg/__init__.py") == "trnqc.cg"
    assert can_tell("profiles/measured/a.json") and not can_tell("trnqc/tuning/shipped/a.json")


WORKERS = "--numprocesses auto --dist loadfile --durations 10"
# Every tool notes how it was called, says so, and fails where its name is that of a variable.
TOOL = """#!/bin/sh
echo "{label}$*" >> calls
case "$*" in *scripts.changed) echo one; echo two;; esac
case "{label}$*" in *pytest* | mypy*) echo "said by $(basename "$0")"; exit "${{{name}:-0}}";; esac
"""


@pytest.fixture
def run_test(tmp_path):
    """run_test(arguments, **statuses) -> the process of `./run test` where there are only such tools, and its calls."""
    for name in ("run", "pyproject.toml", "constraints.txt"):
        (tmp_path / name).write_bytes((ROOT / name).read_bytes())
    (tmp_path / "run").chmod(0o755)
    (tmp_path / ".venv/bin").mkdir(parents=True)
    for name in ("python", "ruff", "mypy"):
        path, label = tmp_path / ".venv/bin" / name, "" if name == "python" else f"{name} "
        path.write_text(TOOL.format(name=name, label=label))
        path.chmod(0o755)
    sums = subprocess.run("cat pyproject.toml constraints.txt | cksum", shell=True, cwd=tmp_path, capture_output=True)
    (tmp_path / ".venv/trnqc-test-torch").write_bytes(sums.stdout)

    def call(arguments, **statuses):
        environment = {name: value for name, value in os.environ.items() if name != "VENV"} | statuses
        command = ["./run", "test", *arguments]
        process = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True)
        return process, [line.strip() for line in (tmp_path / "calls").read_text().splitlines()]

    return call


@pytest.mark.parametrize(
    ("arguments", "last"),
    [
        ((), f"-m scripts.changed|-m pytest -m not slow --quick {WORKERS} one two"),
        (("all",), f"ruff format --check .|-m pytest -m not slow {WORKERS} tests"),
        (("tests/sim", "-k", "all"), "-m pytest tests/sim -k all"),
    ],
)
def test_the_command_of_the_readme(run_test, arguments, last):
    process, calls = run_test(arguments)
    assert process.returncode == 0
    expected, everything = last.split("|"), arguments in ((), ("all",))
    # Types are checked beside the tests.
    assert [call for call in calls if call != "mypy"][-len(expected) :] == expected
    assert ("ruff check ." in calls) == ("mypy" in calls) == everything


@pytest.mark.parametrize(
    ("statuses", "failed"),
    [({"mypy": "1"}, "types"), ({"python": "2"}, "tests"), ({"python": "1", "mypy": "2"}, "tests types")],
)
def test_failing_types_and_tests_are_told_together(run_test, statuses, failed):
    process, _ = run_test((), **statuses)
    assert process.returncode == 1 and process.stderr.endswith(f"./run test: failed: {failed}\n")
    assert (process.stdout + process.stderr).count("said by") == 2
    assert ("said by mypy" in process.stderr) == ("mypy" in statuses)
