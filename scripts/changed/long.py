"""Write the list of tests that `./run test` leaves out because they are long, from a report of pytest.

    ./run test -m "not slow" --numprocesses auto --dist loadfile --durations 0 | tee report.txt
    python -m scripts.changed.long report.txt [--seconds 1]

The times of set-up and call count. A report of a busy machine takes a larger limit.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts import ROOT

LIST = ROOT / "tests" / "long.txt"
_LINE = re.compile(r"([\d.]+)s (?:setup|call) +(tests/\S+::.*\S)")


def long_tests(report: Iterable[str], seconds: float) -> list[str]:
    """The tests of a report of durations that take longer than so many seconds, in order."""
    taken: dict[str, float] = defaultdict(float)
    for line in report:
        if found := _LINE.match(line):
            taken[found[2]] += float(found[1])
    return sorted(test for test, total in taken.items() if total > seconds)


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("report", type=Path, help="the output of pytest with --durations 0")
    parser.add_argument("--seconds", type=float, default=1.0, help="tests that take longer are long (%(default)s)")
    args = parser.parse_args(argv)
    tests = long_tests(args.report.read_text(encoding="utf-8").splitlines(), args.seconds)
    LIST.write_text("".join(f"{test}\n" for test in tests), encoding="utf-8")
    print(f"{len(tests)} tests take more than {args.seconds:g} s", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
