"""The text, bars and tables of the page."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from trnqc.profiling import activity, intervals, words
from trnqc.profiling.compare import Comparison, ComparisonRow
from trnqc.profiling.page.markup import Markup, element, join, table
from trnqc.profiling.profile import ENGINES, Profile, Value
from trnqc.profiling.utilisation import completed, roofline


def headline(profile: Profile) -> Markup:
    """Return the main figures as cards. Percentages have a bar."""
    fields, _ = completed(profile)
    hidden = activity.overlap(profile).hidden_percent
    shown: dict[str, Value] = dict(fields) | ({} if hidden is None else {"vector_scalar_hidden_percent": hidden})
    cards = [_card(name, shown[name]) for name in words.HEADLINES if name in shown]
    return element("dl", *cards, class_="cards")


def _card(name: str, value: Value) -> Markup:
    number = float(value) if isinstance(value, int | float) else 0.0
    bar = element(
        "span", element("i", "", style=f"width:{min(max(number, 0), 100):.1f}%"), class_="bar", aria_hidden="true"
    )
    colour = next((engine for engine in (*ENGINES, "dma") if name.startswith(engine)), "plain")
    return element(
        "div",
        element("dt", words.LABELS[name]),
        element("dd", words.value(name, value), bar if name.endswith("_percent") else ""),
        class_=f"card {colour}",
    )


def overlap(profile: Profile) -> Markup:
    """Return the pairwise overlap: the share of the row engine's active time in which the column engine is active."""
    pairs = activity.matrix(profile)
    if len(pairs.engines) < 2:
        return Markup("")
    rows = []
    for i, name in enumerate(pairs.engines):
        own = float(pairs.ns[i, i])
        cells = [_heat(100 * float(pairs.ns[i, j]) / own if own else 0.0, i == j) for j in range(len(pairs.engines))]
        rows.append([words.engine(name), words.duration(own), *cells])
    head = ["of", "active", *map(words.engine, pairs.engines)]
    return table(head, rows, "Share of the row's active time in which the engine of the column works too")


def _heat(percent: float, own: bool) -> Markup:
    if own:
        return element("span", "—", class_="own", aria_label="itself")
    return element("span", f"{percent:.1f} %", class_="heat", style=f"--share:{percent:.1f}%")


def stalls(profile: Profile, top: int = 6) -> Markup:
    """Return one stacked bar per engine, and the table of its stalls."""
    ranked_stalls = activity.stalls(profile, top)
    if not ranked_stalls:
        return element("p", "The source records no stalls.", class_="quiet")
    engines = sorted(
        {stall.engine for stall in ranked_stalls}, key=lambda e: -sum(s.ns for s in ranked_stalls if s.engine == e)
    )
    longest = max(sum(s.ns for s in ranked_stalls if s.engine == e) for e in engines)
    causes = list(dict.fromkeys(stall.cause for stall in ranked_stalls))
    colour = {cause: f"c{k % 8}" for k, cause in enumerate(causes)}
    whole = 1e9 * (profile.number("total_time") or 0.0) or profile.span[1] or longest
    scale = max(whole, longest)
    bars = [
        element(
            "div",
            element("span", words.engine(engine), class_="who"),
            element(
                "span",
                *(
                    element("i", "", class_=colour[s.cause], style=f"width:{100 * s.ns / scale:.2f}%")
                    for s in ranked_stalls
                    if s.engine == engine
                ),
                class_="track",
            ),
            class_="stack",
        )
        for engine in engines
        if engine in words.ENGINE_WORDS
    ]
    rows = [
        [
            words.engine(stall.engine),
            join([element("i", "", class_=f"key {colour[stall.cause]}"), " ", stall.cause]),
            words.CAUSES.get(stall.cause, ""),
            words.duration(stall.ns),
            "–" if stall.percent is None else f"{stall.percent:.2f} %",
        ]
        for stall in ranked_stalls
    ]
    caption = "Time that the instructions of an engine waited before they began, longest first"
    return join(
        [
            element("div", *bars, class_="stacks", aria_hidden="true"),
            table(["engine", "cause", "meaning", "time", "of its time"], rows, caption, numeric=3),
        ]
    )


