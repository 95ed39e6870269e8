"""The commands of README and of the pages exist with their options; those of the tutorials run."""

import contextlib
import importlib.util
import io
import re
import runpy
import shlex
import sys
from pathlib import Path

import pytest

from trnqc.cli import _parse, main

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
# A command stands alone in an indented line, with its continuations and perhaps a remark.
COMMAND = re.compile(r"^    (?:\$ )?((?:\w+=\S+ )*(?:trnqc|python -m) (?:[^\n]*\\\n)*[^\n]*)$", re.MULTILINE)
# These take seconds; others take minutes, or need a file, a model or a device.
RUN = (
    "trnqc doctor",
    "trnqc mp2 water --basis cc-pvdz --json water.json",
    "trnqc eri list",
    "trnqc cache list",
    "trnqc tune --list",
    "trnqc tune gemm --shape 512,512,512 --budget 8",
)


def commands():
    """Words of each command with its page, without variables and remarks."""
    for page in PAGES:
        for text in COMMAND.findall(page.read_text(encoding="utf-8")):
            words = shlex.split(text.replace("\\\n", " "), comments=True)
            while "=" in words[0]:
                words.pop(0)
            # Remarks that are not behind a "#" stand behind several blanks.
            yield (
                page.name,
                tuple(words if "   " not in text else shlex.split(re.split(r" {3,}", text)[0], comments=True)),
            )


EVERY = sorted(set(commands()))
OURS = [command for command in EVERY if command[1][0] == "trnqc"]
MODULES = [command for command in EVERY if command[1][0] == "python"]


def test_the_pages_have_commands():
    assert len(OURS) > 30
    assert len(MODULES) > 20
    assert set(RUN) <= {" ".join(words) for _, words in OURS}


@pytest.mark.parametrize(("page", "words"), OURS, ids=[" ".join(words) for _, words in OURS])
def test_options_of_trnqc_exist(page, words, capsys):
    try:
        _parse(list(words[1:]))
    except SystemExit:
        pytest.fail(f"{page}: {' '.join(words)}: {capsys.readouterr().err.splitlines()[-1]}")


@pytest.mark.parametrize(("page", "words"), MODULES, ids=[" ".join(words) for _, words in MODULES])
def test_options_of_modules_exist(page, words, monkeypatch):
    module, *arguments = words[2:]
    if module in ("pytest", "build", "sphinx"):
        return
    assert importlib.util.find_spec(module), f"{page}: there is no module {module}"
    options = {word.partition("=")[0] for word in arguments[: arguments.index("--") if "--" in arguments else None]}
    options = {word for word in options if word.startswith("--")}
    if not options:
        return
    monkeypatch.setattr(sys, "argv", [module, "--help"])
    monkeypatch.setenv("COLUMNS", "200")
    with contextlib.redirect_stdout(io.StringIO()) as printed, pytest.raises(SystemExit):
        try:
            runpy.run_module(module, run_name="__main__", alter_sys=True)
        except ModuleNotFoundError as error:
            pytest.skip(f"{module} needs {error.name}, which is not installed")
    missing = {option for option in options if not re.search(rf"{option}\b", printed.getvalue())}
    assert not missing, f"{page}: python -m {module} has no {missing}"


@pytest.mark.parametrize("command", RUN)
def test_commands_of_tutorials_run(command, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    # As at a user's first call, which does not wait for kernels.
    monkeypatch.setenv("TRNQC_KERNELS", "cached")
    assert main(shlex.split(command)[1:]) == 0
    assert capsys.readouterr().out
