"""One thread for each GPU, which hands its results to the thread of the caller."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import Empty, Queue
from threading import Event
from typing import TypeVar

Result = TypeVar("Result")

# Results of a GPU that wait for the caller. With more of them, Γ would fill the memory of the host.
WAITING = 2
# Seconds after which a waiting thread looks whether the job has been stopped.
PATIENCE = 0.1


def on_threads(work: Sequence[Iterable[Result]]) -> Iterator[Result]:
    """Run each iterable on a thread of its own, and yield all results in the thread of the caller.

    Results of different threads take turns, so that their order does not depend on the speed of the GPUs. An error of
    a thread is raised, and the others end at their next result.
    """
    queues: list[Queue[Result | BaseException | None]] = [Queue(WAITING) for _ in work]
    stopped = Event()

    def run(one: Iterable[Result], results: Queue[Result | BaseException | None]) -> None:
        try:
            for result in one:
                results.put(result)
                if stopped.is_set():
                    return
            results.put(None)
        except BaseException as error:
            results.put(error)

    with ThreadPoolExecutor(max(1, len(work)), thread_name_prefix="trnqc-gpu") as pool:
        futures = [pool.submit(run, *pair) for pair in zip(work, queues)]
        try:
            yield from _in_turns(queues)
        finally:
            stopped.set()
            for future, results in zip(futures, queues):
                while not future.done():  # Its thread may wait until there is room for a result.
                    try:
                        results.get(timeout=PATIENCE)
                    except Empty:
                        continue


def _in_turns(queues: Sequence[Queue[Result | BaseException | None]]) -> Iterator[Result]:
    running = list(queues)
    while running:
        for results in list(running):
            result = results.get()
            if isinstance(result, BaseException):
                raise result
            if result is None:
                running.remove(results)
            else:
                yield result
