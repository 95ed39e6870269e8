"""The examples of the README and docs work: Python blocks are run, command lines are parsed."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import trnqc
from tests.mace.descriptions import description
from trnqc.cli import _parser

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"^(?:\s{4}|\$ )(?:\.venv/bin/)?(trnqc \S.*?)(?:\s{2,}#.*)?$", re.MULTILINE)


def commands() -> list[str]:
    return [line for page in PAGES for line in COMMAND.findall(page.read_text(encoding="utf-8"))]


@pytest.mark.parametrize("kernels", ["cached", pytest.param("wait", marks=pytest.mark.slow)])
def test_python_blocks_run(tmp_path, monkeypatch, kernels):
    """Without waiting for kernels, as at a user's first call, and slowly with all of them compiled."""
    monkeypatch.setenv("TRNQC_KERNELS", kernels)
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    monkeypatch.chdir(tmp_path)
    trnqc.mace.save(description(), "my.model")
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    reference = names["mol"].RKS(xc="b3lyp").density_fit().run()
    assert names["mf"].e_tot == pytest.approx(reference.e_tot, abs=1e-9)
    assert names["forces"] == pytest.approx(-reference.nuc_grad_method().kernel(), abs=1e-6)
    assert names["mp2"].e_corr == pytest.approx(names["mp2"].e_corr_os + names["mp2"].e_corr_ss, abs=1e-12)
    assert names["r"] == pytest.approx(np.einsum("ijef,abef->ijab", names["t"], names["v"]), rel=1e-12)


def test_the_readme_is_short_and_says_first_what_the_package_says():
    first = "trnqc makes the expensive steps of quantum chemistry and atomistic machine learning fast"
    assert len((ROOT / "README.md").read_bytes()) <= 6000
    for name, words in (("README.md", "# trnqc"), ("docs/index.md", "# trnqc"), ("pyproject.toml", "description = ")):
        text = (ROOT / name).read_text(encoding="utf-8")
        assert text[text.index(words) + len(words) :].strip('\n "').startswith(first)


def test_the_documents_name_commands():
    assert len(commands()) >= 4


@pytest.mark.parametrize("line", commands())
def test_command_lines_are_understood(line):
    arguments = shlex.split(line)[1:]
    _parser(arguments).parse_args(arguments)


def test_modules_named_in_commands_exist():
    """``python -m scripts.NAME`` in documents, and in the docstrings of scripts and examples."""
    texts = [*PAGES, ROOT / "CONTRIBUTING.md", *(p for d in ("scripts", "examples") for p in (ROOT / d).rglob("*.py"))]
    named = {
        (page.name, name)
        for page in texts
        for name in re.findall(r"-m ((?:scripts|examples)\.[\w.]*\w)", page.read_text(encoding="utf-8"))
    }
    assert len(named) > 20
    assert not [
        (page, name)
        for page, name in sorted(named)
        if not (path := ROOT / name.replace(".", "/")).with_suffix(".py").exists()
        and not (path / "__main__.py").exists()
    ]


def test_files_named_in_documents_exist():
    """Files of scripts, examples and profiles, by their paths in this checkout."""
    pattern = re.compile(r"`((?:scripts|examples|profiles)/[\w./-]+\.(?:py|json|svg|txt|md))`")
    named = {(page.name, name) for page in PAGES for name in pattern.findall(page.read_text(encoding="utf-8"))}
    assert len(named) > 20
    assert not [(page, name) for page, name in sorted(named) if "NAME" not in name and not (ROOT / name).exists()]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    targets = re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    # What the hooks of the site add when it is built.
    linked = [target for target in targets if target != "recorded.html" and not target.startswith("pictures/")]
    assert not [target for target in linked if not (page.parent / target).exists()]


def test_rooms_are_at_hand_after_one_import():
    assert {"cg", "contraction", "eri"} <= set(dir(trnqc))
    code = """
import sys, trnqc
assert not {"torch", "pyscf", "e3nn"} & set(sys.modules)
trnqc.cg.TPProblem, trnqc.contraction.path, trnqc.eri.get_jk
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
