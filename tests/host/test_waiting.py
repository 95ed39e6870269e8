"""A user who waits for compilers is told so once, after the patience, and not beside a progress bar."""

from __future__ import annotations

import logging
import threading
import time
from pathlib import Path

import pytest

from trnqc.host.waiting import Waiting

PATIENCE = 0.05
PLACE = Path("/cache/of/kernels")


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "trnqc.notices")
    return caplog


def test_one_line_after_the_patience(said: pytest.LogCaptureFixture) -> None:
    waiting = Waiting(PATIENCE)
    for _ in range(2):
        with waiting.for_kernels(PLACE):
            time.sleep(4 * PATIENCE)
    (record,) = said.records
    assert "kernels are being compiled" in record.getMessage()
    assert str(PLACE) in record.getMessage()


def test_short_waits_are_added(said: pytest.LogCaptureFixture) -> None:
    waiting = Waiting(PATIENCE)
    with waiting.for_kernels(PLACE):
        pass
    assert not said.records
    for _ in range(6):
        with waiting.for_kernels(PLACE):
            time.sleep(PATIENCE / 2)
    assert len(said.records) == 1


def test_nothing_is_said_beside_a_bar(said: pytest.LogCaptureFixture) -> None:
    waiting = Waiting(PATIENCE)
    with waiting.shown(), waiting.for_kernels(PLACE):
        time.sleep(4 * PATIENCE)
    assert not said.records


def test_threads_wait_together(said: pytest.LogCaptureFixture) -> None:
    """Eight waits of 0.2 s at the same time are far below the patience of 1 s, and their sum is above it."""
    waiting = Waiting(20 * PATIENCE)

    def wait() -> None:
        with waiting.for_kernels(PLACE):
            time.sleep(4 * PATIENCE)

    threads = [threading.Thread(target=wait) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not said.records
