"""Describe every backend, with what to install if it cannot run, and the processor and the kernel cache."""

from __future__ import annotations

import argparse
import dataclasses
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from trnqc import backends
from trnqc.backends.base import BackendStatus
from trnqc.cli import machine
from trnqc.host.memory import gigabytes
from trnqc.host.output import add_output, console_of, write_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare ``--json FILE`` and ``--quiet``."""
    add_output(parser, "the same facts")


def run(args: argparse.Namespace) -> int:
    """Print the tables. The exit status is 0 even if backends are missing, because that is a valid answer."""
    statuses, facts = backends.statuses(), machine.facts()
    accuracies = {name: backends.get(name).accuracies() for name, status in statuses.items() if status.usable}
    plain = {
        "backends": {name: _plain(status, accuracies.get(name, ())) for name, status in statuses.items()},
        "gpu": _gpu(statuses["cuda"]),
    }
    write_json(args, plain | facts)
    console = console_of(args)
    console.print(table(statuses, accuracies))
    console.print(machine_table(facts))
    return 0


def machine_table(facts: machine.Facts) -> Table:
    """The table of the machine, with a row for each subject."""
    rows = Table(title="this machine", title_justify="left", show_lines=True)
    for heading in ("subject", "details"):
        rows.add_column(heading)
    for subject, values in facts.items():
        rows.add_row(subject, Text("\n".join(f"{name}: {_words(name, value)}" for name, value in values.items())))
    return rows


def _words(name: str, value: Any) -> str:
    return gigabytes(value) if name == "bytes" else str(value)


def _plain(status: BackendStatus, accuracies: Sequence[str]) -> dict[str, Any]:
    fields = {field.name: getattr(status, field.name) for field in dataclasses.fields(status)}
    return fields | {"versions": dict(status.versions), "devices": list(status.devices), "precisions": list(accuracies)}


def _gpu(status: BackendStatus) -> dict[str, Any]:
    """The subject "gpu" of the JSON file, which is older than the backend "cuda" and has its facts."""
    return {**status.versions, "devices": list(status.devices)}


def table(statuses: Mapping[str, BackendStatus], accuracies: Mapping[str, Sequence[str]]) -> Table:
    """The table of backends, with a row for each; `accuracies` are lines about measured precisions by backend."""
    rows = Table(title="trnqc backends", title_justify="left", show_lines=True)
    for heading in ("backend", "usable", "details"):
        rows.add_column(heading)
    for name, status in statuses.items():
        rows.add_row(
            name,
            "[green]yes[/]" if status.usable else "[red]no[/]",
            Text("\n".join(_details(status, accuracies.get(name, ())))),
        )
    return rows


def _details(status: BackendStatus, accuracies: Sequence[str]) -> Iterator[str]:
    """Devices, versions, measured errors, why a backend is limited or not usable, and what to do about it."""
    yield from (f"on {device}" for device in status.devices)
    yield from (f"{software}: {version}" for software, version in status.versions.items())
    yield from accuracies
    if status.reason:
        yield status.reason
    if status.hint:
        yield f"-> {status.hint}"
