"""The first hour on a GPU: what is there, whether results are right, and the named benchmarks, within a budget.

    python -m scripts.device.first_run --minutes 9 [--out FOLDER]      a second call goes on where the first one ended
    python -m scripts.device.first_run --simulate                      every step but the GPU: no figure counts

Each step is a process of its own with a record of its own (FOLDER/records). It is not begun if its estimated seconds do
not fit into what is left, and ended if it runs over. At the end there are FOLDER/summary.json and FOLDER/index.html.
The exit status is 1 if a step of correctness failed.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.device.first_run import running
from scripts.device.first_run.inventory import inventory, lacking
from scripts.device.first_run.page import details, page
from scripts.device.first_run.table import STEPS, Step
from scripts.measuring import heading, machine, write_json
from trnqc.host.files import write_aside

# Folders of runs without --out, in the current one.
FOLDERS = {False: Path("first_run"), True: Path("first_run_simulated")}


def main(argv: Sequence[str] | None = None) -> int:
    """Run all steps, or one of them in this process."""
    asked = parse(argv)
    out = (asked.out or FOLDERS[asked.simulate]).resolve()
    if asked.step:
        (step,) = (step for step in STEPS if step.name == asked.step)
        return running.perform(step, out, asked.simulate)
    return run_all(STEPS, out, 60 * asked.minutes, asked.simulate, asked.again)


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Read the arguments."""
    parser = argparse.ArgumentParser(
        description=(__doc__ or "").splitlines()[0], epilog=f"Steps: {'; '.join(step.name for step in STEPS)}."
    )
    parser.add_argument("--minutes", type=float, default=9.0, help="the whole budget (default: %(default)s)")
    parser.add_argument("--out", type=Path, help="default: first_run, or first_run_simulated")
    parser.add_argument("--simulate", action="store_true", help="simulated devices and the smallest cases")
    parser.add_argument("--again", action="store_true", help="also run steps that have a record")
    parser.add_argument("--step", choices=[step.name for step in STEPS], metavar="NAME", help="this step alone")
    return parser.parse_args(argv)


def run_all(
    steps: Sequence[Step],
    out: Path,
    budget: float,
    simulate: bool,
    again: bool = False,
    *,
    there: Mapping[str, Any] | None = None,
    command: Callable[[Step], Sequence[str]] | None = None,
) -> int:
    """Run the steps that have no record within `budget` seconds, and write the summary.

    `there` and `command` replace the inventory and the command of a step's child, for tests.
    """
    begin, console = time.monotonic(), Console(soft_wrap=True, highlight=False, markup=False)
    there = inventory() if there is None else there
    show(console, there, steps, simulate)
    out.mkdir(parents=True, exist_ok=True)
    running.forget(steps, out, again)
    of_child = command or (lambda step: running.child_command(step, out, simulate))
    run = running.Run(out, there, begin + budget, simulate, of_child)
    records: list[running.Record] = []
    head = heading() | {"simulated": simulate, "budget": budget, "machine": machine(), "inventory": there}
    for step in steps:
        record = running.run_step(step, run)
        record["notes"] = [f"without {name}, which is not installed" for name in lacking_peers(step, there)]
        records.append(record)
        lines = "; ".join(details(record)[: 2 if record["status"] == running.PASSED else 1])
        known = "before: " if record.get("kept") else ""
        console.print(f"{known}{step.name}: {record['status']} {lines}")
        write_json(head | {"seconds": time.monotonic() - begin, "steps": records}, out / "summary.json")
    write_aside(out / "index.html", page(head | {"seconds": time.monotonic() - begin, "steps": records}))
    wrong = running.wrong(records)
    counts = {
        status: sum(r["status"] == status for r in records) for status in dict.fromkeys(r["status"] for r in records)
    }
    console.print(f"{', '.join(f'{n} {status}' for status, n in counts.items())}; written to {out / 'index.html'}")
    return int(bool(wrong))


def lacking_peers(step: Step, there: Mapping[str, Any]) -> list[str]:
    """The packages that a step would be compared with and that are not installed."""
    return [name for name in step.beside if not there["packages"].get(name)]


def show(console: Console, there: Mapping[str, Any], steps: Sequence[Step], simulate: bool) -> None:
    """Print what is there, and which steps are skipped for lack of what."""
    console.print(f"GPUs: {', '.join(there['gpus']) or there['reason']}")
    console.print(f"driver: {'; '.join(there['driver']) or 'nvidia-smi is not installed'}")
    console.print(f"Python {there['python']} on {there['system']}")
    for name, version in (there["packages"] | there["tools"]).items():
        console.print(f"  {name:20} {version or 'missing'}")
    for step in steps:
        reasons = lacking(step.needs, there, simulate)
        if reasons:
            console.print(f"will be skipped: {step.name} ({'; '.join(reasons)})")


if __name__ == "__main__":
    sys.exit(main())
