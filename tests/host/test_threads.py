"""The number of threads that a job uses."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.errors import InputError
from trnqc.host.threads import cpus, default_threads, stack_size, thread_count


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert default_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(InputError, match="many"):
        default_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert default_threads() >= 1


def test_an_argument_counts_before_the_default():
    assert thread_count(np.int64(3), lambda: 5) == 3
    assert thread_count(None, lambda: 5) == 5
    assert thread_count(None) == default_threads()
    for wrong in (0, -1, 1.5, "2"):
        with pytest.raises(InputError, match=f"positive number, or None for all, got {wrong}"):
            thread_count(wrong)


def test_the_stack_of_a_thread_has_room():
    assert cpus() >= 1 and 64 << 10 <= stack_size() < 1 << 40
