"""Messages between ranks on one machine, with threads of this process as ranks."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import numpy as np
import pytest

from trnqc.ranks import neighbours
from trnqc.ranks.neighbours import FIELDS, SLOTS, NeighbourMessages, Unreachable, connected, read_memory

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads memory as Linux allows it")


def ranks(size, timeout=20.0, pids=None):
    table = np.zeros((size, size, SLOTS, FIELDS), np.int64)
    return [NeighbourMessages(rank, pids or [os.getpid()] * size, table, timeout) for rank in range(size)]


def together(messages, run):
    with ThreadPoolExecutor(len(messages)) as pool:
        return list(pool.map(run, messages))


@pytest.mark.parametrize("size", [2, 3, 5])
def test_every_rank_gets_what_the_others_have_sent(size):
    messages = ranks(size)

    def run(me):
        others = [rank for rank in range(size) if rank != me.rank]
        for turn in range(3):
            sent = [np.full((3, turn + 1), 100.0 * me.rank + turn) for _ in others]
            received = [np.zeros((3, turn + 1)) for _ in others]
            me.exchange(list(zip(others, sent)), list(zip(others, received))).wait()
            for rank, array in zip(others, received):
                assert (array == 100.0 * rank + turn).all()
        return True

    assert all(together(messages, run))


def test_messages_have_their_order_and_may_be_more_than_slots():
    one, two = ranks(2)
    count = 3 * SLOTS + 5
    arrays = [np.arange(n % 7 + 1) + n for n in range(count)]
    pending = one.exchange([(1, array) for array in arrays], [])
    found = [np.empty_like(array) for array in arrays]

    def receive(_):
        for array in found:
            two.exchange([], [(0, array)]).wait()

    with ThreadPoolExecutor(1) as pool:
        received = pool.submit(receive, None)
        pending.wait()
        received.result()
    for array, expected in zip(found, arrays):
        np.testing.assert_array_equal(array, expected)
    assert not one._sent[1] and not one._waiting[1]


def test_a_rank_that_waits_for_another_message_takes_those_that_others_wait_for():
    one, two = ranks(2)
    ready = np.zeros(1)
    early, late = np.zeros(4), np.zeros(4)
    asked = two.exchange([], [(0, early)])

    def first(_):
        one.exchange([(1, np.ones(4))], []).wait()
        one.exchange([(1, np.full(4, 2.0))], [(1, ready)]).wait()

    def second(_):
        two.exchange([(0, np.ones(1))], [(0, late)]).wait()
        asked.wait()

    with ThreadPoolExecutor(2) as pool:
        for work in (pool.submit(first, None), pool.submit(second, None)):
            work.result(timeout=20)
    assert (early == 1).all() and (late == 2).all() and ready[0] == 1


def test_threads_of_a_rank_may_exchange_at_once():
    one, two = ranks(2)
    count = 40

    def run(n):
        me, other = (one, 1) if n % 2 else (two, 0)
        received = [np.zeros(5) for _ in range(count)]
        for array in received:
            me.exchange([(other, np.full(5, float(n)))], [(other, array)]).wait()
        return sum(array[0] for array in received)

    with ThreadPoolExecutor(4) as pool:
        sums = list(pool.map(run, range(4)))
    # Threads of one rank take one another's messages, but each message arrives once.
    assert sums[0] + sums[2] == count * (1 + 3) and sums[1] + sums[3] == count * 2


def test_what_was_sent_may_be_forgotten_before_it_is_copied():
    one, two = ranks(2)
    one.exchange([(1, np.arange(1000.0))], [])
    found = np.empty(1000)
    two.exchange([], [(0, found)]).wait()
    np.testing.assert_array_equal(found, np.arange(1000.0))
    one.progress()
    assert not one._sent[1]


def test_messages_without_elements_are_not_sent():
    one, _ = ranks(2)
    one.exchange([(1, np.zeros(0))], [(1, np.zeros((3, 0)))]).wait()
    assert (one.table == 0).all()


def test_other_sizes_are_refused():
    one, two = ranks(2)
    one.exchange([(1, np.zeros(3))], [])
    with pytest.raises(Unreachable, match="sent 24 bytes where 32 are expected"):
        two.exchange([], [(0, np.zeros(4))]).wait()


def test_a_message_that_does_not_come_ends_the_wait():
    one, _ = ranks(2, timeout=0.2)
    with pytest.raises(Unreachable, match=r"Timed out after 0\.2 s"):
        one.exchange([], [(1, np.zeros(1))]).wait()
    with pytest.raises(Unreachable, match="Timed out"):
        one.exchange([(1, np.zeros(1))], []).wait()


def test_a_rank_that_has_ended_ends_the_wait():
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    one, _ = ranks(2, pids=[os.getpid(), process.pid])
    with pytest.raises(Unreachable, match="rank 1 has ended"):
        one.exchange([], [(1, np.zeros(1))]).wait()
    with pytest.raises(Unreachable, match="cannot be read: ESRCH"):
        read_memory(process.pid, np.zeros(1).ctypes.data, np.zeros(1))


def test_why_memory_cannot_be_read():
    own = np.array([7], np.int64)
    assert neighbours._unreadable(os.getpid(), own.ctypes.data, 7) == ""
    assert "another one" in neighbours._unreadable(os.getpid(), own.ctypes.data, 8)
    assert "EFAULT" in neighbours._unreadable(os.getpid(), 8, 7)


def test_memory_that_is_not_there_cannot_be_read():
    with pytest.raises(Unreachable, match="cannot be read: EFAULT"):
        read_memory(os.getpid(), 8, np.zeros(1))


class Store:
    """The store of a job of one process in threads."""

    def __init__(self):
        self.values = {}

    def set(self, key, value):
        self.values[key] = value.encode()

    def get(self, key):
        while key not in self.values:
            pass
        return self.values[key]

    def add(self, key, number):
        self.values[key] = self.values.get(key, 0) + number
        return self.values[key]


def joined(size, monkeypatch, local):
    store, barrier = Store(), Barrier(size)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", str(local))
    return together(range(size), lambda rank: connected(rank, size, store, lambda _: barrier.wait(10) and None, 5.0))


def test_ranks_of_one_machine_are_connected(monkeypatch):
    messages = joined(2, monkeypatch, 2)
    found = np.zeros(3)
    messages[0].exchange([(1, np.arange(3.0))], [])
    messages[1].exchange([], [(0, found)]).wait()
    np.testing.assert_array_equal(found, np.arange(3.0))


def test_ranks_on_several_machines_or_without_permission_are_not(monkeypatch):
    assert joined(2, monkeypatch, 1) == [None, None]
    with monkeypatch.context() as patched, pytest.warns(RuntimeWarning, match="forbidden.*SYS_PTRACE") as warned:
        patched.setattr(neighbours, "_unreadable", lambda pid, address, number: "forbidden" if number else "")
        assert joined(2, patched, 2) == [None, None]
    assert len(warned) == 1
    monkeypatch.setattr(neighbours, "_shared", lambda path, length: None)
    with pytest.warns(RuntimeWarning, match="another container"):
        assert joined(2, monkeypatch, 2) == [None, None]
