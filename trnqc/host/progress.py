"""Progress bars for stages that take longer than two seconds, on a terminal only."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)

# Seconds that a stage may take before it gets a bar.
PATIENCE = 2.0


class StageBars:
    """One progress bar for each stage of a job, called as ``progress(stage, done, total)``.

    The bars are removed at the end of the context.

    Parameters
    ----------
    console
        Where the bars are drawn if it is a terminal; standard error by default.
    patience
        Seconds that a stage may take before it gets a bar.
    """

    def __init__(self, console: Console | None = None, patience: float = PATIENCE) -> None:
        console = console or Console(stderr=True)
        columns = (
            TextColumn("{task.description:>24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[note]}"),
        )
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._patience = patience
        self._began: dict[str, float] = {}
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StageBars:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def of(self, stage: str) -> Callable[[int, int, str], None]:
        """A function progress(done, total, name) of one stage; the name of the last part is not shown."""
        return lambda done, total, name: self(stage, done, total)

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts of a stage are done, and a note; a total of 0 means it is not known."""
        now = time.monotonic()
        if now - self._began.setdefault(stage, now) < self._patience:
            return
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total or None, note="")
        self._bars.update(self._tasks[stage], completed=done, total=total or None, note=note)
