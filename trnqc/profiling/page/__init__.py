"""The HTML report: one self-contained file that also works offline, without scripts and in print.

profiles -> headline figures, engine lanes, roofline, overlap, stalls, instructions, all fields, A/B columns -> text
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from string import ascii_uppercase

from trnqc.profiling import activity, words
from trnqc.profiling.compare import Comparison
from trnqc.profiling.page import lanes, roofline, rows, sections
from trnqc.profiling.page.markup import Markup, element, join
from trnqc.profiling.profile import Profile
from trnqc.profiling.utilisation import machine_of
from trnqc.profiling.utilisation import roofline as position
from trnqc.version import __version__

# Kind of measurement -> its name on the page.
KINDS = {"modelled": "modelled", "device": "measured"}
# Action in the script, face and description of each button.
BUTTONS = (
    ("in", "+", "Zoom in"),
    ("out", "−", "Zoom out"),
    ("left", "←", "Earlier"),
    ("right", "→", "Later"),
    ("all", "All", "Show everything"),
)


def page(profiles: Sequence[Profile], comparison: Comparison | None = None) -> str:
    """Return the HTML text of the report on 1 to 26 profiles, with an optional comparison of two."""
    lettered = list(zip(ascii_uppercase, profiles))
    several = len(lettered) > 1
    names = list(dict.fromkeys(profile.title for profile in profiles))
    title = " and ".join(names[:2]) + (" …" if len(names) > 2 else "")
    body = [_header(lettered, title)]
    if comparison:
        body.append(_section("A against B", sections.comparison(comparison)))
    for letter, profile in lettered:
        body.append(_profile(letter if several else "", profile))
    body.append(_rooflines(lettered))
    if not comparison:
        body.append(_section("All fields", sections.fields(lettered), _legend(lettered)))
    body.append(_footer())
    head = [
        element("meta", charset="utf-8"),
        element("meta", name="viewport", content="width=device-width, initial-scale=1"),
        element("meta", name="color-scheme", content="light dark"),
        element("title", f"{title} – kernel profile"),
        element("style", Markup(_asset("page.css"))),
    ]
    script = element("script", Markup(_asset("lanes.js")))
    html = element("html", element("head", *head), element("body", element("main", *body), script), lang="en")
    return f"<!DOCTYPE html>\n{html}\n"


def _asset(name: str) -> str:
    return (files(__package__) / name).read_text(encoding="utf-8")


def _section(title: str, *content: object) -> Markup:
    return element("section", element("h2", title), *content)


def _header(lettered: Sequence[tuple[str, Profile]], title: str) -> Markup:
    about = [_about(letter if len(lettered) > 1 else "", profile) for letter, profile in lettered]
    return element("header", element("p", "Kernel profile", class_="kicker"), element("h1", title), *about)


def _about(letter: str, profile: Profile) -> Markup:
    machine = machine_of(profile)
    chips = [element("span", KINDS[profile.measurement], class_=f"chip {profile.measurement}")]
    chips.append(element("span", machine.words if machine else profile.target or "target unknown", class_="chip"))
    chips.append(element("span", profile.format, class_="chip"))
    if letter:
        chips.insert(0, element("span", letter, class_=f"chip letter {letter.lower()}"))
    path = element("span", profile.path, class_="path")
    return element("p", *join_spaced(chips), path, class_="about")


def join_spaced(parts: Sequence[object]) -> list[object]:
    """Return the parts with a space after each."""
    return [piece for part in parts for piece in (part, " ")]


def _profile(letter: str, profile: Profile) -> Markup:
    title = f"{letter}: {profile.title}" if letter else "Figures"
    parts: list[object] = [sections.headline(profile)]
    gap = activity.unlisted(profile)
    if gap:
        parts.append(element("p", gap, class_="warn-box"))
    if profile.lanes:
        parts += [_timeline(profile, core) for core in profile.cores]
        parts.append(
            element(
                "div",
                element("div", element("h3", "Overlap"), sections.overlap(profile)),
                element("div", element("h3", "Instructions"), sections.instructions(profile)),
                class_="pair",
            )
        )
    if profile.lanes or profile.stalls:
        parts.append(element("div", element("h3", "Stalls"), sections.stalls(profile)))
    facts = _facts(profile)
    return _section(title, *parts, facts)


def _timeline(profile: Profile, core: int) -> Markup:
    drawn, notes = rows.rows(profile, core)
    start, end = profile.span
    if not drawn or end <= start:
        return Markup("")
    whole, near = (start, end), rows.close_up(profile, core)
    where = f", core {core}" if len(profile.cores) > 1 else ""
    first = "Listed events" if activity.unlisted(profile) else "Whole run"
    views = [_view(f"{first}{where}", drawn, rows.first_view(profile), whole)]
    if near:
        views.append(_view(f"Close-up{where}", drawn, near, whole))
    data = element("script", lanes.data(drawn), type="application/json")
    remarks = [element("p", note, class_="quiet") for note in notes]
    return element("div", *views, *remarks, data, class_="timeline")


def _view(title: str, drawn: list[rows.LaneRow], window: tuple[float, float], whole: tuple[float, float]) -> Markup:
    buttons = [
        element("button", face, type="button", data_act=act, aria_label=f"{title}: {name}", title=name)
        for act, face, name in BUTTONS
    ]
    width = window[1] - window[0]
    ends = [words.moment(t, width / 1000, window[1]) for t in window]
    span = f"{ends[0]} to {ends[1]}, {words.duration(width)} wide"
    head = element(
        "div",
        element("h3", title),
        element("span", span, class_="window"),
        element("span", *buttons, class_="tools", role="group", aria_label=f"{title}: move and zoom"),
        class_="bar-head",
    )
    hint = (
        "Blocks are instructions, thin lines below them the time they waited. "
        "Drag to move; double click, or Ctrl and wheel, to zoom."
    )
    return element(
        "div",
        head,
        lanes.figure(drawn, window, whole, title),
        element("p", hint, class_="readout", aria_live="off"),
        class_="view",
    )


def _rooflines(lettered: Sequence[tuple[str, Profile]]) -> Markup:
    """Return one roofline plot per target."""
    several = len(lettered) > 1
    placed = [(letter if several else "", profile, position(profile)) for letter, profile in lettered]
    targets = dict.fromkeys(roof.machine.target for _, _, roof in placed if roof)
    plots = [
        roofline.figure([(letter, roof) for letter, _, roof in placed if roof and roof.machine.target == target])
        for target in targets
    ]
    notes: list[object] = [sections.position(profile) for _, profile in lettered]
    if plots:
        key = [
            element("li", element("i", "", class_=f"line {kind}"), f" {meaning}")
            for kind, meaning in (
                ("main", "bf16 peak and the core's share of HBM bandwidth"),
                ("fp32", "fp32 peak: four passes"),
                ("dma", "what sixteen DMA engines reach in practice"),
            )
        ]
        notes.append(element("ul", *key, class_="key-list"))
    content = element("div", *plots, element("div", *notes), class_="pair roof-pair") if plots else join(notes)
    return _section("Roofline", content)


def _facts(profile: Profile) -> Markup:
    """Return peak memory, notes and provenance."""
    machine = machine_of(profile)
    items = []
    for name, used in profile.high_water.items():
        size = getattr(machine, name, None)
        share = f" of {words.amount(size, 'B', 1024)} ({100 * used / size:.1f} %)" if size else ""
        items.append(f"{name.upper()} high-water: {words.amount(used, 'B', 1024)} per partition{share}")
    items += profile.notes
    more = [element("dt", name) + element("dd", value) for name, value in profile.provenance.items()]
    parts = [element("ul", *(element("li", item) for item in items), class_="notes")] if items else []
    if more:
        listed = element("dl", *map(Markup, more), class_="facts")
        parts.append(element("details", element("summary", "Versions and constants"), listed))
    return join(parts)


def _legend(lettered: Sequence[tuple[str, Profile]]) -> Markup:
    remarks = ["Names are those of the vendor's profiler. Figures in italics were computed here from the others."]
    if any(profile.measurement == "modelled" for _, profile in lettered):
        remarks.append("Modelled figures come from a simulated clock, not from a device.")
    return element("p", " ".join(remarks), class_="quiet")


def _footer() -> Markup:
    return element("footer", f"Written by trnqc {__version__}. The page holds everything it shows.")
