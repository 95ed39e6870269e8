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

from trnqc.host.clock import PATIENCE


class StageBars:
    """Progress bars, one for each stage of a job. The object is called as ``progress(stage, done, total)``.

    It is a context, and the bars are removed when it ends.

    Parameters
    ----------
    console
        The console on which the bars are drawn if it is a terminal; by default, standard error.
    patience
        Seconds after which a stage gets a progress bar.
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
        # Before rich 14, bars that are not shown print an empty line when they are stopped.
        if not self._bars.disable:
            self._bars.stop()

    def of(self, stage: str) -> Callable[[int, int, str], None]:
        """A function progress(done, total, name) for one stage. It ignores the name of the part."""
        return lambda done, total, name: self(stage, done, total)

    def __call__(self, stage: str, done: int, total: int, note: str = "") -> None:
        """Show that `done` of `total` parts of a stage are finished, and a note. A total of 0 stands for unknown."""
        now = time.monotonic()
        if now - self._began.setdefault(stage, now) < self._patience:
            return
        if stage not in self._tasks:
            self._bars.start()
            self._tasks[stage] = self._bars.add_task(stage, total=total or None, note="")
        self._bars.update(self._tasks[stage], completed=done, total=total or None, note=note)
