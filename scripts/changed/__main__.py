"""Print the test files of what changed since the branch left main, uncommitted files included.

    python -m scripts.changed        # the list, or "tests" for all

All tests are named on a clean tree of main, where there is no git or no branch main, and where the sources cannot tell
what a change reaches: requirements, settings, conftest.py, and data that programs read.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from scripts import ROOT
from scripts.changed.graph import can_tell, read, tests_of

ALL = "tests"


def changed_files(root: Path = ROOT) -> list[str] | None:
    """The files that differ from the commit at which this branch left main, or None if git cannot say."""
    base = _git(root, "merge-base", "HEAD", "main")
    if not base:
        return None
    tracked = _git(root, "diff", "--name-only", "--no-renames", "-z", base[0].strip())
    new = _git(root, "ls-files", "--others", "--exclude-standard", "-z")
    return None if tracked is None or new is None else sorted({*tracked, *new})


def _git(root: Path, *arguments: str) -> list[str] | None:
    """What git prints, or None if it fails."""
    try:
        done = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    except OSError:
        return None
    return None if done.returncode else [part for part in done.stdout.split("\0") if part.strip()]


def selection(root: Path = ROOT) -> tuple[list[str], str]:
    """The arguments for pytest, and the reason."""
    changed = changed_files(root)
    if changed is None:
        return [ALL], "git names no branch main to compare with"
    if not changed:
        return [ALL], "nothing differs from main"
    if unclear := [path for path in changed if not can_tell(path)]:
        return [ALL], f"{unclear[0]} changed, which may reach every test"
    try:
        tests = tests_of(changed, read(root))
    except SyntaxError as error:
        return [ALL], f"{error.filename or 'a source'} cannot be read: {error}"
    return tests, f"{len(tests)} test files are reached by {len(changed)} changed files; ./run test all runs all"


def main() -> int:
    """Print the selection, and the reason on standard error."""
    tests, reason = selection()
    print(f"tests: {'all, because ' * (tests == [ALL])}{reason}", file=sys.stderr)
    print("\n".join(tests))
    return 0


if __name__ == "__main__":
    sys.exit(main())
