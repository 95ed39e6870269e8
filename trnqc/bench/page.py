"""One HTML page of figures: a bar and the times of each, and how to repeat them. It needs no scripts and no network."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.resources import files
from math import log2

from trnqc.bench.figure import Figure, Section, duration, faster, spread
from trnqc.profiling.page.markup import Markup, element, table
from trnqc.version import __version__

# Width and height of the field of a bar in the units of its drawing, and the ratios at its two ends.
WIDTH, HEIGHT, LOWEST, HIGHEST = 240.0, 18.0, 0.25, 64.0
TICKS = (0.5, 2, 4, 8, 16, 32)


def page(
    title: str,
    about: Mapping[str, str],
    sections: Sequence[Section],
    notes: Sequence[str] = (),
    back: tuple[str, str] | None = None,
) -> str:
    """The text of the page. What is slower than the other program stands first.

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
    back
        Address and words of a link to where the reader came from.
    """
    lost = [_lost(section) for section in sections if any(figure.ratio < 1 for figure in section.figures)]
    losses, count = (sum(len(section.figures) for section in many) for many in (lost, sections))
    verdict = f"trnqc is faster in {count - losses} of {count} comparisons and slower in {losses}."
    body = [
        element(
            "header",
            *([element("p", element("a", back[1], href=back[0]))] if back else []),
            element("h1", title),
            element("p", verdict, class_="verdict"),
            _facts(about),
        ),
        *([element("section", element("h2", "Where trnqc is slower"), *map(_slower, lost))] if lost else []),
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
    return element("section", element("h2", section.heading), _figures(section), _facts(section.facts))


def _lost(section: Section) -> Section:
    """The section with the figures in which trnqc is slower."""
    return replace(section, figures=[figure for figure in section.figures if figure.ratio < 1])


def _slower(lost: Section) -> Markup:
    return element("div", element("h3", lost.heading), _figures(lost))


def _figures(section: Section) -> Markup:
    """The table of a section, the smallest ratio first."""
    rows = [
        (f.what, f.rival, duration(f.theirs), duration(f.ours), _bar(f), _ratio(f))
        for f in sorted(section.figures, key=lambda figure: figure.ratio)
    ]
    return table(("what", "beside", "its time", "trnqc", "", "trnqc is"), rows, section.heading, 2)


def _ratio(figure: Figure) -> Markup:
    words = element("span", faster(figure.ratio), class_="gain" if figure.ratio >= 1 else "loss")
    between = spread(figure)
    return element("div", words, element("small", f"rounds: {between}")) if between else words


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
