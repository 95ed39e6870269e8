"""Measure candidates, each in its own process, so that a crash, a hang or a leak does not affect the others."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from autotune.instruments import Job, resolve
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import P, ceil


@dataclass(frozen=True)
class Trial:
    """The outcome of one candidate.

    Attributes
    ----------
    status : str
        "ok", "wrong", "crashed" or "timeout".
    time_ns : float, optional
        The time in nanoseconds if the status is "ok".
    error : float, optional
        The deviation from the reference if the result was compared.
    detail : str
        An explanation in words.
    seconds : float
        The time that the measurement took, in seconds.
    """

    status: str
    time_ns: float | None = None
    error: float | None = None
    detail: str = ""
    seconds: float = 0.0


def reduced(job: Job, fraction: float) -> Job:
    """The candidate with a fraction of its work: a shorter contraction index in the same number of chunks."""
    if fraction == 1.0:
        return job
    dim = kernels()[job.kernel].contracted
    nk = ceil(job.shape[dim], P)
    chunks = ceil(nk, job.constants.get("kchunk", nk))
    short = max(chunks, math.ceil(nk * fraction))
    kchunk = {"kchunk": ceil(short, chunks)} if "kchunk" in job.constants else {}
    return dataclasses.replace(job, shape=job.shape | {dim: short * P}, constants=job.constants | kchunk)


def measure(job: Job, timeout: float) -> Trial:
    """Run a candidate in its own process, for at most `timeout` seconds."""
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="trnqc-tune-") as scratch:
        trial = _run(job, timeout, Path(scratch))
    return dataclasses.replace(trial, seconds=time.monotonic() - start)


def measure_here(job: Job, timeout: float) -> Trial:
    """Run a candidate in this process, without protection and time limit. This is faster for modelled times."""
    start = time.monotonic()
    try:
        reading = resolve(job.instrument)(job)
    except Exception as error:
        return Trial("crashed", detail=f"{type(error).__name__}: {error}", seconds=time.monotonic() - start)
    status = "ok" if reading.time_ns is not None else "wrong"
    return Trial(status, reading.time_ns, reading.error, reading.detail, time.monotonic() - start)


def _run(job: Job, timeout: float, scratch: Path) -> Trial:
    answer, noise = scratch / "answer.json", scratch / "stderr"
    with noise.open("wb") as stderr:
        child = subprocess.Popen(
            [sys.executable, "-m", "autotune.candidate", str(answer)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=_environment(job.target),
            start_new_session=True,
        )
        try:
            _send(child, job)
            code = child.wait(timeout)
        except subprocess.TimeoutExpired:
            return Trial("timeout", detail=f"not finished after {timeout:.0f} s")
        finally:
            _end(child)
    try:
        return Trial(**json.loads(answer.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        last = noise.read_text(encoding="utf-8", errors="replace").strip().splitlines()[-1:]
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return Trial("crashed", detail=": ".join([f"its process ended with {how}", *last]))


def _environment(target: str) -> dict[str, str]:
    """The environment of the child, with the same modules, and with the target for the compiler and simulator."""
    path = os.pathsep.join(entry or os.getcwd() for entry in sys.path)
    return os.environ | {"PYTHONPATH": path, "NEURON_PLATFORM_TARGET_OVERRIDE": target}


def _send(child: subprocess.Popen[bytes], job: Job) -> None:
    """Write the job and leave the pipe open. The child notices the end of this process by the end of the pipe."""
    assert child.stdin is not None
    with contextlib.suppress(BrokenPipeError):
        child.stdin.write(json.dumps(dataclasses.asdict(job)).encode() + b"\n")
        child.stdin.flush()


def _end(child: subprocess.Popen[bytes]) -> None:
    """Kill the process of the candidate and the processes that it has started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    if child.stdin is not None:
        with contextlib.suppress(BrokenPipeError):
            child.stdin.close()
    child.wait()
