"""HTML and SVG elements as text. Text that comes from files is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from importlib.resources import files

from trnqc.version import __version__


class Markup(str):
    """Text that is markup already and must not be escaped."""


def text(content: object) -> Markup:
    """Return markup unchanged, and anything else as escaped text."""
    return content if isinstance(content, Markup) else Markup(escape(str(content)))


def element(name: str, /, *children: object, **attributes: object) -> Markup:
    """Return one element of a tag with children and attributes.

    In attributes, a trailing underscore is removed (``class_``), others become dashes; None and False leave one out,
    True writes it without a value.
    """
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        label = key.rstrip("_").replace("_", "-")
        shown = _short(value) if isinstance(value, float) else str(value)
        parts.append(label if value is True else f'{label}="{escape(shown)}"')
    inner = "".join(map(text, children))
    return Markup(f"<{' '.join(parts)}/>" if not children and name in EMPTY else f"<{' '.join(parts)}>{inner}</{name}>")


# Elements that need no closing tag.
EMPTY = ("rect", "line", "path", "circle", "br", "meta", "polyline", "input")


def join(parts: Iterable[object]) -> Markup:
    """Return the parts one after another."""
    return Markup("".join(map(text, parts)))


def table(head: Sequence[object], rows: Iterable[Sequence[object]], caption: str, numeric: int = 1) -> Markup:
    """Return a table that scrolls sideways where the page is narrow, with a caption, also for screen readers.

    The first cell of a row is its heading; columns from `numeric` on are aligned as numbers.
    """
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


def document(title: str, body: Iterable[object], style: str = "", script: str = "") -> str:
    """Return a whole page in one file, in the style of all pages, with the version at its end."""
    shared = files(__package__).joinpath("page.css").read_text(encoding="utf-8")
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("title", title),
        element("style", Markup(shared + style)),
    ]
    parts = [*body, element("footer", f"trnqc {__version__}")]
    scripts = [element("script", Markup(script))] if script else []
    html = element("html", element("head", *head), element("body", element("main", *parts), *scripts), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _short(number: float) -> str:
    """Return a number with two decimals, since hundredths of a pixel are enough."""
    return f"{number:.2f}".rstrip("0").rstrip(".") if abs(number) < 1e7 else f"{number:.6g}"
