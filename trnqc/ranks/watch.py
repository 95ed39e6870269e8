"""A thread by which the ranks of a job notice that one of them has died, hangs or has failed, whatever they wait for.

    every rank: beats into the store          rank 0: watches the others' beats          the others: watch rank 0's
    whoever finds one silent, or fails itself, leaves its reason in the store -> every rank ends

Waiting inside a library cannot be interrupted, so that the thread itself must be able to end the process: it first asks
the main thread to leave, for the sake of files that are to be removed, and leaves without it after a few seconds.
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

INTERVAL = 1.0
GRACE = 5.0
"""Seconds between beats; that the main thread is given to leave."""
POLL = 0.02
"""Seconds between two looks at the store of a rank that waits for the others."""
SHOWN = 8
"""Ranks that a message names."""


class Watch:
    """Beats of `rank` of `size`, over a connection of its own to the store, and what follows from the others'.

    silence: seconds without a beat after which a rank counts as lost. Use as a context; SIGTERM is taken over in it.
    """

    def __init__(self, store: Any, rank: int, size: int, silence: float) -> None:
        self.store, self.rank, self.size, self.silence = store, rank, size, silence
        self.stage, self.ending = "start", False
        self._beats = 0
        self._seen: dict[int, tuple[str, float]] = {}
        self._left, self._told = threading.Event(), False
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
            # What is open to lost ranks would be waited for at the interpreter's end.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        self.stop()
        signal.set_wakeup_fd(self._wakeup)
        # A launcher that has seen another rank die shall not take this one's message away.
        signal.signal(signal.SIGTERM, self._before if kind is None else signal.SIG_IGN)
        os.close(self._reader)
        os.close(self._writer)

    def stop(self) -> None:
        """Give no more signs of life."""
        self._left.set()
        os.write(self._writer, b"\0")
        self._thread.join()

    def failed(self, reason: str) -> bool:
        """End the other ranks for this reason; whether this one is the first to do so, and so has to say it."""
        self.stop()
        first = not self.ending and self._claim(reason)
        self._heard()
        return first

    def _heard(self) -> None:
        """Say that this rank knows of the failure; rank 0, in which the store may live, waits until the others do."""
        until = time.monotonic() + 2 * INTERVAL
        try:
            self.store.add("trnqc/heard", 1)
            while self.rank == 0 and time.monotonic() < until and self.store.add("trnqc/heard", 0) < self.size:
                time.sleep(POLL)
        except RuntimeError:
            return  # without a store there is nobody to tell

    def _claim(self, reason: str) -> bool:
        mine = f"{self.rank}: {reason}"
        try:
            return self.store.compare_set("trnqc/failed", "", mine) == mine.encode()
        except RuntimeError:
            return True

    def at(self, stage: str) -> None:
        """What the next beat, which comes at once, says of this rank."""
        self.stage = stage
        os.write(self._writer, b"\0")

    def lost(self) -> str:
        """Ranks of this machine whose process is gone, in words; empty if there is none."""
        here = socket.gethostname()
        return _words({r: b for r, b in self._others().items() if b["host"] == here and not _lives(b["pid"])})

    def elsewhere(self) -> str:
        """Ranks that are at another stage than this one, in words."""
        return _words({r: b for r, b in self._others().items() if b["stage"] != self.stage})

    def _others(self) -> dict[int, dict[str, Any]]:
        beats = {rank: self._read(rank) for rank in range(self.size) if rank != self.rank}
        return {rank: beat for rank, beat in beats.items() if beat}

    def _beat(self) -> None:
        self._beats += 1
        beat = {"n": self._beats, "stage": self.stage, "pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"trnqc/alive/{self.rank}", json.dumps(beat))

    def _read(self, rank: int) -> dict[str, Any] | None:
        key = f"trnqc/alive/{rank}"
        try:
            return json.loads(self.store.get(key)) if self.store.check([key]) else None
        except RuntimeError:
            return None

    def _run(self) -> None:
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
        lost = self.lost()
        if lost:
            return f"of {self.size} ranks this one has died: {lost}; look for its first error"
        return f"rank {self.rank} of {self.size} was told to end (SIGTERM): cancelled, or another rank has failed"

    def _end(self, reason: str | None) -> NoReturn:
        """reason: None when another rank has said it."""
        self.ending = True
        if reason is not None and self._claim(reason):
            print(f"trnqc: error: {reason}; start all ranks again", file=sys.stderr, flush=True)
        self._heard()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    def _leave(self, *_: object) -> None:
        """In the main thread, as soon as it is not within a library."""
        if self.ending and not self._told:
            self._told = True
            raise SystemExit(1)


def _words(beats: Mapping[int, dict[str, Any]]) -> str:
    told = [f"rank {rank} (at: {beat['stage']})" for rank, beat in list(beats.items())[:SHOWN]]
    return ", ".join(told + [f"{len(beats) - SHOWN} more"] * (len(beats) > SHOWN))


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
