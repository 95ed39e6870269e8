"""List every backend: whether it runs here, on what, and if not, why and what to install."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping

from rich.console import Console
from rich.table import Table
from rich.text import Text

from trnqc import backends
from trnqc.backends.base import BackendStatus


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """This command has no options."""


def run(args: argparse.Namespace) -> int:
    """Print the table; 0 also where backends are missing, because that is an answer and not a failure."""
    Console().print(table(backends.statuses()))
    return 0


def table(statuses: Mapping[str, BackendStatus]) -> Table:
    """One row a backend."""
    rows = Table(title="trnqc backends", title_justify="left", show_lines=True)
    for heading in ("backend", "usable", "details"):
        rows.add_column(heading)
    for name, status in statuses.items():
        rows.add_row(name, "[green]yes[/]" if status.usable else "[red]no[/]", Text("\n".join(_details(status))))
    return rows


def _details(status: BackendStatus) -> Iterator[str]:
    """Devices, versions, what is wrong or limited, what to do about it."""
    yield from (f"on {device}" for device in status.devices)
    yield from (f"{software}: {version}" for software, version in status.versions.items())
    if status.reason:
        yield status.reason
    if status.hint:
        yield f"-> {status.hint}"
