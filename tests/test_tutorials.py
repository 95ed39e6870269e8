"""The pages are true: their Python blocks run in the order of the page and print what stands below them."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
# A block, the comment before it that says why it cannot run here, and the output that it prints.
BLOCK = re.compile(r"(<!-- needs .*? -->\n)?```python\n(.*?)```(?:\n\n```text\n(.*?)```)?", re.DOTALL)
PAGES = [page for page in sorted((ROOT / "docs").rglob("*.md")) if "```python" in page.read_text(encoding="utf-8")]
TREE = re.compile(r"```\{toctree\}\n(?::[^\n]*\n)*\n([^`]*)```")
LINK = re.compile(r"\]\(([^)#]+\.md)(?:#[\w-]+)?\)")
SAME = doctest.OutputChecker()


@pytest.mark.parametrize("page", PAGES, ids=[page.stem for page in PAGES])
def test_blocks_print_what_stands_below_them(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    # As at a user's first call, which does not wait for kernels.
    monkeypatch.setenv("TRNQC_KERNELS", "cached")
    names: dict[str, object] = {"__name__": "tutorial"}
    text = page.read_text(encoding="utf-8")
    blocks = [block for block in BLOCK.findall(text) if not block[0]]
    assert len(blocks) + text.count("<!-- needs ") == text.count("```python")
    for number, (_, code, expected) in enumerate(blocks):
        # Kernels of the simulator are read from the file of their function.
        file = tmp_path / f"block{number}.py"
        file.write_text(code, encoding="utf-8")
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(code, str(file), "exec"), names)
        found = printed.getvalue()
        flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
        if expected or "tutorials" in page.parts:
            assert SAME.check_output(expected, found, flags), f"expected\n{expected}\nfound\n{found}"


def test_links_between_pages_resolve():
    wrong = [
        (page.name, target)
        for page in (ROOT / "docs").rglob("*.md")
        for target in LINK.findall(page.read_text(encoding="utf-8"))
        if not target.startswith("http") and not (page.parent / target).exists()
    ]
    assert not wrong


def test_the_site_shows_every_page():
    trees = TREE.findall((ROOT / "docs" / "index.md").read_text(encoding="utf-8"))
    shown = [f"{name}.md" for tree in trees for name in tree.split()]
    pages = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sorted(shown) == sorted(pages - {"index.md"})
