"""One HTML page of figures: a bar and the times of each, and how to repeat them. It needs no scripts and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.resources import files
from math import log2

from trnqc.bench.figure import Figure, Section, duration, faster
from trnqc.profiling.page.markup import Markup, element, table
from trnqc.version import __version__

# Width and height of the field of a bar in the units of its drawing, and the ratios at its two ends.
WIDTH, HEIGHT, LOWEST, HIGHEST = 240.0, 18.0, 0.25, 64.0
TICKS = (0.5, 2, 4, 8, 16, 32)


def page(title: str, about: Mapping[str, str], sections: Sequence[Section], notes: Sequence[str] = ()) -> str:
    """The text of the page.

    Parameters
    ----------
    title
        The heading of the page.
    about
        Facts that hold for all figures, by name.
    sections
        The figures.
    notes
        Sentences below the figures, such as what was left out and why.
    """
    losses = sum(figure.ratio < 1 for section in sections for figure in section.figures)
    count = sum(len(section.figures) for section in sections)
    verdict = f"trnqc is faster in {count - losses} of {count} comparisons and slower in {losses}."
    body = [
        element("header", element("h1", title), element("p", verdict, class_="verdict"), _facts(about)),
        *(_section(section) for section in sections),
        *([element("section", element("h2", "Left out"), _list(notes))] if notes else []),
        element("footer", _legend(), element("p", f"Made by trnqc {__version__}.")),
    ]
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", title),
        element("style", Markup((files(__package__) / "page.css").read_text(encoding="utf-8"))),
    ]
    html = element("html", element("head", *head), element("body", element("main", *body)), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _section(section: Section) -> Markup:
    rows = [(f.what, f.rival, duration(f.theirs), duration(f.ours), _bar(f), _ratio(f)) for f in section.figures]
    head = ("", "beside", "its time", "trnqc", "", "trnqc is")
    return element(
        "section", element("h2", section.heading), table(head, rows, section.heading, 2), _facts(section.facts)
    )


def _ratio(figure: Figure) -> Markup:
    return element("span", faster(figure.ratio), class_="gain" if figure.ratio >= 1 else "loss")


def _bar(figure: Figure) -> Markup:
    """A bar from the line of equal times to the ratio, both on a logarithmic scale."""
    one, end = _place(1.0), _place(figure.ratio)
    ticks = [element("line", x1=_place(t), x2=_place(t), y1=0.0, y2=HEIGHT, class_="tick") for t in TICKS]
    return element(
        "svg",
        element("title", faster(figure.ratio)),
        *ticks,
        element(
            "rect",
            x=min(one, end),
            y=3.0,
            width=max(abs(end - one), 1.0),
            height=HEIGHT - 6,
            class_="gain" if end >= one else "loss",
        ),
        element("line", x1=one, x2=one, y1=0.0, y2=HEIGHT, class_="one"),
        viewBox=f"0 0 {WIDTH:.0f} {HEIGHT:.0f}",
        role="img",
        aria_label=faster(figure.ratio),
    )


def _place(ratio: float) -> float:
    """The horizontal position of a ratio; beyond the ends of the scale, the end."""
    share = (log2(ratio) - log2(LOWEST)) / (log2(HIGHEST) - log2(LOWEST))
    return WIDTH * min(max(share, 0.0), 1.0)


def _legend() -> Markup:
    marks = ", ".join(f"{tick:g}" for tick in TICKS)
    return element(
        "p",
        "Bars begin at equal times, go right where trnqc is faster and left where it is slower. Thin lines stand at "
        f"{marks} times; the scale is logarithmic and ends at {HIGHEST:g}.",
    )


def _facts(facts: Mapping[str, str]) -> Markup:
    pairs = [part for name, value in facts.items() for part in (element("dt", name), element("dd", value))]
    return element("dl", *pairs, class_="facts") if pairs else Markup("")


def _list(sentences: Sequence[str]) -> Markup:
    return element("ul", *(element("li", sentence) for sentence in sentences))
