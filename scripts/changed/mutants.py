"""Whether the quick tests see the defects that all tests see: small changes of the sources, drawn over all rooms.

    python -m scripts.changed.mutants [--count 50] [--seed 1] [--rooms cg sparse] [--minutes 5]
    python -m scripts.changed.mutants --again [TEST ...]     # those that these tests saw, for the same record

A mutant changes one comparison, sum, product, number or connective inside a function. The tests that the changed file
reaches run on it, those of its own folder first: the quick ones and, if these pass, all but slow ones. The record is
profiles/counted/test_mutants.json; a mutant that neither sees is equivalent or shows a missing test, and is looked at.
Tests that exceed the limit of time have not seen a mutant, unless it loops for ever; the record says "time" for them.
A test that fails without the mutant as well has not seen it, and is an error: it has to be mended first.
"""

from __future__ import annotations

import argparse
import ast
import json
import os
import random
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT
from scripts.changed.graph import read, tests_of
from scripts.measuring import heading, machine, write_json

RECORD = ROOT / "profiles/counted/test_mutants.json"
SWAPS: dict[type[ast.AST], type[ast.AST]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Add: ast.Sub,
    ast.Sub: ast.Add,
    ast.Mult: ast.Add,
    ast.And: ast.Or,
    ast.Or: ast.And,
}


@dataclass(frozen=True)
class Mutant:
    """A change of a source, by the place and the text before and after."""

    file: str
    line: int
    before: str
    after: str


def mutants_of(file: str, text: str) -> Iterator[tuple[Mutant, str]]:
    """Yield the mutants of a source with their whole texts."""
    tree = ast.parse(text)
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
        for statement in function.body:
            for node in ast.walk(statement):
                if not isinstance(node, ast.expr) or (changed := _changed(node)) is None:
                    continue
                before, after = ast.get_source_segment(text, node) or "", ast.unparse(changed)
                if "\n" in before or isinstance(statement, ast.FunctionDef | ast.Raise):
                    continue
                lines = text.splitlines(keepends=True)
                row, first, last = lines[node.lineno - 1].encode(), node.col_offset, node.end_col_offset
                lines[node.lineno - 1] = (row[:first] + f"({after})".encode() + row[last:]).decode()
                yield Mutant(file, node.lineno, before, after), "".join(lines)


