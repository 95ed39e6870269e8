"""docs/architecture.md is true: its walks name functions that exist and call one another, its tables every folder."""

from __future__ import annotations

import ast
import re
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest

from scripts.site import layers

ROOT = Path(__file__).resolve().parents[1]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
CONTRIBUTING = sorted((ROOT / "docs" / "contributing").glob("*.md"))
PACKAGES = ("trnqc", "nki_kernels", "autotune", "scripts")
DOTTED = re.compile(rf"`((?:{'|'.join(PACKAGES)})(?:\.\w+)+)`")
PLACE = re.compile(rf"`((?:{'|'.join(PACKAGES)}|tests|docs)/[\w./-]*)`")


def walks() -> dict[str, list[list[str]]]:
    """The chains of hops of each walk by its title; a chain is a numbered list, a hop begins with a name."""
    chains: dict[str, list[list[str]]] = {}
    for section in re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]:
        title, _, text = section.partition("\n")
        for number, name in re.findall(r"^(\d+)\. `([\w.]+)`", text.split("\n## ")[0], flags=re.MULTILINE):
            chains.setdefault(title, [])
            if number == "1":
                chains[title].append([])
            chains[title][-1].append(name)
    return chains


WALKS = walks()
STEPS = [step for chains in WALKS.values() for hops in chains for step in pairwise(hops)]


@cache
def module(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def located(dotted: str) -> tuple[Path, list[str]] | None:
    """The file of the longest prefix that is a module, and the names inside it that are left."""
    parts = dotted.split(".")
    for n in range(len(parts), 0, -1):
        base = ROOT.joinpath(*parts[:n])
        for path in (base.with_suffix(".py"), base / "__init__.py"):
            if path.is_file():
                return path, parts[n:]
    return None


def definitions(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """Functions, classes and assigned names of a module or class by name."""
    named: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            named[node.name] = node
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            named |= {t.id: node for t in targets if isinstance(t, ast.Name)}
    return named


def definition(dotted: str) -> ast.AST | None:
    """The definition of a dotted name, a module for the name of one; None if there is none."""
    place = located(dotted)
    if place is None:
        return None
    path, names = place
    node: ast.AST = module(path)
    for name in names:
        node = definitions(getattr(node, "body", [])).get(name)  # type: ignore[assignment]
        if node is None:
            return None
    return node


def mentioned(node: ast.AST) -> set[str]:
    """Names and attributes that occur in a definition, and names imported there."""
    names = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    names |= {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
    return names | {a.name.split(".")[-1] for n in ast.walk(node) if isinstance(n, ast.ImportFrom) for a in n.names}


def reached(dotted: str) -> set[str]:
    """What a function mentions, itself or through other definitions of its own module."""
    place = located(dotted)
    assert place is not None
    path, names = place
    start = definition(dotted)
    assert start is not None
    own = definitions(module(path).body)
    # A method reaches the other methods of its class through self.
    own |= {k: v for node in own.values() if isinstance(node, ast.ClassDef) for k, v in definitions(node.body).items()}
    own = {k: v for k, v in own.items() if k not in names}
    aliases = {
        a.asname: a.name for n in module(path).body if isinstance(n, ast.ImportFrom) for a in n.names if a.asname
    }
    todo, seen = [start], set()
    while todo:
        new = mentioned(todo.pop()) - seen
        seen |= new
        todo += [own[name] for name in new if name in own]
    return seen | {aliases[name] for name in seen & aliases.keys()}


def test_there_are_seven_walks():
    assert len(WALKS) == 7
    assert all(sum(map(len, chains)) >= 6 for chains in WALKS.values())


@pytest.mark.parametrize("page", [ROOT / "docs" / "architecture.md", *CONTRIBUTING], ids=lambda page: page.name)
def test_every_name_exists(page):
    text = page.read_text(encoding="utf-8")
    assert not [name for name in DOTTED.findall(text) if definition(name) is None]
    assert not [
        name for name in PLACE.findall(text) if not re.search("NAME|FAMILY", name) and not (ROOT / name).exists()
    ]


@pytest.mark.parametrize(("before", "after"), STEPS, ids=[f"{a.split('.')[-1]}-{b.split('.')[-1]}" for a, b in STEPS])
def test_each_hop_leads_to_the_next(before, after):
    """A class stands for its construction, a method for its own name or its class."""
    names = after.split(".")
    targets = {names[-1]} - {"__init__", "__call__"} or {names[-2]}
    assert targets & reached(before), f"{before} does not mention {after}"


def test_every_folder_is_named():
    folders = {path.parent for name in PACKAGES for path in (ROOT / name).rglob("*.py")} - {ROOT / "trnqc"}
    named = {name.rstrip("/") for name in PLACE.findall(PAGE)}
    assert not sorted({str(folder.relative_to(ROOT)) for folder in folders} - named)


def test_the_checks_can_fail():
    assert definition("trnqc.einsum_of_another_name") is None
    assert definition("trnqc.host.files.write_aside") is not None
    assert "write_aside" not in reached("trnqc.errors.InputError")


def test_the_picture_of_the_rooms_is_that_of_the_table():
    levels = layers.rooms(layers.PAGE)
    assert sum(map(len, levels.values())) > 20
    assert layers.PICTURE.read_text(encoding="utf-8") == layers.drawn(levels), "run python -m scripts.site.layers"
