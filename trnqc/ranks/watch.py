"""The heartbeat of the ranks of a job, by which they notice that one of them has died, hangs or has failed.

    every rank: writes heartbeats to the store     rank 0: watches all other ranks     the others: watch rank 0
    the rank that finds another one silent, or fails itself, writes the reason to the store -> every rank ends

A rank that waits inside a library cannot be interrupted, so a thread has to end the process. It first asks the main
thread to leave, so that temporary files are removed, and ends the process without it after GRACE seconds.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NoReturn

# Seconds between two heartbeats.
INTERVAL = 1.0
# Seconds that the main thread has to leave before the process is ended.
GRACE = 5.0
# Seconds between two looks at the store while a rank waits for others.
POLL = 0.02
# Ranks that a message names at most.
SHOWN = 8


class Watch:
    """The heartbeat of one rank, and its watch over the others; a context, which handles SIGTERM meanwhile.

    Parameters
    ----------
    store
        The store that the ranks have met in, over a connection that nothing else uses.
    rank, size
        Number of this rank, and how many there are.
    silence
        Seconds without a heartbeat after which a rank counts as lost.
    """

    def __init__(self, store: Any, rank: int, size: int, silence: float) -> None:
        self.store, self.rank, self.size, self.silence = store, rank, size, silence
        self.stage, self.ending = "start", False
        self._beats = 0
        self._seen: dict[int, tuple[str, float]] = {}
        self._left, self._leaving = threading.Event(), False
        self._thread = threading.Thread(target=self._run, name="trnqc-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._beat()
        self._before = signal.signal(signal.SIGTERM, self._leave)
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._writer, False)
        self._wakeup = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        self._thread.start()
        return self

    def __exit__(self, kind: type | None, *_: object) -> None:
        if self.ending:
            # At its normal end, the interpreter would wait for connections to lost ranks.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        self.stop()
        signal.set_wakeup_fd(self._wakeup)
        # After an error, the launcher may end this rank before its message is out: it sends SIGTERM to all.
        signal.signal(signal.SIGTERM, self._before if kind is None else signal.SIG_IGN)
        os.close(self._reader)
        os.close(self._writer)

    def stop(self) -> None:
        """Stop the heartbeat."""
        self._left.set()
        os.write(self._writer, b"\0")
        self._thread.join()

    def failed(self, reason: str) -> bool:
        """End the other ranks for this reason. Returns whether this rank is the first to fail, and so reports it."""
        self.stop()
        first = not self.ending and self._claim(reason)
        self._heard()
        return first

    def _heard(self) -> None:
        """Tell the store that this rank knows of the failure. Rank 0, which may host the store, waits for all."""
        until = time.monotonic() + 2 * INTERVAL
        try:
            self.store.add("trnqc/heard", 1)
            while self.rank == 0 and time.monotonic() < until and self.store.add("trnqc/heard", 0) < self.size:
                time.sleep(POLL)
        except RuntimeError:
            return  # The store is gone, and with it whoever could hear.

    def _claim(self, reason: str) -> bool:
        """Write the reason of the end to the store. Returns whether this rank is the first to do so."""
        mine = f"{self.rank}: {reason}"
        try:
            return self.store.compare_set("trnqc/failed", "", mine) == mine.encode()
        except RuntimeError:
            return True

    def at(self, stage: str) -> None:
        """Set the stage that heartbeats tell, and send one at once."""
        self.stage = stage
        os.write(self._writer, b"\0")

    def lost(self) -> str:
        """In words, the ranks of this machine whose process is gone; empty if there is none."""
        here = socket.gethostname()
        return _words({r: b for r, b in self._others().items() if b["host"] == here and not _lives(b["pid"])})

    def elsewhere(self) -> str:
        """In words, the ranks that are at another stage than this one."""
        return _words({r: b for r, b in self._others().items() if b["stage"] != self.stage})

    def _others(self) -> dict[int, dict[str, Any]]:
        """The last heartbeats of the other ranks."""
        beats = {rank: self._read(rank) for rank in range(self.size) if rank != self.rank}
        return {rank: beat for rank, beat in beats.items() if beat}

    def _beat(self) -> None:
        """Write a heartbeat to the store."""
        self._beats += 1
        beat = {"n": self._beats, "stage": self.stage, "pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"trnqc/alive/{self.rank}", json.dumps(beat))

    def _read(self, rank: int) -> dict[str, Any] | None:
        """The last heartbeat of a rank, if there is one."""
        key = f"trnqc/alive/{rank}"
        try:
            return json.loads(self.store.get(key)) if self.store.check([key]) else None
        except RuntimeError:
            return None

    def _run(self) -> None:
        """What the thread does until the watch ends."""
        while not self._left.is_set():
            woken = select.select([self._reader], [], [], min(INTERVAL, self.silence / 4))[0]
            if self._left.is_set():
                return
            try:
                if woken and signal.SIGTERM in os.read(self._reader, 64):
                    self._end(self._terminated())
                self._look()
            except RuntimeError as error:
                self._end(f"the store that the ranks meet in is gone ({str(error).splitlines()[0]})")

    def _look(self) -> None:
        """Send a heartbeat, and end this process if a rank has failed or is silent."""
        self._beat()
        if self.store.check(["trnqc/failed"]):
            self._end(None)
        now = time.monotonic()
        for rank in range(1, self.size) if self.rank == 0 else (0,):
            beat = self._read(rank)
            known = json.dumps(beat)
            if rank not in self._seen or self._seen[rank][0] != known:
                self._seen[rank] = known, now
            elif now - self._seen[rank][1] > self.silence:
                stage = beat["stage"] if beat else "before its start"
                self._end(
                    f"rank {rank} of {self.size} has not been heard of for {self.silence:.0f} s (at: {stage}): its "
                    "process is stopped or its machine unreachable"
                )

    def _terminated(self) -> str:
        """The reason to give after a SIGTERM."""
        lost = self.lost()
        if lost:
            return f"of {self.size} ranks this one has died: {lost}; look for its first error"
        return f"rank {self.rank} of {self.size} was told to end (SIGTERM): cancelled, or another rank has failed"

    def _end(self, reason: str | None) -> NoReturn:
        """End this process. Prints the reason, unless it is None because another rank has printed it."""
        self.ending = True
        if reason is not None and self._claim(reason):
            print(f"trnqc: error: {reason}; start all ranks again", file=sys.stderr, flush=True)
        self._heard()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    def _leave(self, *_: object) -> None:
        """Handle SIGTERM: leave the main thread, as soon as it is not inside a library."""
        if self.ending and not self._leaving:
            self._leaving = True
            raise SystemExit(1)


def _words(beats: Mapping[int, dict[str, Any]]) -> str:
    named = [f"rank {rank} (at: {beat['stage']})" for rank, beat in list(beats.items())[:SHOWN]]
    return ", ".join(named + [f"{len(beats) - SHOWN} more"] * (len(beats) > SHOWN))


def _lives(pid: int) -> bool:
    """Whether a process of this machine runs; one that has ended and was not waited for does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
