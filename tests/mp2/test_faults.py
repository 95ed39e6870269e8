"""Real jobs after kill -9, on a full disk and under a tight memory limit. They take minutes."""

from __future__ import annotations

import contextlib
import json
import os
import random
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from trnqc import MP2Result

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
KILLS = 50

pytestmark = [pytest.mark.slow, pytest.mark.faults]


def command(directory: Path, *more: str) -> list[str]:
    job = ("mp2", "water2", "--basis", "6-31g", "--threads", "1", "--backend", "cpu", "--quiet")
    places = ("--checkpoint", str(directory / "kept"), "--json", str(directory / "result.json"))
    return [sys.executable, "-m", "trnqc", *job, *places, *more]


def energies(directory: Path):
    result = MP2Result.load(directory / "result.json")
    return result.e_corr_os, result.e_corr_ss, result.pairs


def started(directory: Path) -> subprocess.Popen:
    """A job that has begun to work: its imports are behind it."""
    known = directory / "kept" / "lock"
    before = known.read_text() if known.exists() else ""
    job = subprocess.Popen(command(directory), env=ENVIRONMENT, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    while job.poll() is None and (not known.exists() or known.read_text() in ("", before)):
        time.sleep(0.01)
    return job


def with_scf_done(whole: Path, directory: Path) -> None:
    """A checkpoint with nothing in it but the orbitals of another: those of an SCF run anew may differ in a digit."""
    (directory / "kept").mkdir(parents=True)
    for name in ("job.json", "orbitals.chk"):
        shutil.copy(whole / "kept" / name, directory / "kept")
    first = (whole / "kept" / "records.jsonl").read_bytes().split(b"\n")[0]
    (directory / "kept" / "records.jsonl").write_bytes(first + b"\n")


@pytest.fixture
def whole(tmp_path):
    """Where an undisturbed job has left its result and checkpoint."""
    (tmp_path / "whole").mkdir()
    subprocess.run(command(tmp_path / "whole"), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    return tmp_path / "whole"


# Reads arguments of the command line, a line a job; each job is a process of its own, imports behind it.
SERVER = """
import os, shlex, sys
from trnqc.mp2 import dfmp2
from trnqc.mp2 import run
from trnqc.cli import main
for line in sys.stdin:
    child = os.fork()
    if child == 0:
        os._exit(main(shlex.split(line)))
    print("pid", child, flush=True)
    print("status", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


class Jobs:
    """Jobs of a process that forks them."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def run(self, directory: Path, seconds: float | None = None) -> int:
        """Exit status of a job that is killed after so many seconds."""
        self.server.stdin.write(shlex.join(command(directory)[3:]) + "\n")
        self.server.stdin.flush()
        child = self.number("pid")
        if seconds is not None:
            end = time.monotonic() + seconds
            while time.monotonic() < end and Path(f"/proc/{child}").exists():
                time.sleep(0.002)
            with contextlib.suppress(ProcessLookupError):  # it was faster
                os.kill(child, signal.SIGKILL)
        return self.number("status")

    def number(self, word: str) -> int:
        """What the server says next under this word; a job may print, and be killed while it does."""
        while word not in (line := self.server.stdout.readline()):
            assert line, "the server has ended"
        return int(line.split()[-1])


@pytest.fixture
def jobs():
    jobs = Jobs()
    yield jobs
    jobs.server.stdin.close()
    jobs.server.wait()


def test_fifty_kills_at_random_moments_lose_nothing(whole, jobs, tmp_path):
    with_scf_done(whole, tmp_path / "timed")
    start = time.monotonic()
    assert jobs.run(tmp_path / "timed") == 0
    length = time.monotonic() - start
    least = length / 4  # of a job that has most of its work behind it
    kills, finished, moments = 0, 0, random.Random(8)
    directory = tmp_path / "killed"
    with_scf_done(whole, directory)
    records: list[int] = []
    while kills < KILLS:
        status = jobs.run(directory, moments.uniform(0, length))
        assert status in (0, -9)
        records.append((directory / "kept" / "records.jsonl").read_bytes().count(b"\n"))
        kills += status == -9
        if status == 0:
            assert energies(directory) == energies(whole)
            finished += 1
            length = max(0.9 * length, least)
        if status == 0 or len(records) % 5 == 0:
            assert jobs.run(directory) == 0
            assert energies(directory) == energies(whole)
            shutil.rmtree(directory)
            with_scf_done(whole, directory)
    assert jobs.run(directory) == 0
    assert energies(directory) == energies(whole)
    print(f"\n{length:.2f} s a job, {kills} kills, {finished} jobs were faster; records after each: {records}")
    assert len(set(records)) > 3, "the kills did not come at different moments"


def test_a_kill_in_the_scf_is_no_harm(tmp_path):
    job = started(tmp_path)
    job.kill()
    assert job.wait() == -9
    done = subprocess.run(command(tmp_path), env=ENVIRONMENT, check=False, capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_two_processes_on_one_checkpoint(whole, tmp_path):
    first = started(tmp_path)
    first.send_signal(signal.SIGSTOP)
    second = subprocess.run(command(tmp_path), env=ENVIRONMENT, check=False, capture_output=True, text=True)
    first.send_signal(signal.SIGCONT)
    assert second.returncode == 2
    assert f"another process (pid {first.pid}) writes to {tmp_path / 'kept'}" in second.stderr
    assert first.wait() == 0
    assert sum(energies(tmp_path)[:2]) == pytest.approx(sum(energies(whole)[:2]), abs=1e-9)


def test_a_full_file_system(tmp_path):
    """A tmpfs of 100 kB, in a name space of its own, that later grows."""
    if subprocess.run(["unshare", "-rm", "true"], check=False, capture_output=True).returncode:
        pytest.skip("no name spaces for mounting here")
    place = tmp_path / "small"
    place.mkdir()
    job = " ".join(command(place))
    script = (
        f"mount -t tmpfs -o size=100k tmpfs {place} && {job}; echo status $?; ls {place}/kept; "
        f"mount -o remount,size=10m {place} && {job}; echo status $?"
    )
    done = subprocess.run(
        ["unshare", "-rm", "sh", "-c", script], env=ENVIRONMENT, check=False, capture_output=True, text=True
    )
    assert "status 2" in done.stdout and done.stdout.endswith("status 0\n"), done.stdout + done.stderr
    assert "No space left on device; make room or name another place, and start again" in done.stderr
    assert ".new" not in done.stdout
    assert len(done.stderr.splitlines()) == 1


def test_a_limit_on_the_size_of_files(whole, tmp_path):
    with_scf_done(whole, tmp_path / "limited")
    line = f"ulimit -f 16; exec {' '.join(command(tmp_path / 'limited'))}"
    done = subprocess.run(["bash", "-c", line], env=ENVIRONMENT, check=False, capture_output=True, text=True)
    assert done.returncode == 2
    assert "File too large; make room" in done.stderr
    subprocess.run(command(tmp_path / "limited"), env=ENVIRONMENT, check=True, stdout=subprocess.DEVNULL)
    assert energies(tmp_path / "limited") == energies(whole)


def test_peak_memory_keeps_to_the_cap_and_what_a_process_takes_anyway(tmp_path):
    """docs/jobs.md: the cap and 300 MB. B of (H2O)10 has 51 MB and goes to disk."""
    line = [sys.executable, "-m", "scripts.bench_jobs", "water10", "--max-memory", "60M"]
    out = tmp_path / "jobs.json"
    subprocess.run([*line, "--out", str(out)], cwd=ROOT, env=ENVIRONMENT, check=True, capture_output=True)
    row = json.loads(out.read_text())["cases"]["water10/cc-pvdz, 60M"]
    assert "on disk" in row["factors"]
    assert row["above_cap_bytes"] < 300e6, row["stages"]
