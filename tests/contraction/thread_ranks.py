"""The interface `trnqc.ranks.Ranks` for threads of one process, so that tests of shared work need no processes."""

from __future__ import annotations

import threading
from queue import Queue

import numpy as np


class _Messages:
    """Messages that are copied when they are sent, and taken when somebody waits."""

    def __init__(self, take):
        self.arrived = self.wait = take


class ThreadRanks:
    """One of `size` threads. `boxes` and `shared` are common to all of them."""

    neighbours = 1

    def __init__(self, rank, size, boxes, shared):
        self.rank, self.size, self.boxes, self.shared, self.calls = rank, size, boxes, shared, 0
        # What this rank has received, in bytes.
        self.bytes = 0

    def at(self, stage):
        pass

    def at_first(self, make):
        self.calls += 1
        if self.rank == 0:
            value = make()
            for rank in range(1, self.size):
                self.shared[rank].put(value)
            return value
        return self.shared[self.rank].get(timeout=60)

    def exchange(self, sent, received):
        for rank, array in sent:
            assert array.flags.c_contiguous
            if array.size:
                self.boxes[self.rank, rank].put(array.copy())

        def take():
            for rank, array in received:
                if array.size:
                    arrived = self.boxes[rank, self.rank].get(timeout=60)
                    assert arrived.shape == array.shape and arrived.dtype == array.dtype
                    array[...] = arrived
                    self.bytes += array.nbytes

        return _Messages(take)

    def sum(self, array):
        others = [rank for rank in range(self.size) if rank != self.rank]
        parts = {rank: np.empty_like(array) for rank in others} | {self.rank: array}
        before = self.bytes
        self.exchange([(r, np.ascontiguousarray(array)) for r in others], [(r, parts[r]) for r in others]).wait()
        self.bytes = before
        return sum(parts[rank] for rank in range(self.size))


def on_ranks(size, work):
    """The results of work(ranks) on each of `size` ranks; the first error of any of them is raised."""
    boxes = {(a, b): Queue() for a in range(size) for b in range(size)}
    shared = [Queue() for _ in range(size)]
    results, errors = [None] * size, []

    def run(rank):
        try:
            results[rank] = work(ThreadRanks(rank, size, boxes, shared))
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(rank,)) for rank in range(size)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    if errors:
        raise errors[0]
    return results
