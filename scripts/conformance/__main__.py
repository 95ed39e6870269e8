"""Run other people's published NKI kernels, unmodified, on the simulator.

    python -m scripts.conformance --sdk DIR --library DIR --samples DIR --nkipy DIR [--only TEXT] [--limit SECONDS]

The directories are local checkouts of aws-neuron/aws-neuron-sdk, nki-library, nki-samples and nkipy; sources that are
not given are left out. Every case runs in its own process, with a time limit, through ``nki.simulate``; its results
are compared with NumPy or with the checkout's own reference. Outcomes: pass; refused (a rule of the machine is broken,
the message says which); differs; error; time. The table goes to the terminal, everything to
profiles/counted/sim_conformance.json. The exit status is 1 if a case neither passes nor is refused as recorded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
import traceback
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import trnqc.sim
from scripts import ROOT
from scripts.conformance import examples, library, library_direct
from scripts.conformance.cases import Case, judge
from scripts.measuring import write_json
from trnqc.errors import SimulationError

OUTPUT = ROOT / "profiles" / "counted" / "sim_conformance.json"
SOURCES = ("sdk", "library", "samples", "nkipy")
COLOURS = {"pass": "green", "refused": "cyan", "differs": "red", "error": "red", "time": "yellow"}


@dataclass(frozen=True)
class Outcome:
    """Result of one case. error: relative to the largest expected value; seconds: wall time, reference included."""

    source: str
    kernel: str
    shapes: str
    target: str
    outcome: str
    expected: bool
    error: float | None
    seconds: float
    why: str


def run_case(case: Case, root: Path) -> tuple[str, float | None, str]:
    """(outcome, error, why) of one case in this process."""
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = case.target
    np.random.seed(0)
    trnqc.sim.install()
    try:
        with redirect_stdout(open(os.devnull, "w")):
            done = case.run(root)
    except SimulationError as error:
        return "refused", None, f"{error} ({place(error, root)})"
    except BaseException as error:
        on_record = bool(case.refused) and case.refused in str(error)
        return "refused" if on_record else "error", None, f"{type(error).__name__}: {error} ({place(error, root)})"
    if isinstance(done, library.Manager) and not done.results:
        return "pass", None, "no outputs to compare: the test's own assertions hold"
    if isinstance(done, library.Manager):
        verdict = judge(done.results, done.expected, done.rtol, done.atol)
    else:
        verdict = judge(*done, case.rtol, case.atol)
    return "pass" if verdict.passed else "differs", verdict.error, verdict.why


def place(error: BaseException, root: Path) -> str:
    """Where in the checkout (else anywhere) the error arose."""
    frames = traceback.extract_tb(error.__traceback__)
    inside = [f for f in frames if f.filename.startswith(str(root))] or frames
    return f"{Path(inside[-1].filename).name}:{inside[-1].lineno}"


def isolated(case: Case, root: Path, limit: float) -> Outcome:
    """Run the case in a child process and end that process at the time limit."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        send.send(run_case(case, root))

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    start = time.perf_counter()
    process.start()
    send.close()
    try:
        outcome, error, why = receive.recv() if receive.poll(limit) else ("time", None, f"over {limit:.0f} s")
    except EOFError:
        outcome, error, why = "error", None, "the process died"
    seconds = time.perf_counter() - start
    process.kill()
    process.join()
    expected = outcome == "pass" if not case.refused else outcome == "refused" and case.refused in why
    why = f"on record: {case.refused}. {why}" if case.refused and expected else why
    error = error if error is None or np.isfinite(error) else None
    return Outcome(case.source, case.kernel, case.shapes, case.target, outcome, expected, error, round(seconds, 2), why)


def table(outcomes: list[Outcome]) -> Table:
    out = Table("source", "kernel", "shapes", "target", "outcome", "error", "s", "why", title="Published kernels")
    for o in outcomes:
        mark = f"[{COLOURS[o.outcome]}]{o.outcome}{'' if o.expected else ' !'}[/]"
        error = "" if o.error is None else f"{o.error:.1e}"
        out.add_row(o.source, o.kernel, o.shapes, o.target, mark, error, f"{o.seconds:.1f}", o.why[:160])
    return out


def save(outcomes: list[Outcome], path: Path) -> None:
    """Write all outcomes with the command and the versions."""
    record = {
        "command": " ".join(["python", "-m", "scripts.conformance", *option_names(sys.argv[1:])]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "outcomes": dict(Counter(o.outcome for o in outcomes)),
        "cases": [asdict(o) for o in outcomes],
    }
    write_json(record, path)


def option_names(arguments: list[str]) -> list[str]:
    """The command's options with local paths left out."""
    return [a if a.startswith("--") or not Path(a).exists() else "DIR" for a in arguments]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for source in SOURCES:
        parser.add_argument(f"--{source}", type=Path, metavar="DIR")
    parser.add_argument("--only", default="", help="run only the cases whose key contains this text")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per case (default 120)")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    roots = {s: getattr(options, s).resolve() for s in SOURCES if getattr(options, s)}
    if not roots:
        parser.error("give at least one checkout: --sdk, --library, --samples or --nkipy")
    import torch  # noqa: F401  imported once here so that no case pays for it

    console = Console(width=200)
    outcomes = []
    for case in [*examples.CASES, *library_direct.CASES, *library.cases()]:
        if case.source in roots and options.only in case.key:
            outcomes.append(isolated(case, roots[case.source], options.limit))
            line = f"{outcomes[-1].outcome:8} {outcomes[-1].seconds:6.1f} s  {case.key}"
            console.print(line, highlight=False, markup=False)
    console.print(table(outcomes))
    console.print(dict(Counter(o.outcome for o in outcomes)))
    save(outcomes, options.output)
    return 0 if all(o.expected for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
