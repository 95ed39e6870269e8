"""A candidate that crashes or hangs ends only its own process and is recorded with the kind of its failure."""

import dataclasses
import re
import time

import numpy as np
import pytest

from autotune.instruments import Job, clock, resolve
from autotune.measure import measure, reduced
from nki_kernels.descriptors import kernels
from trnqc.errors import InputError

SHAPE = {"nocc": 64, "nvir": 448, "naux": 1536}


def job(instrument, group=2, **changed):
    constants = {"block": 448, "kchunk": 12, "group": group}
    values = {"kernel": "mp2_energy", "shape": SHAPE, "precision": "fp32", "target": "trn1", "constants": constants}
    return Job(**(values | {"instrument": f"tests.autotune.fakes:{instrument}"} | changed))


def test_a_good_candidate():
    trial = measure(job("troubled"), 60.0)
    assert trial.status == "ok" and trial.time_ns == pytest.approx(1000 + 100 + 276 + 240)
    assert trial.seconds > 0


@pytest.mark.parametrize(
    "group, status, detail",
    [
        (1, "crashed", "ended with SIGABRT"),
        (3, "crashed", r"ValueError: too clever by half \(fakes.py:\d+\)"),
        (6, "wrong", "deviates from the reference"),
        (8, "crashed", "exit status 7"),
    ],
)
def test_misfortunes_are_told_apart(group, status, detail):
    trial = measure(job("troubled", group), 60.0)
    assert trial.status == status and trial.time_ns is None
    assert re.search(detail, trial.detail)


def test_a_hanging_candidate_is_ended():
    start = time.monotonic()
    trial = measure(job("troubled", 4), 1.5)
    assert trial.status == "timeout" and trial.detail == "not finished after 2 s" and trial.time_ns is None
    assert time.monotonic() - start < 30


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_child_works_for_the_target(target):
    assert measure(job("sees_target", target=target), 60.0).time_ns == float(target[-1])


def test_a_missing_instrument_is_a_crash_of_the_candidate():
    trial = measure(job("absent"), 60.0)
    assert trial.status == "crashed" and "AttributeError" in trial.detail


def test_instruments_are_named():
    with pytest.raises(InputError, match="an instrument is one of modelled, device, or module:function; found 'clock'"):
        resolve("clock")


@pytest.mark.parametrize("fraction, naux, kchunk", [(1.0, 1536, 12), (0.5, 768, 6), (0.25, 384, 3), (0.01, 128, 1)])
def test_a_reduced_workload_keeps_the_number_of_chunks(fraction, naux, kchunk):
    smaller = reduced(job("steady"), fraction)
    assert (smaller.shape["naux"], smaller.constants["kchunk"]) == (naux, kchunk)
    assert smaller.shape["nvir"] == 448 and smaller.constants["group"] == 2


def test_a_reduced_workload_of_several_chunks():
    streamed = job("steady", constants={"block": 128, "kchunk": 4, "group": 1})
    smaller = reduced(streamed, 0.5)
    assert (smaller.shape["naux"], smaller.constants["kchunk"]) == (768, 2)


class Host:
    """A device whose kernels are their references."""

    cores = 1

    def put(self, array):
        from trnqc.backends.nki.vendor import to_tensor

        return to_tensor(array)


CONSTANTS = {"rows": 128, "cols": 65, "kchunk": 2, "batch": 1, "hold": 0, "drains": 4, "drainer": 0}
GEMM = {"kernel": "gemm", "shape": {"M": 70, "N": 65, "K": 130}, "constants": CONSTANTS}


def test_the_clock_gates_and_times():
    pytest.importorskip("torch")
    from trnqc.backends.nki.launch import host_kernels

    with host_kernels("reference"):
        reading = clock(Host(), kernels()["gemm"], job("steady", **GEMM))
    assert reading.time_ns > 0 and reading.error < 1e-6 and reading.detail.startswith("median of 11")


def test_the_clock_does_not_time_what_is_wrong():
    pytest.importorskip("torch")
    from trnqc.backends.nki.launch import host_kernels

    honest = kernels()["gemm"]
    wrong = _once(lambda *args, **constants: np.zeros((70, 65), np.float32), honest.reference)
    with host_kernels("reference"):
        reading = clock(Host(), dataclasses.replace(honest, reference=wrong), job("steady", **GEMM))
    assert reading.time_ns is None and "deviates from the reference" in reading.detail


def _once(first, then):
    """A function that is `first` when called for the first time (the launch) and `then` afterwards (the gate)."""
    functions = [first]

    def call(*args, **constants):
        return (functions.pop() if functions else then)(*args, **constants)

    return call
