"""Run other people's published NKI kernels, unmodified, on the simulator.

    python -m scripts.conformance --sdk DIR --library DIR --samples DIR --nkipy DIR --trnblas DIR
                                  [--nki 0.6 0.7] [--only TEXT] [--limit SECONDS]

The directories are local checkouts of aws-neuron/aws-neuron-sdk, nki-library, nki-samples, nkipy and trnsci/trnblas;
sources that are not given are left out. Our own kernels always run. Every case runs once for each version of NKI, in
its own process, with a time limit, through ``nki.simulate``; its results are compared with NumPy or with the checkout's
own reference. Outcomes: pass; refused (a rule of the machine is broken, the message says which); differs; error; time.
Kernels of trnblas run leniently (TRNQC_SIM_RULES=warn), and what the vendor rejects or leaves undefined is listed with
them. The table goes to the terminal, everything to profiles/counted/sim_conformance.json. The exit status is 1 if a
case neither passes nor is refused as recorded.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import platform
import sys
import time
import traceback
import warnings
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import trnqc.sim
from scripts import ROOT
from scripts.conformance import examples, library, library_direct, own, trnblas
from scripts.conformance.cases import Case, judge
from scripts.measuring import write_json
from trnqc.errors import SimulationError
from trnqc.sim.machine.version import VERSIONS

OUTPUT = ROOT / "profiles" / "counted" / "sim_conformance.json"
SOURCES = ("sdk", "library", "samples", "nkipy", "trnblas")
COLOURS = {"pass": "green", "refused": "cyan", "differs": "red", "error": "red", "time": "yellow"}


@dataclass(frozen=True)
class Outcome:
    """Result of one case in one version of NKI.

    error: relative to the largest expected value; seconds: wall time, reference included; findings: what a lenient run
    reported.
    """

    source: str
    kernel: str
    shapes: str
    target: str
    nki: str
    outcome: str
    expected: bool
    error: float | None
    seconds: float
    why: str
    findings: tuple[str, ...] = ()


def run_case(case: Case, root: Path, version: str) -> tuple[str, float | None, str]:
    """(outcome, error, why) of one case in this process."""
    os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"] = case.target
    os.environ["TRNQC_NKI"], os.environ["TRNQC_SIM_RULES"] = version, case.rules
    warnings.simplefilter("ignore", trnqc.sim.RuleWarning)
    np.random.seed(0)
    trnqc.sim.install()
    try:
        with redirect_stdout(open(os.devnull, "w")):
            done = case.run(root)
    except SimulationError as error:
        return "refused", None, f"{error} ({place(error, root)})"
    except BaseException as error:
        refusal = case.refusal(version)
        on_record = bool(refusal) and refusal in str(error)
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


def reports(root: Path) -> tuple[str, ...]:
    """What lenient runs of this process reported."""
    return tuple(f"{f.effect}: {relative(str(f), root)}" for f in trnqc.sim.reported())


def relative(text: str, root: Path) -> str:
    """Return a text whose paths are relative to the checkout, wherever it lies."""
    return text.replace(f"{root}{os.sep}", "")


def isolated(case: Case, root: Path, limit: float, version: str) -> Outcome:
    """Run the case in a child process and end that process at the time limit."""
    receive, send = multiprocessing.get_context("fork").Pipe(duplex=False)

    def child() -> None:
        send.send((*run_case(case, root, version), reports(root)))

    process = multiprocessing.get_context("fork").Process(target=child, daemon=True)
    start = time.perf_counter()
    process.start()
    send.close()
    try:
        silent = ("time", None, f"over {limit:.0f} s", ())
        outcome, error, why, findings = receive.recv() if receive.poll(limit) else silent
    except EOFError:
        outcome, error, why, findings = "error", None, "the process died", ()
    seconds = time.perf_counter() - start
    process.kill()
    process.join()
    refusal, why = case.refusal(version), relative(why, root)
    expected = outcome == "pass" if not refusal else outcome == "refused" and refusal in why
    why = f"on record: {refusal}. {why}" if refusal and expected else why
    error = error if error is None or np.isfinite(error) else None
    about = (case.source, case.kernel, case.shapes, case.target, version)
    return Outcome(*about, outcome, expected, error, round(seconds, 2), why, findings)


def table(outcomes: list[Outcome]) -> Table:
    out = Table(
        "source", "kernel", "shapes", "target", "nki", "outcome", "error", "s", "why", title="Published kernels"
    )
    for o in outcomes:
        mark = f"[{COLOURS[o.outcome]}]{o.outcome}{'' if o.expected else ' !'}[/]"
        error = "" if o.error is None else f"{o.error:.1e}"
        why = o.why[:160] or (f"{len(o.findings)} findings" if o.findings else "")
        out.add_row(o.source, o.kernel, o.shapes, o.target, o.nki, mark, error, f"{o.seconds:.1f}", why)
    return out


def save(outcomes: list[Outcome], path: Path) -> None:
    """Write all outcomes with the command and the versions."""
    versions = sorted({o.nki for o in outcomes})
    record = {
        "command": " ".join(["python", "-m", "scripts.conformance", *option_names(sys.argv[1:])]),
        "python": platform.python_version(),
        "numpy": np.__version__,
        "outcomes": {v: dict(Counter(o.outcome for o in outcomes if o.nki == v)) for v in versions},
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
    parser.add_argument("--nki", nargs="+", choices=VERSIONS, default=VERSIONS, help="versions of NKI (default both)")
    parser.add_argument("--only", default="", help="run only the cases whose key contains this text")
    parser.add_argument("--limit", type=float, default=120.0, help="seconds per case (default 120)")
    parser.add_argument("--output", type=Path, default=OUTPUT)
    options = parser.parse_args()
    roots = {s: getattr(options, s).resolve() for s in SOURCES if getattr(options, s)}
    roots["trnqc"] = ROOT
    import torch  # noqa: F401  imported once here so that no case pays for it

    console = Console(width=200)
    outcomes = []
    for case in [*own.CASES, *trnblas.CASES, *examples.CASES, *library_direct.CASES, *library.cases()]:
        for version in options.nki if case.source in roots and options.only in case.key else ():
            outcomes.append(isolated(case, roots[case.source], options.limit, version))
            line = f"{outcomes[-1].outcome:8} {outcomes[-1].seconds:6.1f} s  NKI {version}  {case.key}"
            console.print(line, highlight=False, markup=False)
    console.print(table(outcomes))
    console.print(dict(Counter(o.outcome for o in outcomes)))
    save(outcomes, options.output)
    return 0 if all(o.expected for o in outcomes) else 1


if __name__ == "__main__":
    sys.exit(main())
