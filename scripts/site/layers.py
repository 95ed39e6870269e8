"""The picture of the rooms in layers, drawn from the table of docs/architecture.md.

python -m scripts.site.layers          writes docs/pictures/layers.svg
"""

from __future__ import annotations

import re
from html import escape
from pathlib import Path

from scripts import ROOT

PAGE, PICTURE = ROOT / "docs" / "architecture.md", ROOT / "docs" / "pictures" / "layers.svg"
# A row of the table: level, rooms, what stands there.
ROW = re.compile(r"^\| (\d) \| ([^|]+) \| ([^|]+) \|", re.MULTILINE)
WIDTH, BOX, GAP, LEFT = 1000, 46, 10, 70
# Layers that belong together have a colour.
COLOURS = ("#e8ecf1", "#dbe7f3", "#dbe7f3", "#d6ecdf", "#d6ecdf", "#f6e7c8", "#f6e7c8", "#f0dcd9")


def rooms(page: Path) -> dict[int, list[str]]:
    """Names of rooms by level."""
    levels: dict[int, list[str]] = {}
    for level, names, _ in ROW.findall(page.read_text(encoding="utf-8")):
        folders = [name.strip("`/ ") for name in names.split(",") if name.strip().endswith("/`")]
        levels.setdefault(int(level), []).extend(name.removeprefix("trnqc/") for name in folders)
    return levels


def drawn(levels: dict[int, list[str]]) -> str:
    """The picture: the ground at the bottom, what users call at the top."""
    height = len(levels) * (BOX + GAP) + GAP
    parts = []
    for row, (level, names) in enumerate(sorted(levels.items(), reverse=True)):
        y, width = GAP + row * (BOX + GAP), (WIDTH - LEFT - GAP * len(names)) / len(names)
        parts.append(f'<text x="12" y="{y + 29}" class="level">level {level}</text>')
        for place, name in enumerate(names):
            x = LEFT + place * (width + GAP)
            parts.append(
                f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BOX}" rx="6" fill="{COLOURS[level]}"/>'
                f'<text x="{x + width / 2:.1f}" y="{y + 29}" text-anchor="middle">{escape(name)}</text>'
            )
    style = "text { font: 15px sans-serif; fill: #16191d; } .level { font-size: 12px; fill: #59636e; }"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
        f'aria-label="Rooms of trnqc in layers"><style>{style}</style>'
        f'<rect width="{WIDTH}" height="{height}" fill="#ffffff"/>' + "".join(parts) + "</svg>\n"
    )


if __name__ == "__main__":
    PICTURE.write_text(drawn(rooms(PAGE)), encoding="utf-8")
    print(f"written to {PICTURE}")
