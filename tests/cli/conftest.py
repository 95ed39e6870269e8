"""The command line in this process, at a fixed width."""

from __future__ import annotations

import pytest

from trnqc.cli import main


@pytest.fixture
def trnqc(capsys, monkeypatch):
    """trnqc(*arguments) -> (exit status, standard output, standard error)."""
    monkeypatch.setenv("COLUMNS", "100")

    def call(*arguments: object) -> tuple[int, str, str]:
        status = main([str(argument) for argument in arguments])
        return (status, *capsys.readouterr())

    return call
