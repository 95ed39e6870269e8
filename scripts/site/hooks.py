"""Hooks of MkDocs: the recorded benchmarks and their pictures become files of the site, links out of docs/ plain text.

pip install -e '.[docs]'
python -m mkdocs build
"""

from __future__ import annotations

import re
from typing import Any

# A link of Markdown to a file outside docs/, from a page in docs/ or in a folder of it.
PLACES = "README|CONTRIBUTING|CHANGELOG|profiles|scripts|examples|tests|trnqc"
OUTSIDE = re.compile(rf"\[([^\]]+)\]\((?:\.\./)+((?:{PLACES})[^)]*)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the page of records and the figures of SCF jobs."""
    from mkdocs.structure.files import File

    from scripts.site.benchmarks import MEASURED, recorded

    files.append(File.generated(config, "recorded.html", content=recorded(MEASURED)))
    for picture in sorted(MEASURED.glob("*/scf.svg")):
        name = f"pictures/scf-{picture.parent.name}.svg"
        files.append(File.generated(config, name, content=picture.read_bytes()))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Name files outside the site instead of linking to them."""
    return OUTSIDE.sub(lambda link: link[1] if "`" in link[1] else f"{link[1]} (`{link[2]}`)", markdown)
