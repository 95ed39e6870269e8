"""Simulated measurements for tests; child processes find them as tests.autotune.fakes:NAME."""

import os
import time

from autotune.instruments import Job, Reading

LOG = "TRNQC_TEST_LOG"  # a file that gets one line (the process's id) for each measurement


def log() -> None:
    if os.environ.get(LOG):
        with open(os.environ[LOG], "a") as file:
            file.write(f"{os.getpid()}\n")


def cost(constants: dict[str, int]) -> float:
    """Least at group 3 of whole factors."""
    return 1000.0 + 100.0 * abs(constants["group"] - 3) + 0.5 * (1000 - constants["block"]) + 20.0 * constants["kchunk"]


def steady(job: Job) -> Reading:
    log()
    return Reading(cost(job.constants), 1e-7, "of a formula")


def slow(job: Job) -> Reading:
    log()
    time.sleep(0.15)
    return Reading(cost(job.constants), 1e-7)


def troubled(job: Job) -> Reading:
    """A different misfortune for each group."""
    group = job.constants["group"]
    if group == 1:
        os.abort()
    if group == 3:
        raise ValueError("too clever by half")
    if group == 4:
        time.sleep(600)
    if group == 6:
        return Reading(None, 0.5, "the result deviates from the reference by 5.0e-01, 1e-04 is allowed")
    if group == 8:
        os._exit(7)
    print("noise on standard output must not be taken for an answer", flush=True)
    return Reading(cost(job.constants), 1e-7)


def broken(job: Job) -> Reading:
    raise RuntimeError("no candidate of this instrument runs")


def sees_target(job: Job) -> Reading:
    """The generation that the child would compile for, as a number."""
    return Reading(float(os.environ["NEURON_PLATFORM_TARGET_OVERRIDE"][-1]), 0.0)
