"""Damage files and texts of strangers at random and give them to our readers.

    python -m scripts.fuzz [--targets xyz tns ...] [--seconds 60] [--seed 0] [--keep FOLDER]

Each input has to be read, or to be refused with one of trnqc's errors, within ten seconds of
processor time. Anything else is a finding.
It is shown by the kind and place of the exception, and its first input is kept in FOLDER. The exit status is the number
of targets with findings.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import signal
import tempfile
import time
import traceback
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console
from rich.table import Table

from scripts.fuzz.mutations import mutated
from scripts.fuzz.targets import TARGETS, Target
from trnqc.errors import TrnqcError

# Seconds of processor time for one input.
PATIENCE = 10
# Bytes by which the address space may grow, so that an extent in a damaged file cannot take all memory.
ROOM = 8 << 30


class TooSlow(Exception):
    """An input took longer than PATIENCE."""


def outcome(target: Target, data: bytes, path: Path) -> str:
    """ "read", "refused", or the kind and place of another exception."""
    path.write_bytes(data)
    try:
        with _time_limit(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            target.read(path)
    except TrnqcError:
        return "refused"
    except json.JSONDecodeError as error:
        # The reader of the target decodes JSON before ours sees it.
        return "refused" if "targets.py" in _place(error) else f"JSONDecodeError at {_place(error)}"
    except Exception as error:
        return f"{type(error).__name__} at {_place(error)}"
    return "read"


def _place(error: Exception) -> str:
    frame = [f for f in traceback.extract_tb(error.__traceback__) if "trnqc" in f.filename or "fuzz" in f.filename][-1]
    return f"{Path(frame.filename).name}:{frame.lineno}"


@contextmanager
def _time_limit() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TooSlow

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, PATIENCE)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def fuzz(name: str, seconds: float, seed: int, keep: Path) -> Counter[str]:
    """Counts of outcomes of one target. Inputs of findings are kept, one for each kind."""
    target, rng = TARGETS[name], random.Random(f"{name} {seed}")
    seeds, counts, end = target.seeds(), Counter[str](), time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / f"input{target.suffix}"
        while time.monotonic() < end:
            data = mutated(rng.choice(seeds), rng)
            what = outcome(target, data, path)
            counts[what] += 1
            if what not in ("read", "refused") and counts[what] == 1:
                keep.mkdir(parents=True, exist_ok=True)
                (keep / f"{name}-{len(counts)}{target.suffix}").write_bytes(data)
    return counts


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--targets", nargs="+", choices=TARGETS, default=list(TARGETS))
    parser.add_argument("--seconds", type=float, default=60.0, help="for each target")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--keep", type=Path, default=Path(tempfile.gettempdir()) / "trnqc-fuzz")
    asked = parser.parse_args()
    table = Table(title=f"{asked.seconds:g} s for each target, seed {asked.seed}", title_justify="left")
    for heading in ("target", "inputs", "read", "refused", "findings"):
        table.add_column(heading)
    bad, used = 0, int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + ROOM, resource.RLIM_INFINITY))
    for name in asked.targets:
        counts = fuzz(name, asked.seconds, asked.seed, asked.keep)
        findings = {what: n for what, n in counts.items() if what not in ("read", "refused")}
        bad += bool(findings)
        words = "\n".join(f"{n} x {what}" for what, n in findings.items()) or "none"
        table.add_row(name, str(counts.total()), str(counts["read"]), str(counts["refused"]), words)
    Console(soft_wrap=True).print(table)
    return bad


if __name__ == "__main__":
    raise SystemExit(main())
