"""Workflows, recipes and the citation agree with the project: the scripts they call exist, versions are the same."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

import trnqc

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
CALLERS = [*WORKFLOWS, ROOT / "docs" / "releasing.md"]
RECIPE = (ROOT / "packaging" / "conda" / "meta.yaml").read_text()


def recipe() -> dict[str, Any]:
    """The conda recipe, with the values in place of the names that conda-build would fill in."""
    text = re.sub(r"\{%.*%\}", "", RECIPE)
    return yaml.safe_load(re.sub(r"\{\{ *(\w+) *\}\}", r"\1", text))


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_have_jobs_with_steps(path):
    workflow = yaml.safe_load(path.read_text())
    # YAML 1.1 reads the key "on" as true.
    assert workflow[True] and workflow["permissions"] == {"contents": "read"}
    assert all(job["steps"] and job["runs-on"] for job in workflow["jobs"].values())


def test_there_is_a_workflow_for_each_purpose():
    assert {path.stem for path in WORKFLOWS} == {"tests", "matrix", "wheels", "docs"}


@pytest.mark.parametrize("path", CALLERS, ids=lambda path: path.name)
def test_called_scripts_exist(path):
    text = path.read_text()
    modules = re.findall(r"python -m (scripts\.[\w.]+)", text)
    programs = re.findall(r"(?<![\w/.])(\.ci/run|\./run)\b", text)
    assert modules or programs
    for module in modules:
        place = ROOT.joinpath(*module.split("."))
        assert place.with_suffix(".py").is_file() or (place / "__main__.py").is_file(), module
    assert all((ROOT / program).is_file() for program in programs)


def test_the_pythons_of_the_matrix_are_those_of_the_workflow():
    from scripts.matrix.rows import PYTHONS

    jobs = yaml.safe_load((ROOT / ".github" / "workflows" / "matrix.yml").read_text())["jobs"]
    assert tuple(jobs["matrix"]["strategy"]["matrix"]["python"]) == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"


def test_versions_agree():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    assert citation["version"] == trnqc.__version__
    assert re.search(r'set version = "(.*)"', RECIPE)[1] == trnqc.__version__
    assert citation["license"] == recipe()["about"]["license"] == PROJECT["license"]


def test_the_recipe_has_the_requirements_of_the_project():
    run = {text.replace(" ", "") for text in recipe()["requirements"]["run"]}
    assert run == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}", "c-compiler"}
    assert recipe()["build"]["entry_points"] == [f"trnqc = {PROJECT['scripts']['trnqc']}"]


def test_the_image_takes_a_supported_python_and_no_compiler():
    text = (ROOT / "Dockerfile").read_text()
    assert re.search(r"^FROM python:3\.12-slim$", text, re.MULTILINE)
    assert not re.search(r"apt|gcc|build-essential", text)
