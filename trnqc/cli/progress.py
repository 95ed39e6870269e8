"""Progress bars for whatever takes longer than two seconds, on a terminal only."""

from __future__ import annotations

import time
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

PATIENCE = 2.0
"""Seconds that a stage may take before it gets a bar."""


class StageBars:
    """Call it as progress(stage, done, total); total 0 where the end is not known. Bars vanish when the job is done."""

    def __init__(self, console: Console, patience: float = PATIENCE) -> None:
        columns = (
            TextColumn("{task.description:>24}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TimeRemainingColumn(),
        )
        self._bars = Progress(*columns, console=console, transient=True, disable=not console.is_terminal)
        self._patience = patience
        self._began: dict[str, float] = {}
        self._tasks: dict[str, TaskID] = {}

    def __enter__(self) -> StageBars:
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._bars.stop()

    def __call__(self, stage: str, done: int, total: int) -> None:
        now = time.monotonic()
        if now - self._began.setdefault(stage, now) < self._patience:
            return
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total or None)
        self._bars.update(self._tasks[stage], completed=done)
