"""Messages between ranks on one machine: the receiver copies an array out of the memory of the sender.

A message over a socket is copied twice, by threads that have to be woken up. Here a sender writes the address of its
array to memory that all ranks share, and the receiver copies the array by ``process_vm_readv`` of Linux and says so:

    sender:    address, bytes, number of the message -> slot        ... until the receiver has written the number: free
    receiver:  number in the slot? -> copy -> number as done

Whoever waits for a message takes all others that have been asked for meanwhile, so that no rank waits for one that
waits for it.
"""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import platform
import sys
import tempfile
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.ranks.groups import Message
from trnqc.ranks.watch import is_running

# Messages from one rank to another that may be under way at once; further ones wait for their turn.
SLOTS = 64
# Fields of a slot: address, bytes, number of the message, and the number that the receiver has copied last.
ADDRESS, BYTES, POSTED, DONE = range(4)
FIELDS = 8
# Seconds for which a waiting rank asks at once again, and the least and the largest pause between two questions after
# that. A pause adds at most a fiftieth to the time that a rank waits.
EAGER, PAUSE, LONG_PAUSE = 2e-4, 5e-5, 1e-3
# Seconds after which a waiting rank looks whether all others are still there.
LOOK = 0.05
# Seconds for which a process whose memory is gone may take to end.
ENDING = 5.0
# Lets processes of the same user read this one's memory where Linux forbids it to others than parents (Yama).
PR_SET_PTRACER, ANY = 0x59616D61, ctypes.c_ulong(-1)


class Unreachable(RuntimeError):
    """The memory of another rank cannot be read."""


class _Vector(ctypes.Structure):
    """Where some bytes begin, and their number."""

    _fields_ = (("base", ctypes.c_void_p), ("length", ctypes.c_size_t))


class NeighbourMessages:
    """The messages of one rank of a machine to and from the others. Several threads may use it.

    Parameters
    ----------
    rank, pids
        The number of this rank, and the numbers of the processes of all ranks.
    table
        [from, to, SLOTS, FIELDS]: an int64 array in memory that all ranks share, with zeros at the beginning.
    timeout
        Seconds for which a message is waited for.
    """

    def __init__(self, rank: int, pids: Sequence[int], table: np.ndarray, timeout: float) -> None:
        self.rank, self.pids, self.table, self.timeout = rank, pids, table, timeout
        size = len(pids)
        # By rank: messages that wait for a slot, those that are not copied yet, and those that are asked for, with
        # their numbers. Arrays that are sent live until they have been copied.
        self._waiting: list[deque[tuple[int, np.ndarray]]] = [deque() for _ in range(size)]
        self._sent: list[deque[tuple[int, np.ndarray]]] = [deque() for _ in range(size)]
        self._asked: list[deque[tuple[int, np.ndarray]]] = [deque() for _ in range(size)]
        self._numbers = np.zeros((2, size), np.int64)
        self._lock = threading.Lock()

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> _Pending:
        """Start to send and to receive contiguous arrays; messages between two ranks are matched in their order."""
        with self._lock:
            out, into = (
                [self._queued(way, *message) for message in messages if message[1].nbytes]
                for way, messages in enumerate((sent, received))
            )
        self.progress()
        return _Pending(self, out, into)

    def _queued(self, way: int, rank: int, array: np.ndarray) -> tuple[int, int]:
        """Number an array that is sent (way 0) or received (way 1), and queue it. Returns its rank and number."""
        self._numbers[way, rank] += 1
        number = int(self._numbers[way, rank])
        (self._asked if way else self._waiting)[rank].append((number, array))
        return rank, number

    def progress(self) -> bool:
        """Post and copy what can be posted and copied now; return whether there was anything."""
        with self._lock:
            done = [self._post(rank) | self._copy(rank) for rank in range(len(self.pids))]
        return any(done)

    def copied(self, messages: Sequence[tuple[int, int]]) -> bool:
        """Whether other ranks have copied these messages (rank, number)."""
        with self._lock:
            for rank, _ in messages:
                self._release(rank)
            return not any(_holds(self._sent[rank] or self._waiting[rank], number) for rank, number in messages)

    def arrived(self, messages: Sequence[tuple[int, int]]) -> bool:
        """Whether this rank has copied these messages (rank, number)."""
        with self._lock:
            return not any(_holds(self._asked[rank], number) for rank, number in messages)

    def until(self, reached: Callable[[], bool]) -> None:
        """Wait, and take all messages meanwhile. Raises Unreachable after the timeout, or if a rank has ended."""
        last = looked = time.monotonic()
        while not reached():
            now = time.monotonic()
            if self.progress():
                last = looked = now
            elif now - last > self.timeout:
                raise Unreachable(f"Timed out after {self.timeout:g} s")
            elif now - looked > LOOK:
                looked = now
                if ended := [rank for rank, pid in enumerate(self.pids) if not is_running(pid)]:
                    raise Unreachable(f"rank {ended[0]} has ended")
            elif now - last > EAGER:
                time.sleep(min(LONG_PAUSE, max(PAUSE, (now - last) / 50)))
            else:
                os.sched_yield()

    def _post(self, rank: int) -> bool:
        """Write waiting messages to free slots."""
        self._release(rank)
        done, slots = False, self.table[self.rank, rank]
        while self._waiting[rank]:
            number, array = self._waiting[rank][0]
            slot = slots[number % SLOTS]
            if slot[DONE] != max(0, number - SLOTS):
                break
            slot[ADDRESS], slot[BYTES] = array.ctypes.data, array.nbytes
            # Other processes see these stores in this order on x86, the only architecture that `connected` allows.
            slot[POSTED] = number
            self._sent[rank].append(self._waiting[rank].popleft())
            done = True
        return done

    def _copy(self, rank: int) -> bool:
        """Copy messages that have been asked for and posted."""
        done, slots = False, self.table[rank, self.rank]
        while self._asked[rank]:
            number, array = self._asked[rank][0]
            slot = slots[number % SLOTS]
            if slot[POSTED] != number:
                break
            if slot[BYTES] != array.nbytes:
                raise Unreachable(f"rank {rank} has sent {slot[BYTES]} bytes where {array.nbytes} are expected")
            try:
                read_memory(self.pids[rank], int(slot[ADDRESS]), array)
            except Unreachable:
                # The memory of a process goes before the process: whoever looks which rank has ended has to see it.
                until = time.monotonic() + ENDING
                while is_running(self.pids[rank]) and time.monotonic() < until:
                    time.sleep(PAUSE)
                raise
            slot[DONE] = number
            self._asked[rank].popleft()
            done = True
        return done

    def _release(self, rank: int) -> None:
        """Forget messages that have been copied."""
        slots = self.table[self.rank, rank]
        while self._sent[rank] and slots[self._sent[rank][0][0] % SLOTS, DONE] == self._sent[rank][0][0]:
            self._sent[rank].popleft()


