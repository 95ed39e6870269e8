"""The examples in docstrings give what they say, and the guide names every module of the rooms eri and pyscf."""

from __future__ import annotations

import doctest
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SEMINUMERICAL = [f"seminumerical.{name}" for name in ("exchange", "gradient", "overlap_fit", "work")]
GUIDE = (ROOT / "docs/eri.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("module", ["classes", "integrals", "jk.builder", "kernels.angular", *SEMINUMERICAL])
def test_examples(module):
    results = doctest.testmod(importlib.import_module(f"trnqc.eri.{module}"))
    assert results.attempted
    assert not results.failed


def test_the_guide_has_a_line_for_every_module():
    named, folder = set(), ""
    for line in GUIDE.partition("## Folders and modules")[2].splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 3 and (modules := re.findall(r"`(\w+)`", cells[2])):
            folder = cells[1].strip("`") or folder
            named |= {f"{folder}/{module}".lstrip("/") for module in modules}
    room = ROOT / "trnqc/eri"
    files = {str(path.relative_to(room).with_suffix("")) for path in room.rglob("*.py") if path.stem != "__init__"}
    for folder in ("pyscf", "pyscf/early"):
        objects = (ROOT / "trnqc" / folder).glob("*.py")
        files |= {f"trnqc.{folder}/{path.stem}" for path in objects if path.stem != "__init__"}
    assert named == files


def test_the_walk_names_functions_that_exist():
    walk = GUIDE.partition("## The walk")[2].partition("## Folders")[0]
    names = re.findall(r"`((?:shells|kernels|jk|gradient|arrays|compiled)\.[\w.]+)`", walk)
    assert len(names) > 10
    for name in names:
        module, *attributes = re.match(r"(\w+\.\w+)(?:\.(.+))?", name).groups()
        outcome = importlib.import_module(f"trnqc.eri.{module}")
        for attribute in (attributes[0] or "").split(".") if attributes[0] else ():
            outcome = getattr(outcome, attribute)
