"""The summary of a run as one HTML page that needs no other file."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import Any

STYLE = """body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 75rem; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; } td, th { border-bottom: 1px solid #ccc; padding: .35rem .6rem;
text-align: left; vertical-align: top; }
.passed { color: #176b2c; } .failed, .ended { color: #a3121f; font-weight: bold; }
.skipped, .begun { color: #666; } ul { margin: 0; padding-left: 1.1rem; }
@media (prefers-color-scheme: dark) { body { background: #161616; color: #ddd; } td, th { border-color: #444; }
.passed { color: #6fcf87; } .failed, .ended { color: #ff8a90; } .skipped, .begun { color: #999; } }"""


def page(summary: Mapping[str, Any]) -> str:
    """The text of the page of a summary, as `__main__.summary_of` makes it."""
    title = "First run on a GPU" + (", simulated: no figure counts" if summary["simulated"] else "")
    there = summary["inventory"]
    facts = {
        "GPUs": ", ".join(there["gpus"]) or there["reason"],
        "driver": "; ".join(there["driver"]) or "nvidia-smi is not installed",
        "Python": there["python"],
        "packages": _versions(there["packages"]),
        "tools": _versions(there["tools"]),
        "command": summary["command"],
        "date": summary["date"],
        "seconds": f"{summary['seconds']:.0f} of {summary['budget']:.0f}",
    }
    about = "".join(f"<tr><th>{html.escape(k)}</th><td>{html.escape(v)}</td></tr>" for k, v in facts.items())
    rows = "".join(map(_row, summary["steps"]))
    head = "".join(f"<th>{name}</th>" for name in ("step", "result", "seconds", "message and figures"))
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><meta name="viewport" '
        f'content="width=device-width"><title>{title}</title><style>{STYLE}</style></head><body>\n<h1>{title}</h1>\n'
        f"<table>{about}</table>\n<h2>Steps</h2>\n<table><tr>{head}</tr>\n{rows}</table>\n</body></html>\n"
    )


def details(record: Mapping[str, Any]) -> Sequence[str]:
    """What there is to say of a step: its message, the largest error of a check, the figures of a benchmark."""
    lines = [record["message"]] if record["message"] else []
    if record.get("errors"):
        case = max(record["errors"], key=record["errors"].__getitem__)
        lines.append(f"{len(record['errors'])} cases, the largest error is {record['errors'][case]:.1e} ({case})")
    return [*lines, *record.get("figures", ()), *record.get("notes", ())]


def _row(record: Mapping[str, Any]) -> str:
    seconds = f"{record['seconds']:.1f}" if "seconds" in record else ""
    listed = "".join(f"<li>{html.escape(line)}</li>" for line in details(record))
    status = record["status"] + (" before" if record.get("kept") else "")
    return (
        f"<tr><td>{html.escape(record['step'])}<br><small>{record['kind']}</small></td>"
        f'<td class="{record["status"]}">{status}</td><td>{seconds}</td><td><ul>{listed}</ul></td></tr>\n'
    )


def _versions(versions: Mapping[str, str | None]) -> str:
    return ", ".join(f"{name} {version or '(missing)'}" for name, version in versions.items())
