"""The site: `python -m sphinx -W -b html docs site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.site.benchmarks import MEASURED, recorded  # noqa: E402  found by the line above
from trnqc import __version__  # noqa: E402

project, author, release = "trnqc", "The trnqc developers", __version__
project_copyright = author
extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx_copybutton"]
source_suffix = {".md": "markdown"}
html_theme, html_title = "furo", f"trnqc {release}"
html_static_path, html_css_files = ["_static"], ["site.css"]
myst_enable_extensions = ["attrs_inline"]
myst_heading_anchors = 3
# Docstrings name arguments and values in single quotes of code.
default_role = "code"
smartquotes = False
napoleon_google_docstring = False
autodoc_typehints = "none"
autodoc_member_order = "bysource"
copybutton_exclude = ".linenos, .gp, .go"

# A link of Markdown to a file outside docs/, from a page in docs/ or in a folder of it.
PLACES = "README|CONTRIBUTING|CHANGELOG|CITATION|SECURITY|profiles|scripts|examples|tests|trnqc"
OUTSIDE = re.compile(rf"(?<!!)\[([^\]]+)\]\((?:\.\./)+((?:{PLACES})[^)]*)\)")


def _name_files(app: Any, page: str, source: list[str]) -> None:
    """Name files outside the site instead of linking to them."""
    source[0] = OUTSIDE.sub(lambda link: link[1] if "`" in link[1] else f"{link[1]} (`{link[2]}`)", source[0])


def _add_records(app: Any, error: Exception | None) -> None:
    """Write the page of recorded benchmarks beside the others."""
    if error is None:
        (Path(app.outdir) / "recorded.html").write_text(recorded(MEASURED), encoding="utf-8")


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", _name_files)
    app.connect("build-finished", _add_records)
