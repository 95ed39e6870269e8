"""The capture script against replacements of the vendor's tools with their documented options."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.profiling import samples

ROOT = Path(__file__).resolve().parents[2]
TOOL = """#!{python}
import json, pathlib, sys
args = sys.argv[1:]
def after(*names):
    return next(args[args.index(n) + 1] for n in names if n in args)
if args == ["--version"]:
    print("{name} 2.33")
elif args[0] == "capture":
    assert pathlib.Path(after("-n")).is_file()
    nth = next(a.split("=")[1] for a in args if a.startswith("--profile-nth-exec="))
    trace = pathlib.Path(after("-s"))
    trace.with_name(trace.stem + "_exec_" + nth + ".ntff").write_bytes(b"trace")
elif args[0] == "view":
    assert pathlib.Path(after("-s")).name == "profile_exec_2.ntff"
    form = after("--output-format")
    if form == "summary-json":
        print(json.dumps({summary}))
    elif form == "json":
        pathlib.Path(after("--output-file")).write_text(json.dumps({profile}))
    else:
        pathlib.Path(after("--output-file")).mkdir()
else:
    sys.exit("unknown command")
"""


@pytest.fixture
def bench(tmp_path):
    """run(*arguments, tool=...) -> the finished process, with a stand-in of that name alone on PATH."""
    (tmp_path / "graph.neff").write_bytes(b"neff")

    def run(*arguments: str, tool: str = "neuron-explorer", broken: bool = False) -> subprocess.CompletedProcess:
        folder = tmp_path / "bin"
        folder.mkdir(exist_ok=True)
        text = TOOL.replace("{python}", sys.executable).replace("{name}", tool)
        text = text.replace("{summary}", repr(samples.summary_json())).replace("{profile}", repr(samples.vendor_json()))
        (folder / tool).write_text("#!/bin/sh\necho no device >&2; exit 3\n" if broken else text)
        (folder / tool).chmod(0o755)
        env = {**os.environ, "PATH": f"{folder}:/usr/bin:/bin", "PYTHONPATH": str(ROOT)}
        command = [sys.executable, "-m", "scripts.device.capture_profile", *arguments]
        return subprocess.run(command, cwd=tmp_path, env=env, text=True, capture_output=True, check=False)

    return run


@pytest.mark.parametrize("tool", ["neuron-explorer", "neuron-profile"])
def test_captures_converts_and_reports(bench, tool, tmp_path):
    done = bench("graph.neff", "--out", "p/gemm", "--target", "trn2", tool=tool)
    assert done.returncode == 0, done.stderr
    out = tmp_path / "p/gemm"
    about = json.loads((out / "capture.json").read_text())
    assert about["version"] == f"{tool} 2.33"
    capture = next(step["command"] for step in about["steps"] if step["command"][1] == "capture")
    assert capture[2:] == [
        "-n",
        "graph.neff",
        "-s",
        "p/gemm/profile.ntff",
        "--profile-nth-exec=2",
        "--enable-dge-notifs",
    ]
    assert json.loads((out / "summary.json").read_text()) == samples.summary_json()
    assert "Trainium2" in (out / "report.html").read_text()
    assert (out / "tables").exists() == (tool == "neuron-explorer")


def test_compiles_with_debug_information_first(bench, tmp_path):
    program = "import os, pathlib; pathlib.Path(os.environ['NEURON_COMPILE_CACHE_URL']).mkdir(); " + (
        "pathlib.Path(os.environ['NEURON_COMPILE_CACHE_URL'], 'model.neff').write_text(os.environ['NKI_DEBUG_INFO'])"
    )
    done = bench("--out", "p", "--", sys.executable, "-c", program)
    assert done.returncode == 0, done.stderr
    neff = json.loads((tmp_path / "p/capture.json").read_text())["neff"]
    assert (tmp_path / neff).read_text() == "True"


def test_a_command_that_compiles_nothing(bench):
    done = bench("--out", "p", "--", sys.executable, "-c", "pass")
    assert done.returncode == 2
    assert "expected the command to compile one program, found none" in done.stderr


def test_inputs_reach_the_tool(bench, tmp_path):
    assert bench("graph.neff", "--out", "p", "--no-dge", "--inputs", "a", "a.npy", "b", "b.npy").returncode == 0
    steps = json.loads((tmp_path / "p/capture.json").read_text())["steps"]
    assert steps[1]["command"][-5:] == ["--profile-nth-exec=2", "a", "a.npy", "b", "b.npy"]


@pytest.mark.parametrize(
    ("arguments", "broken", "message"),
    [
        (["graph.neff", "--out", "p"], True, "ended with status 3: no device"),
        (["missing.neff", "--out", "p"], False, "missing.neff: expected a compiled program"),
        (["graph.neff", "--out", "."], False, "expected a new directory"),
        (["graph.neff", "--out", "p", "--tool", "neuron-profile"], False, "install the package aws-neuronx-tools"),
        (["--out", "p"], False, "give a .neff file, or a command"),
    ],
)
def test_refusals(bench, arguments, broken, message):
    done = bench(*arguments, broken=broken)
    assert done.returncode == 2
    assert message in done.stderr
