"""A device profile of a compiled kernel, captured and converted on a machine with a Neuron device.

    python -m scripts.device.capture_profile graph.neff --out profiles/measured/trn2/gemm [--inputs a_t a_t.npy b b.npy]
    python -m scripts.device.capture_profile --out DIR -- python my_kernel.py    compile with debug information first

Works with neuron-explorer and the older neuron-profile, whose options are the same; --tool chooses, else the newer one
that is installed is taken. Left in --out: profile_exec_N.ntff, summary.json, profile.json, tables/ (neuron-explorer
only), report.html and capture.json, which holds every command, the tool's version and the environment's settings. Each
capture needs a directory of its own. The first run of a program warms up, so the second is captured unless --nth says
otherwise.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from trnqc.errors import BackendUnavailable, InputError, TrnqcError
from trnqc.host.files import write_aside
from trnqc.profiling import read
from trnqc.profiling.page import page

TOOLS = ("neuron-explorer", "neuron-profile")
INSTALLED = "/opt/aws/neuron/bin"
# Kept programs, source lines and names of operations; they change what is compiled, so caches are private to the run.
DEBUG = {"NEURON_FRAMEWORK_DEBUG": "1", "XLA_IR_DEBUG": "1", "XLA_HLO_DEBUG": "1", "NKI_DEBUG_INFO": "True"}


def find_tool(wanted: str | None) -> Path:
    """The profiler's executable, on PATH or where its package puts it."""
    for name in (wanted,) if wanted else TOOLS:
        path = shutil.which(name) or shutil.which(name, path=INSTALLED)
        if path:
            return Path(path)
    raise BackendUnavailable(
        f"expected {wanted or ' or '.join(TOOLS)} on PATH or in {INSTALLED}, found neither; "
        "install the package aws-neuronx-tools from the vendor's repository"
    )


class Recorder:
    """Runs commands, keeps each with its time for capture.json, and fails with what the tool said."""

    def __init__(self) -> None:
        self.steps: list[dict[str, Any]] = []

    def run(self, command: list[str], env: dict[str, str] | None = None, quiet: bool = True) -> str:
        print("+ " + " ".join(command), file=sys.stderr)
        start = time.perf_counter()
        try:
            done = subprocess.run(
                command, env=os.environ | (env or {}), text=True, capture_output=quiet, check=False, errors="replace"
            )
        except OSError as error:
            raise InputError(f"{command[0]}: cannot be run: {error.strerror}") from error
        seconds = round(time.perf_counter() - start, 3)
        self.steps.append({"command": command, "env": env or {}, "seconds": seconds, "status": done.returncode})
        if done.returncode:
            said = ((done.stderr or "") + (done.stdout or "")).strip()[-2000:]
            raise TrnqcError(
                f"{' '.join(command[:2])} ended with status {done.returncode}: {said or 'it said nothing'}"
            )
        return done.stdout or ""


def _programs() -> set[Path]:
    return {path.resolve() for path in Path.cwd().rglob("*.neff")}


def compile_program(command: list[str], out: Path, recorder: Recorder) -> Path:
    """Run the user's command with debug information; the one program that it leaves."""
    work = out / "compiled"
    work.mkdir()
    caches = {"NEURON_COMPILE_CACHE_URL": work / "xla-cache", "TORCH_NEURONX_NEFF_CACHE_DIR": work / "native-cache"}
    before = _programs()
    recorder.run(command, DEBUG | {name: str(path.resolve()) for name, path in caches.items()}, quiet=False)
    # Frameworks leave a copy of the program beside the cache's: equal bytes are one program.
    after = _programs() | {path.resolve() for path in work.rglob("*.neff")}
    programs = sorted({path.read_bytes(): path for path in sorted(after - before)}.values())
    if len(programs) != 1:
        names = ", ".join(map(str, programs)) or "none"
        raise InputError(
            f"expected the command to compile one program, found {names}; name the .neff to profile instead"
        )
    return programs[0]


def capture(tool: Path, neff: Path, out: Path, args: argparse.Namespace, recorder: Recorder) -> Path:
    """Run the program on the device with tracing on; the trace."""
    command = [str(tool), "capture", "-n", str(neff), "-s", str(out / "profile.ntff"), f"--profile-nth-exec={args.nth}"]
    if not args.no_dge:
        command.append("--enable-dge-notifs")
    recorder.run(command + list(args.inputs or ()))
    traces = sorted(out.glob("profile*.ntff"))
    if not traces:
        raise TrnqcError(f"{out}: expected {tool.name} to leave profile_exec_{args.nth}.ntff, found no .ntff file")
    wanted = out / f"profile_exec_{args.nth}.ntff"
    return wanted if wanted in traces else traces[-1]


def convert(tool: Path, neff: Path, trace: Path, out: Path, recorder: Recorder) -> Path:
    """The trace in forms that are read without the vendor's tools; the richest of them."""
    view = [str(tool), "view", "-n", str(neff), "-s", str(trace), "--output-format"]
    write_aside(out / "summary.json", recorder.run([*view, "summary-json"]))
    recorder.run([*view, "json", "--output-file", str(out / "profile.json")])
    if tool.name == TOOLS[0]:
        recorder.run([*view, "parquet", "--output-file", str(out / "tables")])
    return out / "profile.json"


def arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("neff", nargs="?", type=Path, help="a compiled program")
    parser.add_argument("--out", type=Path, required=True, help="a new directory")
    parser.add_argument("--tool", choices=TOOLS)
    parser.add_argument("--nth", type=int, default=2, help="which execution to trace (default 2)")
    parser.add_argument(
        "--no-dge", action="store_true", help="leave out dynamic DMAs: with many of them traces overflow"
    )
    parser.add_argument("--inputs", nargs="+", metavar=("NAME FILE", "NAME FILE"), help="inputs; zeros otherwise")
    parser.add_argument("--target", help="trn1, trn2 or trn3, for the report")
    words = list(sys.argv[1:] if argv is None else argv)
    cut = words.index("--") if "--" in words else len(words)
    args = parser.parse_args(words[:cut])
    args.command = words[cut + 1 :]
    if bool(args.neff) == bool(args.command):
        parser.error("give a .neff file, or a command after --")
    if args.inputs and len(args.inputs) % 2:
        parser.error("--inputs: expected pairs of a name and a file")
    return args


def main(argv: list[str] | None = None) -> int:
    args = arguments(argv)
    try:
        tool, recorder = find_tool(args.tool), Recorder()
        if args.neff and not args.neff.is_file():
            raise InputError(f"{args.neff}: expected a compiled program, found no such file")
        if args.out.exists():
            raise InputError(f"{args.out}: expected a new directory, found one that exists")
        args.out.mkdir(parents=True)
        version = recorder.run([str(tool), "--version"]).strip()
        neff = args.neff or compile_program(args.command, args.out, recorder)
        trace = capture(tool, neff, args.out, args, recorder)
        profile = convert(tool, neff, trace, args.out, recorder)
        about = {"tool": tool.name, "version": version, "machine": platform.node(), "neff": str(neff)}
        neuron = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NEURON_")}
        write_aside(args.out / "capture.json", json.dumps(about | {"env": neuron, "steps": recorder.steps}, indent=1))
        write_aside(args.out / "report.html", page(read(profile, args.target)))
    except TrnqcError as error:
        print(f"capture_profile: error: {error}", file=sys.stderr)
        return 2
    print(f"captured in {args.out}: read it with `trnqc profile {profile}`")
    return 0


if __name__ == "__main__":
    sys.exit(main())
