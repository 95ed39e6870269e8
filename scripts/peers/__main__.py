"""Do the tests of other packages pass with our objects in place of theirs?

    python -m scripts.peers [pyscf ...] [--files '*scf/test/test_rhf.py'] [--ways theirs memory direct]
                                  [--tree pyscf=DIR] [--threads 1] [--jobs 1] [--timeout 3600] [--out FILE.json]

Each peer is a module of scripts/peers: where its tests come from, which files count, how ours are put in the place of
theirs, and which tests may fail, with the reason. The source tree is cloned at the tag of the installed version into
$TRNQC_PEERS_DIR (else the user's cache directory); nothing of it enters this repository, and only test folders are
taken from it: what is tested is the installed package. The record holds every test's outcome; files and ways that are
not run keep what it held. The exit status is 1 if a test passes with the peer's objects and, unexpectedly, fails with
ours.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.measuring import heading, machine, write_json
from scripts.peers import report
from scripts.peers.peer import NAMES, THEIRS, Peer, peers
from scripts.peers.run import Limits, run
from scripts.peers.trees import cache_folder, files_of, tree_of
from trnqc.errors import InputError, TrnqcError

WIDTH = 120


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", choices=[*NAMES, []], help="all by default")
    parser.add_argument("--files", default="*", help="glob pattern for paths in the peer's tree")
    parser.add_argument("--ways", nargs="+", help=f"{THEIRS} for the peer as it is, or ways of ours; all by default")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=DIR", help="a peer's source tree")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads of each process")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one file in one way")
    parser.add_argument("--out", type=Path, default=cache_folder() / "outcomes.json", help="default: %(default)s")
    return parser.parse_args(words)


def source_trees(pairs: list[str]) -> dict[str, Path]:
    for pair in pairs:
        if pair.partition("=")[0] not in NAMES:
            raise InputError(f"--tree expects NAME=DIR with a NAME of {', '.join(NAMES)}, found {pair}")
    return {name: Path(folder) for name, _, folder in (pair.partition("=") for pair in pairs)}


@dataclass(frozen=True)
class Session:
    """What one peer's runs have in common."""

    peer: Peer
    tree: Path
    limits: Limits

    def outcomes(self, pattern: str, ways: list[str] | None, jobs: int) -> Iterator[tuple[str, str, dict[str, Any]]]:
        """(file, way, result) of every run, in order, `jobs` of them at once."""
        possible = [THEIRS, *self.peer.ways]
        if unknown := set(ways or ()) - set(possible):
            raise InputError(
                f"--ways of {self.peer.name} are {', '.join(possible)}, found {', '.join(sorted(unknown))}"
            )
        files = [file for file in files_of(self.peer, self.tree) if file.match(pattern)]
        if not files:
            raise InputError(f"no test file of {self.peer.name} matches --files {pattern!r}")
        runs = [(file, way) for file in files for way in ways or possible]
        with ThreadPoolExecutor(jobs) as pool:
            results = pool.map(lambda each: run(self.peer, self.tree, each[0], each[1], self.limits), runs)
            for (file, way), result in zip(runs, results):
                yield str(file), way, result

    def control(self, file: str, way: str, results: report.Results) -> dict[str, Any]:
        """Outcomes of the tests that a way has lost unexpectedly, under the way's control; empty without one."""
        lost = report.losses(self.peer, {file: {name: results[file][name] for name in (THEIRS, way)}})
        tests = [loss.test for loss in lost if not loss.excused]
        if not tests or way not in self.peer.controls:
            return {}
        return run(self.peer, self.tree, Path(file), way, self.limits, tests)["tests"]


def main(words: list[str] | None = None) -> int:
    asked = arguments(words)
    # Rich takes a file for a terminal of 80 columns.
    console = Console() if sys.stdout.isatty() else Console(width=WIDTH)
    record = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {"peers": {}}
    trees, unexpected = source_trees(asked.tree), 0
    for peer in peers(tuple(asked.peers) or NAMES):
        session = Session(peer, tree_of(peer, trees.get(peer.name)), Limits(asked.threads, asked.timeout))
        kept = record["peers"].setdefault(peer.name, {"files": {}})
        for file, way, result in session.outcomes(asked.files, asked.ways, asked.jobs):
            kept["files"].setdefault(file, {})[way] = result
            if THEIRS in kept["files"][file]:
                result["control"] = session.control(file, way, kept["files"])
            lost = [asdict(loss) for loss in report.losses(peer, kept["files"])]
            kept |= {"version": peer.version, "lost": lost}
            write_json(heading() | {"machine": machine()} | record, asked.out)
            console.print(f"{file} ({way}): {sum(t['outcome'] == 'passed' for t in result['tests'].values())} passed")
        console.print(f"all outcomes: {asked.out}", soft_wrap=True)
        unexpected += shown(console, peer, kept["files"])
    return 1 if unexpected else 0


def shown(console: Console, peer: Peer, results: report.Results) -> int:
    """Print a peer's table, what was lost and what says nothing; the number of unexpected losses and empty runs."""
    console.print(report.table(peer, results))
    lost = report.losses(peer, results)
    for loss in lost:
        why = f"expected: {loss.excused}" if loss.excused else loss.message
        console.print(f"{loss.file}::{loss.test} ({loss.way}) {loss.outcome}: {why}", markup=False, soft_wrap=True)
    nothing = report.empty(results)
    for words in nothing:
        console.print(words, markup=False, soft_wrap=True)
    return sum(not loss.excused for loss in lost) + len(nothing)


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"peers_tests.py: {error}")
