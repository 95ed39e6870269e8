"""Whole tuning runs: determinism, failures of candidates, a kill, and the run that resumes after it."""

import dataclasses
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from autotune.measure import Trial, measure, measure_here
from autotune.runner import Request, TuningFailed, tune
from tests.autotune.fakes import LOG, cost
from trnqc.tuning import records
from trnqc.tuning.choice import choose

ROOT = Path(__file__).resolve().parents[2]
SHAPE = {"nocc": 10, "nvir": 100, "naux": 100}  # six points: the groups


def request(instrument="steady", **changed):
    values = {"kernel": "mp2_energy", "shape": SHAPE, "precision": "fp32", "target": "trn1", "timeout": 60.0}
    name = instrument if instrument == "modelled" else f"tests.autotune.fakes:{instrument}"
    return Request(**(values | {"instrument": name} | changed))


def go(tmp_path, wanted, measure=measure_here, **options):
    """A run that measures in this process; `measure` starts one for each candidate."""
    places = {"journal_directory": tmp_path / "journals", "record_directory": tmp_path / "records"}
    return tune(wanted, measure=measure, **places, **options)


def told(outcome):
    return [(m.constants, m.fraction, m.trial.status, m.trial.time_ns) for m in outcome.measurements]


def test_the_best_point_is_recorded_and_found_again(tmp_path):
    outcome = go(tmp_path, request())
    assert outcome.search == "exhaustive"
    assert outcome.record.time_ns == min(map(cost, outcome.space.constants))
    assert outcome.record.default_ns == cost(outcome.measurements[0].constants)
    assert [record for _, record in records.read_all(tmp_path / "records")] == [outcome.record]


def test_a_record_is_what_the_next_launch_takes(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    outcome = go(tmp_path, request())
    records.store(dataclasses.replace(outcome.record, measurement="modelled"))
    choice = choose("mp2_energy", SHAPE, "fp32", "trn1")
    assert choice.constants == outcome.record.constants != outcome.measurements[0].constants
    assert "user record" in choice.note


@pytest.mark.parametrize("search", ["halving", "model"])
def test_the_same_request_gives_the_same_run(tmp_path, search):
    runs = [go(tmp_path / str(n), request(search=search, budget=4, seed=2)) for n in range(2)]
    assert told(runs[0]) == told(runs[1])
    assert runs[0].record == runs[1].record


def test_a_finished_run_costs_nothing_again(tmp_path, monkeypatch):
    monkeypatch.setenv(LOG, str(tmp_path / "log"))
    first = go(tmp_path, request())
    count = len((tmp_path / "log").read_text().split())
    second = go(tmp_path, request())
    assert len((tmp_path / "log").read_text().split()) == count
    assert told(first) == told(second) and all(m.replayed for m in second.measurements)
    go(tmp_path, request(), fresh=True)
    assert len((tmp_path / "log").read_text().split()) == 2 * count


def test_misfortunes_are_recorded_and_the_search_goes_on(tmp_path):
    outcome = go(tmp_path, request("troubled", timeout=5.0), measure)
    by_group = {m.constants["group"]: m.trial.status for m in outcome.measurements}
    assert by_group == {1: "crashed", 2: "ok", 3: "crashed", 4: "timeout", 5: "ok", 6: "wrong", 8: "crashed"}
    assert outcome.record.constants["group"] == 2
    assert outcome.record.search["wrong"] >= 1 and outcome.record.search["timeout"] >= 1


def test_nothing_that_runs_is_an_error(tmp_path):
    with pytest.raises(
        TuningFailed, match="no candidate ran with a correct result; the first one crashed: RuntimeError"
    ):
        go(tmp_path, request("broken", budget=3, search="halving"))
    assert not (tmp_path / "records").exists()


def test_time_is_a_budget_too(tmp_path):
    outcome = go(tmp_path, request("slow", seconds=0.6), measure)
    seconds = [m.trial.seconds for m in outcome.measurements]
    assert sum(seconds[:-1]) < 0.6 <= sum(seconds) and len(seconds) < len(outcome.space)


def test_progress_is_told(tmp_path):
    seen = []
    go(tmp_path, request(), progress=lambda measurement, done, expected: seen.append((done, expected)))
    assert [done for done, _ in seen] == list(range(1, len(seen) + 1))
    assert len({total for _, total in seen}) == 1 and 0 <= seen[-1][1] - seen[-1][0] <= 1


PROGRAM = """
import sys
from pathlib import Path
from autotune.measure import Trial, measure, measure_here
from autotune.runner import tune
from tests.autotune.test_runner import request
tune(request("slow"), journal_directory=Path(sys.argv[1]), record_directory=Path(sys.argv[2]))
"""


def wait_for(condition, seconds=60.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited in vain"
        time.sleep(0.02)


def alive(pid):
    """Running, and not a zombie that nobody has waited for."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_a_killed_run_goes_on_where_it_stopped(tmp_path, monkeypatch):
    log = tmp_path / "log"
    environment = os.environ | {LOG: str(log), "PYTHONPATH": str(ROOT)}
    (tmp_path / "killed").mkdir()
    places = [str(tmp_path / "killed" / "journals"), str(tmp_path / "killed" / "records")]
    run = subprocess.Popen([sys.executable, "-c", PROGRAM, *places], env=environment, cwd=ROOT)
    wait_for(lambda: log.exists() and len(log.read_text().split()) >= 3)
    os.kill(run.pid, signal.SIGKILL)
    assert run.wait() == -signal.SIGKILL
    wait_for(lambda: not any(alive(pid) for pid in log.read_text().split()))
    before = len(log.read_text().split())

    monkeypatch.setenv(LOG, str(log))
    resumed = go(tmp_path / "killed", request("slow"), measure)
    after = len(log.read_text().split()) - before
    replayed = sum(m.replayed for m in resumed.measurements)
    assert replayed >= 2
    assert after == len(resumed.measurements) - replayed
    assert (
        len(resumed.measurements) <= before + after <= len(resumed.measurements) + 1
    )  # the one that was killed runs again

    whole = go(tmp_path / "whole", request("slow"))
    assert told(resumed) == told(whole) and resumed.record == whole.record


def test_only_what_would_be_recorded_is_gated_where_the_gate_is_dear(tmp_path, monkeypatch):
    """The fastest is wrong, the next one is right: the gate is asked twice."""
    asked = []

    def gated(job, timeout):
        asked.append((job.constants["group"], job.gate))
        wrong = job.gate and job.constants["group"] == 3
        return Trial("wrong", detail="by a lot") if wrong else Trial("ok", cost(job.constants))

    outcome = go(tmp_path, request("modelled"), gated)
    assert [group for group, gate in asked if gate] == [3, 2]
    assert outcome.record.constants["group"] == 2 and outcome.record.search["wrong"] == 1