def _changed(node: ast.expr) -> ast.expr | None:
    """A copy of an expression with one operator or number changed, or None."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in SWAPS:
            return ast.Compare(node.left, [SWAPS[type(op)]()], node.comparators)  # type: ignore[list-item]
        case ast.BinOp() if type(node.op) in SWAPS and not isinstance(node.right, ast.Constant | ast.JoinedStr):
            return ast.BinOp(node.left, SWAPS[type(node.op)](), node.right)  # type: ignore[arg-type]
        case ast.BoolOp():
            return ast.BoolOp(SWAPS[type(node.op)](), node.values)  # type: ignore[arg-type]
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            return ast.Constant(value + 1)
    return None


def drawn(count: int, seed: int, rooms: Sequence[str]) -> list[tuple[Mutant, str]]:
    """Draw mutants, as many from each room as from any other."""
    chance = random.Random(seed)
    by_room: dict[str, list[Path]] = {}
    for path in sorted((ROOT / "trnqc").rglob("*.py")):
        room = path.relative_to(ROOT / "trnqc").parts[0]
        if room.endswith(".py") or (rooms and room not in rooms):
            continue
        by_room.setdefault(room, []).append(path)
    chosen: list[tuple[Mutant, str]] = []
    while len(chosen) < count:
        path = chance.choice(by_room[chance.choice(sorted(by_room))])
        if found := list(mutants_of(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))):
            chosen.append(chance.choice(found))
    return chosen


def recorded(rows: Sequence[dict[str, Any]], tests: Sequence[str], root: Path = ROOT) -> dict[int, tuple[Mutant, str]]:
    """The mutants of a record that tests saw whose names contain one of these texts, in the sources of today."""
    chosen = {}
    for number, row in enumerate(rows):
        if not any(test in row["quick"] for test in tests):
            continue
        found = mutants_of(row["file"], (root / row["file"]).read_text(encoding="utf-8"))
        same = [(m, text) for m, text in found if (m.before, m.after) == (row["before"], row["after"])]
        if not same:
            raise ValueError(f"{row['file']} has no {row['before']!r} any more")
        chosen[number] = min(same, key=lambda one: abs(one[0].line - row["line"]))
    return chosen


def working_tree(folder: Path) -> None:
    """Make a folder a clone of this checkout, for the tests that ask git, with the files as they are here."""
    subprocess.run(["git", "clone", "--quiet", "--shared", str(ROOT), str(folder)], check=True)
    tracked = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, tracked.split("\0")):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).unlink(missing_ok=True)  # A file copied onto a link to a folder would land in the folder.
        shutil.copy2(ROOT / name, folder / name, follow_symlinks=False)


def killed(tree: Path, files: Sequence[str], quick: bool, minutes: float) -> str:
    """The first test that fails on the sources in a folder, "time" if they take too long, "" if all pass."""
    options = [*["--quick"] * quick, "-m", "not slow", "-x", "-q", "-p", "no:cacheprovider"]
    environment = os.environ | {"PYTHONPATH": str(tree), "TRNQC_CACHE_DIR": str(tree / ".cache")}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *options, *files],
            cwd=tree,
            env=environment,
            capture_output=True,
            text=True,
            timeout=60 * minutes,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "time"
    if done.returncode == 0:
        return ""
    found = re.search(r"^(?:FAILED|ERROR) (\S+)", done.stdout, flags=re.MULTILINE)
    return found[1] if found else f"status {done.returncode}"


def asked(tree: Path, mutant: Mutant, text: str, files: Sequence[str], minutes: float) -> dict[str, Any]:
    """The row of a mutant: what the quick tests and, if these pass, all tests say to it.

    Raises
    ------
    RuntimeError
        If the file of the test that fails also fails without the mutant.
    """
    place, original = tree / mutant.file, (tree / mutant.file).read_text(encoding="utf-8")
    place.write_text(text, encoding="utf-8")
    try:
        quick = killed(tree, files, True, minutes)
        every = quick or killed(tree, files, False, minutes)
    finally:
        place.write_text(original, encoding="utf-8")
    file = every.partition("::")[0]
    if file in files and killed(tree, [file], bool(quick), minutes) not in ("", "time"):
        raise RuntimeError(f"{every} fails on the sources as they are: mend it first")
    return {**asdict(mutant), "quick": quick, "all": every}


def nearest_first(tests: Sequence[str], file: str) -> list[str]:
    """Test files, those first whose folders mirror most of the changed file's path."""
    mirrored = set(Path("tests", *Path(file).parts[1:]).parents)
    return sorted(tests, key=lambda test: -len(mirrored.intersection(Path(test).parents)))


def seen_by(quick: str, every: str) -> str:
    """Which tests saw a mutant, in words, from the first test that failed in either run."""
    if "time" in (quick, every):
        return "none within the limit of time"
    return "quick tests" if quick else "all tests only" if every else "none"


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--count", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rooms", nargs="*", default=[])
    parser.add_argument("--minutes", type=float, default=10.0, help="the longest time of the tests of a mutant")
    parser.add_argument("--again", nargs="*", help="mutants of the record that tests with such names saw; none: all")
    parser.add_argument("--out", type=Path, default=RECORD)
    args = parser.parse_args(argv)
    sources, console = read(ROOT), Console()
    if args.again is None:
        record = {**heading(), "machine": machine(), "rows": []}
        chosen = dict(enumerate(drawn(args.count, args.seed, args.rooms)))
    else:
        record = json.loads(args.out.read_text(encoding="utf-8"))
        chosen = recorded(record["rows"], args.again or [""])
        record |= {"again": {**heading(), "machine": machine()}}
    rows = dict(enumerate(record["rows"]))
    with tempfile.TemporaryDirectory(prefix="trnqc-mutants-") as folder:
        tree = Path(folder)
        working_tree(tree)
        for count, (number, (mutant, text)) in enumerate(chosen.items(), 1):
            files = nearest_first(tests_of([mutant.file], sources), mutant.file)
            row = rows[number] = asked(tree, mutant, text, files, args.minutes)
            where = f"{count}/{len(chosen)} {mutant.file}:{mutant.line}"
            console.print(f"{where}: {seen_by(row['quick'], row['all'])}", markup=False, highlight=False)
            write_json(record | {"rows": [*rows.values()]}, args.out)
    table = Table("seen by", "mutants")
    for name, count in Counter(seen_by(row["quick"], row["all"]) for row in rows.values()).most_common():
        table.add_row(name, str(count))
    console.print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
