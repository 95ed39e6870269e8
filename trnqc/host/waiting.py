"""What a user is told who waits for compilers: one line in a process, after two seconds."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trnqc.host.clock import PATIENCE


class Waiting:
    """The seconds that this process has waited for compilers, and the line that says so once.

    Parameters
    ----------
    patience : float
        Seconds of waiting, in one piece or several, after which the line is said.
    """

    def __init__(self, patience: float = PATIENCE) -> None:
        self._left, self._open, self._silent = patience, 0, 0
        self._timer: threading.Timer | None = None
        self._began = 0.0
        self._lock = threading.Lock()

    @contextmanager
    def for_kernels(self, directory: Path) -> Iterator[None]:
        """Wait for a compiler, whose kernels are kept in a directory. Waits of several threads are one wait."""
        with self._lock:
            self._open += 1
            if self._open == 1 and self._left > 0 and not self._silent:
                self._began = time.monotonic()
                self._timer = threading.Timer(self._left, self._say, (directory,))
                self._timer.daemon = True
                self._timer.start()
        try:
            yield
        finally:
            with self._lock:
                self._open -= 1
                if self._open == 0 and self._timer:
                    self._timer.cancel()
                    self._timer = None
                    self._left -= time.monotonic() - self._began

    @contextmanager
    def shown(self) -> Iterator[None]:
        """Compile within the context where the user sees a progress bar, so that nothing has to be said."""
        with self._lock:
            self._silent += 1
        try:
            yield
        finally:
            with self._lock:
                self._silent -= 1

    def _say(self, directory: Path) -> None:
        from trnqc.host.output import announce  # Imports rich, which most processes do not need here.

        self._left = 0.0
        announce(f"kernels are being compiled, which takes some seconds; {directory} keeps them for the next run")


waiting = Waiting()
