"""Terminal reports of one profile or of a comparison of two profiles."""

from __future__ import annotations

from collections.abc import Callable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from trnqc.profiling import activity, words
from trnqc.profiling.compare import Comparison, ComparisonRow
from trnqc.profiling.profile import Profile
from trnqc.profiling.utilisation import completed, machine_of, roofline

# Kind of measurement -> its name in the report.
KINDS = {"modelled": "modelled, no device took part", "device": "measured on a device"}


def report(profile: Profile, top: int = 5, everything: bool = False) -> Group:
    """Return the report of one profile: `top` stalls per engine, and the main summary fields or `everything`."""
    parts = [_about(profile), _summary(profile, everything)]
    if profile.lanes:
        parts += [_overlap(profile), _instructions(profile, 2 * top)]
    if activity.stalls(profile):
        parts.append(_stalls(profile, top))
    parts.append(Text(_position(profile)))
    gap = activity.unlisted(profile)
    notes = [*([gap] if gap else []), *profile.notes]
    parts.append(Group(*(Text(f"note: {note}", style="dim") for note in notes)))
    return Group(*(item for part in parts for item in (part, Text())))


def _table(title: str, *columns: str, left: int = 1) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for k, column in enumerate(columns):
        table.add_column(column, justify="left" if k < left else "right", no_wrap=k >= left)
    return table


def _about(profile: Profile) -> RenderableType:
    machine = machine_of(profile)
    table = Table(title=profile.title, title_justify="left", title_style="bold", show_header=False, box=None)
    table.add_column(style="dim", no_wrap=True)
    table.add_column(overflow="fold")
    table.add_row("figures", Text(KINDS[profile.measurement]))
    table.add_row("target", Text(machine.words if machine else profile.target or "unknown (give --target)"))
    table.add_row("read from", Text(f"{profile.path} ({profile.format})"))
    for name, used in profile.high_water.items():
        size = getattr(machine, name, None)
        share = f" of {words.amount(size, 'B', 1024)}" if size else ""
        table.add_row(f"{name.upper()} high-water", Text(f"{words.amount(used, 'B', 1024)}{share} per partition"))
    return table


def _summary(profile: Profile, everything: bool) -> RenderableType:
    fields, computed = completed(profile)
    names = [name for name in (fields if everything else words.HEADLINES) if name in fields]
    table = _table("Summary (* computed here)", "field", "value")
    for group in words.grouped(names).values():
        for name in group:
            table.add_row(name + (" *" if name in computed else ""), words.value(name, fields[name]))
    return table


def _overlap(profile: Profile) -> RenderableType:
    pairs = activity.matrix(profile)
    if not pairs.engines:
        return Text("no Trainium engine among the lanes: no overlap to report", style="dim")
    heads = list(map(words.engine, pairs.engines))
    table = _table("Overlap: share of the row's active time in which the column works too", "of", "active", *heads)
    for i, name in enumerate(pairs.engines):
        own = float(pairs.ns[i, i])
        shares = [_share(float(pairs.ns[i, j]), own) if i != j else "" for j in range(len(pairs.engines))]
        table.add_row(words.engine(name), words.duration(own), *shares)
    shared = activity.overlap(profile)
    if shared.hidden_percent is None or not shared.tensor:
        return table
    line = f"{shared.hidden_percent:.2f} % of the Vector and Scalar time runs behind the Tensor engine"
    return Group(table, Text(line))


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole:.1f} %" if whole else "–"


def _instructions(profile: Profile, top: int) -> RenderableType:
    table = _table("Instructions by time", "engine", "instruction", "count", "time", "mean", left=2)
    for one in activity.ops(profile, top):
        row = (
            words.engine(one.engine),
            one.op or "–",
            f"{one.count}",
            words.duration(one.ns),
            words.duration(one.mean),
        )
        table.add_row(*row)
    return table


def _stalls(profile: Profile, top: int) -> RenderableType:
    table = _table("Stalls", "engine", "cause", "meaning", "time", "of its time", left=3)
    for stall in activity.stalls(profile, top):
        share = "–" if stall.percent is None else f"{stall.percent:.2f} %"
        meaning = words.CAUSES.get(stall.cause, "")
        table.add_row(words.engine(stall.engine), stall.cause, meaning, words.duration(stall.ns), share)
    return table


def _position(profile: Profile) -> str:
    roof = roofline(profile)
    if roof is None:
        return "roofline: no position (needs target, flops, HBM traffic and time)"
    return (
        f"roofline: {roof.intensity:.4g} flop per byte, ridge at {roof.ridge:.4g}, {roof.bound} bound; "
        f"{words.amount(roof.achieved, 'flop/s')} is {roof.reached_percent:.1f} % of the attainable "
        f"{words.amount(roof.attainable, 'flop/s')}"
    )


def comparison(both: Comparison, everything: bool = False) -> Group:
    """Return a table of A and B with difference and ratio; ``everything`` selects all fields."""
    parts: list[RenderableType] = [Text(f"A  {both.a.title}  {both.a.path}"), Text(f"B  {both.b.title}  {both.b.path}")]
    parts += [Text(f"warning: {caveat}", style="yellow") for caveat in both.caveats]
    rows = [row for row in both.rows if everything or row.name in words.HEADLINES]
    parts.append(_compared("A against B", rows, words.value))
    if both.stalls:
        parts.append(_compared("Stalls", list(both.stalls[:12]), _stalled))
    if both.speedup:
        parts.append(Text(f"B takes {1 / both.speedup:.3f} of the time of A", style="bold"))
    return Group(*parts)


def _stalled(_: str, ns: float | int | str | None) -> str:
    return words.duration(ns) if isinstance(ns, int | float) else "–"


def _compared(title: str, rows: list[ComparisonRow], show: Callable[[str, float | None], str]) -> Table:
    table = _table(title, "field", "A", "B", "difference", "B / A")
    for row in rows:
        sign = "+" if row.difference is not None and row.difference > 0 else ""
        change = "–" if row.difference is None else sign + show(row.name, row.difference)
        ratio = "–" if row.ratio is None else f"{row.ratio:.3f}"
        table.add_row(words.LABELS.get(row.name, row.name), show(row.name, row.a), show(row.name, row.b), change, ratio)
    return table
