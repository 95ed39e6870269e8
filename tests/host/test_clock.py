"""The wall time of a job by its parts."""

from __future__ import annotations

import threading

import pytest

from trnqc.host import clock as module
from trnqc.host.clock import OTHER, Clock, divide, measured


@pytest.fixture
def passing(monkeypatch):
    """A function that lets seconds pass."""
    now = [0.0]
    monkeypatch.setattr(module.time, "perf_counter", lambda: now[0])

    def by(seconds):
        now[0] += seconds

    return by


def test_each_second_counts_once(passing):
    clock = Clock()
    with clock.running():
        passing(1)
        with measured("gradient"):
            passing(2)
            with measured("SCF"):
                passing(4)
                with measured("compiling"):
                    passing(8)
            with measured("SCF"):
                passing(16)
        passing(32)
    assert list(clock.seconds.items()) == [("gradient", 2.0), ("SCF", 20.0), ("compiling", 8.0), (OTHER, 33.0)]


def test_known_shares_leave_the_open_part(passing):
    clock = Clock()
    with clock.running(), measured("factors"):
        passing(10)
        divide({"integrals": 6.0, "metric": 1.0})
    assert clock.seconds == {"factors": 3.0, "integrals": 6.0, "metric": 1.0, OTHER: 0.0}


def test_an_error_ends_its_parts(passing):
    clock = Clock()
    with pytest.raises(KeyError), clock.running(), measured("SCF"):
        passing(3)
        raise KeyError
    assert clock.seconds == {"SCF": 3.0, OTHER: 0.0}
    with measured("SCF"):
        passing(5)
    divide({"SCF": 1.0})
    assert clock.seconds["SCF"] == 3.0


def test_the_inner_clock_measures(passing):
    outer, inner = Clock(), Clock()
    with outer.running():
        with inner.running(), measured("SCF"):
            passing(1)
        with measured("pairs"):
            passing(2)
    assert inner.seconds == {"SCF": 1.0, OTHER: 0.0}
    assert outer.seconds == {"pairs": 2.0, OTHER: 1.0}


def test_threads_are_measured_by_who_waits_for_them():
    clock = Clock()

    def work():
        with measured("inside of a thread"):
            pass

    with clock.running(), measured("waiting"):
        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
    assert set(clock.seconds) == {"waiting", OTHER}
