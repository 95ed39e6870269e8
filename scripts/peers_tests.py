"""Do the peers' own tests pass with our objects in the place of theirs?

    python scripts/peers_tests.py [pyscf ...] [--files '*scf/test/test_rhf.py'] [--ways theirs memory direct]
                                  [--tree pyscf=DIR] [--threads 1] [--jobs 1] [--timeout 3600] [--out peers_tests.json]

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
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from scripts.measuring import heading, machine, write_json  # noqa: E402
from scripts.peers import report  # noqa: E402
from scripts.peers.peer import NAMES, THEIRS, Peer, peers  # noqa: E402
from scripts.peers.run import Limits, run  # noqa: E402
from scripts.peers.trees import files_of, tree_of  # noqa: E402
from trnqc.errors import InputError, TrnqcError  # noqa: E402


def arguments(words: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("peers", nargs="*", choices=[*NAMES, []], help="all by default")
    parser.add_argument("--files", default="*", help="glob pattern for paths in the peer's tree")
    parser.add_argument("--ways", nargs="+", help=f"{THEIRS} for the peer as it is, or ways of ours; all by default")
    parser.add_argument("--tree", action="append", default=[], metavar="NAME=DIR", help="a peer's source tree")
    parser.add_argument("--threads", type=int, default=1, help="OpenMP threads of each process")
    parser.add_argument("--jobs", type=int, default=1, help="processes at once")
    parser.add_argument("--timeout", type=float, default=3600.0, help="seconds for one file in one way")
    parser.add_argument("--out", type=Path, default=Path("peers_tests.json"))
    return parser.parse_args(words)


def trees_given(pairs: list[str]) -> dict[str, Path]:
    for pair in pairs:
        if pair.partition("=")[0] not in NAMES:
            raise InputError(f"--tree expects NAME=DIR with a NAME of {', '.join(NAMES)}, found {pair}")
    return {name: Path(folder) for name, _, folder in (pair.partition("=") for pair in pairs)}


def outcomes(peer: Peer, asked: argparse.Namespace, tree: Path) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """(file, way, result) of every run, in order, `asked.jobs` of them at once."""
    files = [file for file in files_of(peer, tree) if file.match(asked.files)]
    ways = asked.ways or [THEIRS, *peer.ways]
    limits = Limits(asked.threads, asked.timeout)
    runs = [(file, way) for file in files for way in ways if way in (THEIRS, *peer.ways)]
    with ThreadPoolExecutor(asked.jobs) as pool:
        results = pool.map(lambda each: run(peer, tree, *each, limits), runs)
        for (file, way), result in zip(runs, results):
            yield str(file), way, result


def main(words: list[str] | None = None) -> int:
    asked, console = arguments(words), Console()
    record = json.loads(asked.out.read_text(encoding="utf-8")) if asked.out.exists() else {"peers": {}}
    unexpected = 0
    given = trees_given(asked.tree)
    for peer in peers(tuple(asked.peers) or NAMES):
        kept = record["peers"].setdefault(peer.name, {"files": {}})
        for file, way, result in outcomes(peer, asked, tree_of(peer, given.get(peer.name))):
            kept["files"].setdefault(file, {})[way] = result
            lost = report.losses(peer, kept["files"])
            kept |= {"version": peer.version, "lost": [asdict(loss) for loss in lost]}
            write_json(heading() | {"machine": machine()} | record, asked.out)
            console.print(f"{file} ({way}): {sum(t['outcome'] == 'passed' for t in result['tests'].values())} passed")
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
