"""The tests that pass with a package's own objects and fail with ours, as a table by file and as a verdict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from scripts.peers.peer import THEIRS, Peer

# file -> way -> what `run.run` gave
Results = Mapping[str, Mapping[str, Mapping[str, Any]]]


@dataclass(frozen=True)
class Loss:
    """A test that passes with the peer's objects and not with ours; excused: why this is expected, empty if not."""

    file: str
    test: str
    way: str
    outcome: str
    message: str
    excused: str


def losses(peer: Peer, results: Results) -> list[Loss]:
    losses = []
    for file, ways in results.items():
        passed = [test for test, outcome in ways.get(THEIRS, {"tests": {}})["tests"].items() if _passed(outcome)]
        for way in (way for way in ways if way != THEIRS):
            for test in passed:
                ours = ways[way]["tests"].get(test, {"outcome": "not reached", "message": _ending(ways[way])})
                if not _passed(ours):
                    reason = _failing_anyway(ways[way], test) or peer.excused(f"{file}::{test}", way)
                    losses.append(Loss(file, test, way, ours["outcome"], ours.get("message", ""), reason))
    return losses


def empty(results: Results) -> list[str]:
    """Files that say nothing about ours, in words: without a test that passes, or with nothing swapped."""
    words = []
    for file, ways in results.items():
        for way, result in ways.items():
            if not any(map(_passed, result["tests"].values())):
                words.append(f"{file} ({way}): no test passed; {_ending(result)}")
            elif way != THEIRS and not any(result.get("swapped", {}).values()):
                words.append(f"{file} ({way}): nothing of ours took part")
    return words


def table(peer: Peer, results: Results) -> Table:
    ways = [THEIRS, *peer.ways]
    shown = Table()
    for head in ("file", *(f"{peer.name} {peer.version}" if way == THEIRS else f"ours, {way}" for way in ways), "lost"):
        shown.add_column(head, no_wrap=True)
    lost = losses(peer, results)
    for file, outcomes in results.items():
        ours = [loss for loss in lost if loss.file == file]
        excused = sum(bool(loss.excused) for loss in ours)
        words = f"{len(ours) - excused}" + (f" + {excused} expected" if excused else "")
        shown.add_row(file, *(_count(outcomes.get(way)) for way in ways), words)
    return shown


def _count(result: Mapping[str, Any] | None) -> str:
    if result is None:
        return "-"
    outcomes = [outcome["outcome"] for outcome in result["tests"].values()]
    seconds = sum(outcome["seconds"] for outcome in result["tests"].values())
    return f"{outcomes.count('passed')} of {len(outcomes)}, {seconds:.0f} s"


def _failing_anyway(result: Mapping[str, Any], test: str) -> str:
    control = result.get("control", {}).get(test)
    return "" if control is None or _passed(control) else "fails in this way with the peer's own objects too"


def _passed(outcome: Mapping[str, Any]) -> bool:
    return outcome["outcome"] == "passed"


def _ending(result: Mapping[str, Any]) -> str:
    code = result.get("exit")
    return "the run was ended at its time limit" if code == -1 else f"pytest ended with status {code}"
