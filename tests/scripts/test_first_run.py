"""The first run on a GPU with steps that pass, fail, crash, hang or lack something."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from scripts import ROOT
from scripts.device.first_run import __main__ as first_run
from scripts.device.first_run import inventory, running, stored, timings
from scripts.device.first_run.inventory import PACKAGES, STORED, TOOLS, TORCH_CUDA, lacking
from scripts.device.first_run.page import page
from scripts.device.first_run.table import CHECK, STEPS, TIMING, Step
from trnqc.errors import TrnqcError
from trnqc.jit.simulated_device import SimulatedDevice

THERE = {
    "python": "3",
    "system": "",
    "driver": [],
    "gpus": ["a GPU"],
    "reason": "",
    "packages": dict.fromkeys(PACKAGES, "1.0"),
    "tools": dict.fromkeys(TOOLS, "1.0"),
}


def step(name: str, kind: str = CHECK, needs: tuple[str, ...] = ("gpu",), seconds: float = 1, **more) -> Step:
    return Step(name, kind, needs, seconds, lambda *_: {}, **more)


class Steps:
    """Steps whose children are small programs of Python; `called` names those that were begun."""

    def __init__(self, out: Path, programs: dict[str, str]) -> None:
        self.out, self.programs, self.called = out, programs, []

    def command(self, step: Step) -> list[str]:
        self.called.append(step.name)
        program = self.programs.get(step.name, "")
        facts = {"step": step.name, "kind": step.kind, "status": "passed", "message": "", "errors": {"a case": 1e-9}}
        file = self.out / "records" / f"{step.file}.json"
        write = f"import pathlib; p = pathlib.Path({str(file)!r}); p.parent.mkdir(exist_ok=True)\n"
        return [sys.executable, "-S", "-c", program or write + f"p.write_text({json.dumps(facts)!r})"]

    def run(self, *steps: Step, budget: float = 60, there: dict = THERE, again: bool = False) -> dict[str, dict]:
        more = {"there": there, "command": self.command}
        self.status = first_run.run_all(steps, self.out, budget, False, again, **more)
        records = json.loads((self.out / "summary.json").read_text())["steps"]
        return {record["step"]: record for record in records}


def test_a_crash_ends_one_step_only(tmp_path, capsys):
    steps = Steps(tmp_path, {"bad": "import os; print('the driver fell over', flush=True); os.abort()"})
    records = steps.run(step("bad"), step("good"), step("slow", TIMING))
    assert [records[name]["status"] for name in ("bad", "good", "slow")] == ["failed", "passed", "passed"]
    assert "SIGABRT: the driver fell over" in records["bad"]["message"]
    assert steps.status == 1
    text = (tmp_path / "index.html").read_text()
    assert "the driver fell over" in text and "1.0e-09 (a case)" in text
    assert "src=" not in text and "href=" not in text
    assert "1 failed, 2 passed" in capsys.readouterr().out


def test_a_benchmark_that_fails_is_no_wrong_result(tmp_path):
    steps = Steps(tmp_path, {"slow": "raise SystemExit(3)"})
    records = steps.run(step("good"), step("slow", TIMING))
    assert (records["slow"]["status"], steps.status) == ("failed", 0)
    assert "status 3" in records["slow"]["message"]


def test_a_step_that_runs_over_is_ended_and_keeps_its_rows(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LEAST", 0.5)
    row = {"preset": "tiny", "precision": "fp32", "gpu": "a GPU", "median_seconds": 0.25}
    figures = tmp_path / "figures" / "hangs.json"
    figures.parent.mkdir()
    figures.write_text(json.dumps({"rows": [row]}))
    steps = Steps(tmp_path, {"hangs": "import time; print('at row 2', flush=True); time.sleep(60)"})
    records = steps.run(step("hangs", TIMING, seconds=0.1), step("good"))
    assert records["hangs"]["status"] == "ended" and "ended after 0 s: at row 2" in records["hangs"]["message"]
    assert records["hangs"]["figures"] == ["tiny fp32 on a GPU: 0.2500 s"]
    assert records["hangs"]["seconds"] < 10 and records["good"]["status"] == "passed"
    steps.called.clear()
    steps.run(step("hangs", TIMING, seconds=0.1), step("good"))
    assert steps.called == []


def test_a_check_that_does_not_end_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(running, "LEAST", 0.3)
    steps = Steps(tmp_path, {"hangs": "import time; time.sleep(60)"})
    steps.run(step("hangs", seconds=0.1))
    assert steps.status == 1


def test_the_budget_ends_in_the_middle_and_a_second_call_goes_on(tmp_path):
    steps = Steps(tmp_path, {})
    wanted = (step("first"), step("long", seconds=100), step("short", seconds=2))
    records = steps.run(*wanted, budget=20)
    assert steps.called == ["first", "short"] and steps.status == 0
    assert records["long"]["status"] == "not begun" and "100 s are needed" in records["long"]["message"]
    steps.called.clear()
    records = steps.run(*wanted, budget=200)
    assert steps.called == ["long"] and records["first"]["kept"]
    steps.called.clear()
    steps.run(*wanted, budget=200, again=True)
    assert steps.called == ["first", "long", "short"]


def test_what_the_budget_cut_short_is_run_again(tmp_path):
    steps = Steps(tmp_path, {"hangs": "import time; time.sleep(60)"})
    assert steps.run(step("hangs", seconds=0.1), budget=running.RESERVE + 0.5)["hangs"]["status"] == "ended"
    steps.programs.clear()
    assert steps.run(step("hangs", seconds=0.1))["hangs"]["status"] == "passed"


def test_errors_of_the_sanitizer_fail_a_step_that_passed(tmp_path):
    passed = Steps(tmp_path, {}).command(step("strict"))[-1]
    steps = Steps(tmp_path, {"strict": f"{passed}\nprint('Invalid read'); raise SystemExit(97)"})
    record = steps.run(step("strict", sanitized=True))["strict"]
    assert record["status"] == "failed" and "compute-sanitizer found errors: Invalid read" in record["message"]
    command = running.child_command(step("strict", sanitized=True), tmp_path, False)
    assert command[:3] == ["compute-sanitizer", "--tool", "memcheck"] and command[-3:-1] == ["strict", "--out"]


def test_what_is_missing_is_named_and_not_recorded(tmp_path, capsys):
    bare = THERE | {"gpus": [], "reason": "no driver", "packages": THERE["packages"] | {"pyscf": None, "cupy": None}}
    steps = Steps(tmp_path, {})
    records = steps.run(step("eri", needs=("gpu", "pyscf")), step("jit", needs=(), beside=("cupy",)), there=bare)
    assert records["eri"]["message"] == "no GPU: no driver; pyscf is not installed"
    assert records["jit"]["notes"] == ["without cupy, which is not installed"]
    assert steps.called == ["jit"] and not (tmp_path / "records" / "eri.json").exists()
    assert "will be skipped: eri (no GPU" in capsys.readouterr().out
    assert steps.run(step("eri", needs=("gpu", "pyscf")))["eri"]["status"] == "passed"


def test_simulated_devices_need_no_gpu():
    bare = THERE | {"gpus": [], "reason": "no driver", "packages": THERE["packages"] | {"cuda-core": None}}
    assert lacking(("gpu", "cuda-core", "pyscf"), bare, simulate=True) == []
    assert lacking(("compute-sanitizer",), bare, simulate=True) == [
        "simulated devices check accesses to memory themselves"
    ]


@pytest.mark.parametrize(("version", "why"), [("2.9.1+cu130", ""), ("2.13.0+cpu", "2.13.0+cpu"), (None, "None")])
def test_tensors_need_pytorch_with_cuda(version, why):
    there = THERE | {"packages": THERE["packages"] | {"torch": version}}
    assert lacking((TORCH_CUDA,), there, simulate=False) == (
        [f"torch with CUDA is not installed ({why})"] if why else []
    )
    assert lacking((TORCH_CUDA,), there, simulate=True) == []


def test_stored_launches_are_a_need(monkeypatch, tmp_path):
    monkeypatch.setattr(inventory, "STORED_FILE", tmp_path / "stored.npz")
    assert "no stored launches" in lacking((STORED,), THERE, simulate=True)[0]
    (tmp_path / "stored.npz").touch()
    assert lacking((STORED,), THERE, simulate=True) == []


def test_recorded_launches_give_the_results_again(tmp_path):
    """Other numbers in the file, here a density, give other results."""
    file = tmp_path / "stored.npz"
    stored.record((0,), file)
    device = SimulatedDevice(lanes=128, checked=False)
    assert max(stored.replay(device, file).values()) < 1e-13
    assert device.used == 0
    with np.load(file) as there:
        arrays = dict(there)
    assert abs(arrays["vk"]).max() > 0.1
    calls = json.loads(str(arrays["facts"]))["calls"]
    density = next(call["arrays"]["dm"] for call in calls if "dm" in call["arrays"])
    arrays[f"array {density}"] = 2 * arrays[f"array {density}"]
    np.savez(file, **arrays)
    assert stored.replay(device, file)["vk"] > 0.1


def test_the_table_is_sound():
    assert len({s.file for s in STEPS}) == len({s.name for s in STEPS}) == len(STEPS)
    kinds = [s.kind for s in STEPS]
    assert kinds == sorted(kinds, key=(CHECK, TIMING).index)
    for s in STEPS:
        assert {*s.needs, *s.beside} <= {"gpu", STORED, TORCH_CUDA, *PACKAGES, *TOOLS} and s.seconds > 0


def test_a_step_writes_its_record(tmp_path):
    def failing(simulate: bool) -> dict[str, float]:
        raise AssertionError("J is off by 1.0e+00")

    assert running.perform(replace(step("jit"), work=lambda simulate: {"a": 0.0}), tmp_path, True) == 0
    assert running.perform(replace(step("bad"), work=failing), tmp_path, True) == 1
    record = json.loads((tmp_path / "records" / "bad.json").read_text())
    assert (record["status"], record["message"]) == ("failed", "AssertionError: J is off by 1.0e+00")
    assert record["simulated"] and record["date"]


def test_a_benchmark_that_refuses_its_results_is_quoted(tmp_path):
    def benchmark(arguments: list[str]) -> int:
        print("J or K is off by 1.0e-03")
        return 2

    with pytest.raises(TrnqcError, match="J or K is off"):
        timings.measured(benchmark, [], tmp_path / "record.json")


def test_figures_of_all_benchmarks_are_lines():
    tensors = {"case": "mace", "dtype": "float32", "pass": "forward", "seconds": {"ours": 1e-3}}
    tensors |= {"ratios": {"cuequivariance": 1.5}, "absent": {"openequivariance": "ModuleNotFoundError: x"}}
    case = {"case": "water/sto-3g", "jk_s": [0.5], "iteration_s": 0.25, "ratio_jk": 2.0, "gpu4pyscf_absent": ""}
    assert timings.figures({"rows": [tensors], "cases": [case]}) == [
        "mace float32 forward: 1.000 ms; cuequivariance 1.50 times as long; openequivariance absent: "
        "ModuleNotFoundError: x",
        "water/sto-3g: J and K 0.500 s, iteration 0.250 s; 2.00 times gpu4pyscf's J and K",
    ]


def test_messages_are_text_on_the_page():
    record = {"step": "a", "kind": CHECK, "status": "failed", "message": "<script>"}
    head = {"simulated": True, "inventory": THERE, "command": "", "date": "", "seconds": 1.0, "budget": 2.0}
    text = page(head | {"steps": [record]})
    assert "&lt;script&gt;" in text and "<script>" not in text and "no figure counts" in text


def test_the_steps_can_be_listed_without_pyscf_and_torch():
    program = "import sys; sys.modules |= {'pyscf': None, 'torch': None}; import scripts.device.first_run.__main__"
    subprocess.run([sys.executable, "-c", program], cwd=ROOT, check=True)


def test_one_simulated_step_as_a_process(tmp_path):
    run = running.Run(tmp_path, THERE, float("inf"), True, lambda s: running.child_command(s, tmp_path, True))
    record = running.run_step(STEPS[0], run)
    assert record["status"] == "passed" and record["errors"]["stream 0"] < 1e-13