def _holds(queue: deque[tuple[int, np.ndarray]], number: int) -> bool:
    """Whether a queue, which is in the order of numbers, has not yet passed a number."""
    return bool(queue) and queue[0][0] <= number


class _Pending:
    """Messages under way, by rank and number."""

    def __init__(
        self, messages: NeighbourMessages, sent: Sequence[tuple[int, int]], received: Sequence[tuple[int, int]]
    ) -> None:
        self.messages, self.sent, self.received = messages, sent, received

    def arrived(self) -> None:
        """See Pending.arrived."""
        self.messages.until(lambda: self.messages.arrived(self.received))

    def wait(self) -> None:
        """See Pending.wait."""
        self.arrived()
        self.messages.until(lambda: self.messages.copied(self.sent))


def read_memory(pid: int, address: int, into: np.ndarray) -> None:
    """Copy memory of another process into a contiguous array. Raises Unreachable if that cannot be."""
    libc = ctypes.CDLL(None, use_errno=True)
    done, size = 0, into.nbytes
    while done < size:
        here, there = _Vector(into.ctypes.data + done, size - done), _Vector(address + done, size - done)
        arguments = pid, ctypes.byref(here), ctypes.c_ulong(1), ctypes.byref(there), ctypes.c_ulong(1)
        count = libc.process_vm_readv(*arguments, ctypes.c_ulong(0))
        if count <= 0:
            number = ctypes.get_errno()
            raise Unreachable(f"memory of process {pid} cannot be read: {errno.errorcode.get(number, number)}")
        done += count


def connected(
    rank: int, size: int, store: Any, barrier: Callable[[str], None], timeout: float
) -> NeighbourMessages | None:
    """Return the messages of this rank; None if the ranks do not share one machine with Linux and an x86 processor.

    None is returned with a warning on rank 0 if the machine does not allow it.

    Parameters
    ----------
    rank, size
        The number of this rank, and of ranks.
    store
        The store of the job.
    barrier
        Waits until all ranks have reached a place.
    timeout
        See `NeighbourMessages`.
    """
    several = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) != size
    if several or size == 1 or not sys.platform.startswith("linux") or platform.machine() != "x86_64":
        return None
    length = 8 * size * size * SLOTS * FIELDS
    if rank == 0:
        store.set("trnqc/neighbours", _new_file(length))
    path = Path(store.get("trnqc/neighbours").decode())
    table = _shared(path, length)
    ctypes.CDLL(None).prctl(PR_SET_PTRACER, ANY, 0, 0, 0)
    own = np.array([rank], np.int64)
    store.set(f"trnqc/neighbours/{rank}", f"{os.getpid()} {own.ctypes.data}")
    barrier("neighbours")
    if rank == 0:
        path.unlink(missing_ok=True)
    others = [tuple(map(int, store.get(f"trnqc/neighbours/{n}").split())) for n in range(size)]
    reasons = [_unreadable(pid, address, n) for n, (pid, address) in enumerate(others)]
    reason = next(filter(None, reasons), "") if table is not None else f"{path} is not there, as in another container"
    store.add("trnqc/neighbours/readable", int(not reason))
    barrier("neighbours' memory")
    if table is not None and int(store.add("trnqc/neighbours/readable", 0)) == size:
        return NeighbourMessages(rank, [pid for pid, _ in others], table.reshape(size, size, SLOTS, FIELDS), timeout)
    if rank == 0:
        warnings.warn(
            f"ranks of this machine cannot read one another's memory ({reason or 'on another rank'}) and exchange "
            "arrays over sockets, which takes longer; allow process_vm_readv (Docker: --cap-add SYS_PTRACE)",
            RuntimeWarning,
            stacklevel=2,
        )
    return None


def _new_file(length: int) -> str:
    folder = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    number, name = tempfile.mkstemp(prefix="trnqc-", dir=folder)
    os.truncate(number, length)
    os.close(number)
    return name


def _shared(path: Path, length: int) -> np.ndarray | None:
    """Return the file as memory that ranks share; None if it is not there, as in another container."""
    try:
        with path.open("r+b") as file:
            return np.frombuffer(mmap.mmap(file.fileno(), length), np.int64)
    except OSError:
        return None


def _unreadable(pid: int, address: int, number: int) -> str:
    """Return why a number at an address of a process cannot be read; an empty string if it can."""
    found = np.empty(1, np.int64)
    try:
        read_memory(pid, address, found)
    except Unreachable as error:
        return str(error)
    except AttributeError:
        return "the C library does not have process_vm_readv"
    return "" if found[0] == number else f"process {pid} is another one, as in another container"
