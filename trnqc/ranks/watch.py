"""The heartbeat of the ranks of a job, by which they notice that one of them has died, hangs or has failed.

Every rank writes heartbeats to the store of the job. Rank 0 watches all other ranks, and they watch rank 0. A rank that
fails, or that notices that another rank is silent, writes the reason to the store, and then every rank ends.

A rank that waits inside a library cannot be interrupted, so a thread has to end the process. The thread first asks the
main thread to exit, so that temporary files are removed. If it has not done so after GRACE seconds, the thread ends the
process.
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
# Seconds after which the process is ended if its main thread has not exited.
GRACE = 5.0
# Seconds between two queries of the store while a rank waits for others.
POLL = 0.02
# The largest number of ranks that a message names.
SHOWN = 8


class Watch:
    """The heartbeat of one rank, and its watch over other ranks. It is a context, in which it handles SIGTERM.

    Parameters
    ----------
    store
        The store of the job, over a connection that nothing else uses.
    rank, size
        The number of this rank, and the number of ranks.
    silence
        Seconds without a heartbeat after which a rank counts as lost.

    Attributes
    ----------
    stage
        What this rank is doing, in words.
    ending
        Whether the process is about to end because of a failure.
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
            # A normal exit of the interpreter would wait for connections to lost ranks.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(1)
        self.stop()
        signal.set_wakeup_fd(self._wakeup)
        # After an error, the launcher sends SIGTERM to all ranks, perhaps before this rank has printed its message.
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
        self._acknowledge()
        return first

    def _acknowledge(self) -> None:
        """Tell the store that this rank knows of the failure. Rank 0, which may host the store, waits for all ranks."""
        until = time.monotonic() + 2 * INTERVAL
        try:
            self.store.add("trnqc/heard", 1)
            while self.rank == 0 and time.monotonic() < until and self.store.add("trnqc/heard", 0) < self.size:
                time.sleep(POLL)
        except RuntimeError:
            return  # The store has ended, so no rank can wait for this.

    def _claim(self, reason: str) -> bool:
        """Write the reason of the failure to the store. Returns whether this rank is the first to do so."""
        claim = f"{self.rank}: {reason}"
        try:
            return self.store.compare_set("trnqc/failed", "", claim) == claim.encode()
        except RuntimeError:
            return True

    def at(self, stage: str) -> None:
        """Set the stage that heartbeats report, and send a heartbeat immediately."""
        self.stage = stage
        os.write(self._writer, b"\0")

    def lost(self) -> str:
        """The ranks of this machine whose process has ended, in words. Empty if there is none."""
        host = socket.gethostname()
        return _words({r: b for r, b in self._others().items() if b["host"] == host and not is_running(b["pid"])})

    def elsewhere(self) -> str:
        """The ranks that are at another stage than this one, in words. Empty if there is none."""
        return _words({r: b for r, b in self._others().items() if b["stage"] != self.stage})

    def _others(self) -> dict[int, dict[str, Any]]:
        """The last heartbeat of every other rank that has sent one."""
        beats = {rank: self._read(rank) for rank in range(self.size) if rank != self.rank}
        return {rank: beat for rank, beat in beats.items() if beat}

    def _beat(self) -> None:
        """Write a heartbeat to the store."""
        self._beats += 1
        beat = {"n": self._beats, "stage": self.stage, "pid": os.getpid(), "host": socket.gethostname()}
        self.store.set(f"trnqc/alive/{self.rank}", json.dumps(beat))

    def _read(self, rank: int) -> dict[str, Any] | None:
        """The last heartbeat of a rank, or None."""
        key = f"trnqc/alive/{rank}"
        try:
            return json.loads(self.store.get(key)) if self.store.check([key]) else None
        except RuntimeError:
            return None

    def _run(self) -> None:
        """The thread: watch until the context ends."""
        while not self._left.is_set():
            woken = select.select([self._reader], [], [], min(INTERVAL, self.silence / 4))[0]
            if self._left.is_set():
                return
            try:
                if woken and signal.SIGTERM in os.read(self._reader, 64):
                    self._end(self._terminated())
                self._look()
            except RuntimeError as error:
                self._end(f"the store of the job cannot be reached ({str(error).splitlines()[0]})")

    def _look(self) -> None:
        """Send a heartbeat, and end this process if a rank has failed or is silent."""
        self._beat()
        if self.store.check(["trnqc/failed"]):
            self._end(None)
        now = time.monotonic()
        for rank in range(1, self.size) if self.rank == 0 else (0,):
            beat = self._read(rank)
            text = json.dumps(beat)
            if rank not in self._seen or self._seen[rank][0] != text:
                self._seen[rank] = text, now
            elif now - self._seen[rank][1] > self.silence:
                stage = beat["stage"] if beat else "before its start"
                self._end(
                    f"rank {rank} of {self.size} has not been heard of for {self.silence:.0f} s (at: {stage}): its "
                    "process is stopped, or its machine cannot be reached"
                )

    def _terminated(self) -> str:
        """The reason to report after a SIGTERM."""
        if lost := self.lost():
            return f"of {self.size} ranks this one has died: {lost}; look for its first error"
        return f"rank {self.rank} of {self.size} was told to end (SIGTERM): cancelled, or another rank has failed"

    def _end(self, reason: str | None) -> NoReturn:
        """End this process. The reason is printed unless it is None, because another rank has printed it."""
        self.ending = True
        if reason is not None and self._claim(reason):
            print(f"trnqc: error: {reason}; start all ranks again", file=sys.stderr, flush=True)
        self._acknowledge()
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGTERM)
        time.sleep(GRACE)
        os._exit(1)

    def _leave(self, *_: object) -> None:
        """Handle SIGTERM: exit from the main thread as soon as it is not inside a library."""
        if self.ending and not self._leaving:
            self._leaving = True
            raise SystemExit(1)


def _words(beats: Mapping[int, dict[str, Any]]) -> str:
    descriptions = [f"rank {rank} (at: {beat['stage']})" for rank, beat in list(beats.items())[:SHOWN]]
    return ", ".join(descriptions + [f"{len(beats) - SHOWN} more"] * (len(beats) > SHOWN))


def is_running(pid: int) -> bool:
    """Whether a process of this machine is running. A process that has ended but was not waited for is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False
