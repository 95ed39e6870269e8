"""Progress bars appear for long work only."""

from __future__ import annotations

import io

import pytest
from rich.console import Console

from trnqc.host.progress import StageBars


@pytest.mark.parametrize(("patience", "terminal", "shown"), [(0, True, True), (60, True, False), (0, False, False)])
def test_only_after_a_while_and_on_a_terminal(patience, terminal, shown):
    stream = io.StringIO()
    with StageBars(Console(file=stream, force_terminal=terminal, width=100), patience) as progress:
        for done in range(1, 4):
            progress("pairs", done, 3)
            progress("SCF", done, 0)
    assert ("pairs" in stream.getvalue()) == shown
    assert ("SCF" in stream.getvalue()) == shown
