"""Text of HTML and SVG elements: everything that comes from a file is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


class Markup(str):
    """Text that is markup already."""


def text(content: object) -> Markup:
    """Markup stays, anything else is escaped."""
    return content if isinstance(content, Markup) else Markup(escape(str(content)))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """``class_`` and ``for_`` lose the underscore, others become dashes; None and False leave an attribute out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        shown = _short(value) if isinstance(value, float) else str(value)
        parts.append(label if value is True else f'{label}="{escape(shown)}"')
    inner = "".join(map(text, children))
    return Markup(f"<{' '.join(parts)}/>" if not children and name in EMPTY else f"<{' '.join(parts)}>{inner}</{name}>")


EMPTY = ("rect", "line", "path", "circle", "br", "meta", "polyline")


def join(parts: Iterable[object]) -> Markup:
    """The texts of all parts, one after another."""
    return Markup("".join(map(text, parts)))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: str, numeric: int = 1) -> Markup:
    """The first cell of a row is its heading; columns from ``numeric`` on are set as numbers."""
    cells = [element("th", h, scope="col", class_="num" if k >= numeric else None) for k, h in enumerate(head)]
    body = [
        element(
            "tr",
            *(
                element("th", cell, scope="row")
                if k == 0
                else element("td", cell, class_="num" if k >= numeric else None)
                for k, cell in enumerate(row)
            ),
        )
        for row in rows
    ]
    return element(
        "div",
        element(
            "table",
            element("caption", caption),
            element("thead", element("tr", *cells)),
            element("tbody", *body),
        ),
        class_="scroll",
        tabindex=0,
        role="region",
        aria_label=caption,
    )


def _short(number: float) -> str:
    """Hundredths of a pixel are enough."""
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 1e7 else f"{number:.6g}"
