"""One environment of the matrix: its releases, its tests, and what became of them."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
import tomllib
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from scripts import ROOT
from trnqc.errors import InputError

PYTHONS = ("3.11", "3.12", "3.13")
# The ends of the ranges in uv's words. Only our own requirements are taken at their lower bounds; those of the packages
# that they bring along are not ours to test.
ENDS = {"oldest": "lowest-direct", "newest": "highest"}
# What the tests need besides the package, by the extra whose tests need it. Their ranges are those of the extra "test".
TOOLS = {"": ("pytest", "hypothesis", "opt_einsum"), "torch": ("e3nn",)}
# Tests of every room that go through the interfaces of the packages whose releases change, by the extra that they need.
TESTS = {
    "": (
        "tests/backends/test_cpu.py",
        "tests/cg/test_problem.py",
        "tests/cg/test_schedule.py",
        "tests/cli/test_doctor.py",
        "tests/contraction/test_einsum.py",
        "tests/contraction/test_stored.py",
        "tests/eri/test_accelerate.py",
        "tests/eri/test_jk.py",
        "tests/gen/test_build.py",
        "tests/host",
        "tests/interfaces/test_einsum.py",
        "tests/jit/test_jit.py",
        "tests/mp2/test_dfmp2.py",
        "tests/mp2/test_open_shells.py",
        "tests/mp2/test_restart.py",
        "tests/nki_kernels/test_gemm.py",
        "tests/sim/test_dtypes.py",
        "tests/sim/test_language.py",
        "tests/sparse/test_api.py",
        "tests/sparse/test_solve.py",
    ),
    "torch": (
        "tests/cg/test_engine.py",
        "tests/cg/test_modules.py",
        "tests/contraction/test_libraries.py",
        "tests/sparse/test_derivatives.py",
        "tests/torch_ops",
    ),
}


@dataclass(frozen=True)
class Row:
    """What became of one environment.

    Attributes
    ----------
    python, end : str
        The version of Python and the end of the ranges.
    releases : dict
        The installed releases by the name of the package.
    passed, failed, skipped : int
        Numbers of tests.
    seconds : float
        The wall time of the tests.
    failures : list of str
        The tests that failed, or the reason why none ran.
    """

    python: str
    end: str
    releases: dict[str, str] = field(default_factory=dict)
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    seconds: float = 0.0
    failures: list[str] = field(default_factory=list)

    @property
    def sound(self) -> bool:
        """Whether tests ran and none failed."""
        return self.passed > 0 and not self.failures


def requirements(extras: Sequence[str]) -> list[str]:
    """The requirements of pyproject.toml with those of some extras and of the tools, as text."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    optional: dict[str, list[str]] = project["optional-dependencies"]
    if unknown := set(extras) - set(optional):
        raise InputError(f"an extra is one of {', '.join(optional)}; found {', '.join(sorted(unknown))}")
    named = {name for extra in ("", *extras) for name in TOOLS.get(extra, ())}
    tools = [text for text in optional["test"] if _name(text) in named]
    return project["dependencies"] + [text for extra in extras for text in optional[extra]] + tools


def _name(requirement: str) -> str:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0]


def run_row(python: str, end: str, wanted: Sequence[str], folder: Path, tests: Sequence[str]) -> Row:
    """Make an environment in a folder, and run tests in it."""
    environment = folder / f"{python}-{end}"
    try:
        releases = make_environment(environment, python, end, wanted)
    except InputError as error:
        return Row(python, end, failures=[str(error)])
    report, start = environment / "report.xml", time.perf_counter()
    command = [str(environment / "bin" / "python"), "-m", "pytest", "-q", "-m", "not slow", f"--junitxml={report}"]
    command += ["-p", "no:cacheprovider", "--continue-on-collection-errors"]
    done = subprocess.run([*command, *tests], cwd=ROOT, capture_output=True, text=True, check=False)
    seconds = time.perf_counter() - start
    if not report.exists():
        return Row(python, end, releases, seconds=seconds, failures=[done.stdout[-2000:] + done.stderr[-2000:]])
    return Row(python, end, releases, *counted(report), seconds=round(seconds, 1), failures=failures(report))


def make_environment(environment: Path, python: str, end: str, wanted: Sequence[str]) -> dict[str, str]:
    """Make an environment with the releases at one end of the ranges, and return them by package.

    Raises
    ------
    InputError
        If there is no such Python, or no set of releases that fit together.
    """
    interpreter = str(environment / "bin" / "python")
    _uv("venv", "--quiet", "--no-python-downloads", "--clear", "--python", python, str(environment))
    # Wheels only: the releases that a user without compilers gets.
    choice = ("--resolution", ENDS[end], "--only-binary", ":all:")
    _uv("pip", "install", "--quiet", "--python", interpreter, *choice, *wanted)
    listed = json.loads(_uv("pip", "list", "--python", interpreter, "--format", "json"))
    return {package["name"]: package["version"] for package in listed}


def _uv(*arguments: str) -> str:
    done = subprocess.run([sys.executable, "-m", "uv", *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise InputError(f"python -m uv {' '.join(arguments[:2])} failed (pip install uv?): {done.stderr.strip()}")
    return done.stdout


def counted(report: Path) -> tuple[int, int, int]:
    """Numbers of tests that passed, failed and were skipped, in a report in JUnit's format."""
    suites = list(ElementTree.parse(report).getroot().iter("testsuite"))
    total, failed, errors, skipped = (
        sum(int(suite.get(kind, 0)) for suite in suites) for kind in ("tests", "failures", "errors", "skipped")
    )
    return total - failed - errors - skipped, failed + errors, skipped


def failures(report: Path) -> list[str]:
    """The tests that failed, each with the first line of its message."""
    return [
        f"{case.get('classname')}::{case.get('name')}: {(found.get('message') or '').splitlines()[:1]}"
        for case in ElementTree.parse(report).getroot().iter("testcase")
        for found in (*case.findall("failure"), *case.findall("error"))
    ]