def instructions(profile: Profile, top: int = 12) -> Markup:
    """Return the table of the `top` kinds of instructions that took most time."""
    op_times = activity.ops(profile, top)
    whole = intervals.total(activity.stretches(profile))
    rows = [
        [
            words.engine(one.engine),
            one.op or "–",
            f"{one.count:,}".replace(",", "\u202f"),
            words.duration(one.ns),
            words.duration(one.mean),
            f"{100 * one.ns / whole:.2f} %" if whole and not activity.is_dma(one.engine) else "–",
        ]
        for one in op_times
    ]
    head = ["engine", "instruction", "count", "time", "mean", "of span"]
    return table(head, rows, "By time; instructions that overlap are added up", numeric=2)


def position(profile: Profile) -> Markup:
    """Return one sentence about the roofline position, or about why there is none."""
    roof = roofline(profile)
    if roof is None:
        why = "its target is not known" if profile.target is None else "flops, HBM traffic or time are missing"
        return element("p", f"{profile.title}: no position under the roofline, because {why}.", class_="quiet")
    return element(
        "p",
        f"{profile.title}: {roof.intensity:.4g} flop per byte, ridge at {roof.ridge:.4g}: {roof.bound} bound. ",
        f"It reaches {words.amount(roof.achieved, 'flop/s')}, which is {roof.reached_percent:.1f} % of the ",
        f"{words.amount(roof.attainable, 'flop/s')} attainable with this precision and traffic.",
    )


def fields(profiles: Sequence[tuple[str, Profile]]) -> Markup:
    """Return every summary field of every profile, by group. Figures that were computed here are marked."""
    full = [completed(profile) for _, profile in profiles]
    names = list(dict.fromkeys(name for one, _ in full for name in one))
    several = len(profiles) > 1
    head = ["field", *(letter if several else "value" for letter, _ in profiles)]
    parts = []
    for title, group in words.grouped(names).items():
        rows = [[element("code", name), *(_cell(name, one, computed) for one, computed in full)] for name in group]
        parts.append(element("details", element("summary", title), table(head, rows, title), open=True))
    return element("div", *parts, class_="groups")


def _cell(name: str, values: Mapping[str, Value], computed: frozenset[str]) -> Markup:
    value = words.value(name, values.get(name))
    return element("span", value, class_="computed" if name in computed and name in values else None)


def comparison(both: Comparison) -> Markup:
    """Return every field and stall of A and B with difference and ratio."""
    parts = [element("p", caveat, class_="warn") for caveat in both.caveats]
    if both.speedup:
        faster = both.speedup >= 1
        ratio = both.speedup if faster else 1 / both.speedup
        verdict = f"B is {ratio:.3g} times as {'fast' if faster else 'slow'} as A."
        parts.append(
            element("p", verdict if abs(ratio - 1) > 5e-4 else "A and B take the same time.", class_="verdict")
        )
    rows = {row.name: row for row in both.rows}
    head = ["field", "A", "B", "difference", "B / A"]
    main = [_compared(rows[name], words.value, words.LABELS[name]) for name in words.HEADLINES if name in rows]
    parts.append(table(head, main, "Main figures"))
    if both.stalls:
        body = [_compared(row, lambda _, ns: "–" if ns is None else words.duration(ns)) for row in both.stalls[:16]]
        parts.append(table(head, body, "Stalls, longest first"))
    for title, group in words.grouped(rows).items():
        body = [_compared(rows[name], words.value, element("code", name)) for name in group]
        parts.append(element("details", element("summary", f"{title}: all fields"), table(head, body, title)))
    return element("div", *parts, class_="compared")


def _compared(row: ComparisonRow, show: Callable[[str, float | None], str], name: str | None = None) -> list[object]:
    sign = "+" if row.difference is not None and row.difference > 0 else ""
    difference = "–" if row.difference is None else f"{sign}{show(row.name, row.difference)}"
    return [
        row.name if name is None else name,
        show(row.name, row.a),
        show(row.name, row.b),
        difference,
        "–" if row.ratio is None else f"{row.ratio:.3f}",
    ]
