"""How many threads a job takes."""

from __future__ import annotations

import pytest

from trnqc.errors import InputError
from trnqc.host.threads import cpus, default_threads, stack_size


def test_threads_follow_the_environment(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "3,2")
    assert default_threads() == 3
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(InputError, match="many"):
        default_threads()
    monkeypatch.delenv("OMP_NUM_THREADS")
    assert default_threads() >= 1


def test_the_stack_of_a_thread_has_room():
    assert cpus() >= 1 and 64 << 10 <= stack_size() < 1 << 40
