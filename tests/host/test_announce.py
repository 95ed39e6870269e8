"""Lines that users see without asking: on a terminal, or by the logging that they have set up, never twice."""

from __future__ import annotations

import logging
import sys

import pytest

from trnqc.host.output import announce, log_on_standard_error


@pytest.fixture
def terminal(monkeypatch, capsys):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    # pytest's own handlers would take the line.
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_a_terminal_shows_the_line(terminal, capsys):
    announce("one line")
    assert capsys.readouterr().err == "trnqc: one line\n"


@pytest.mark.parametrize("verbose, expected", [(0, "trnqc: one line\n"), (1, "trnqc: info: one line\n")])
def test_a_command_shows_it_once(terminal, capsys, verbose, expected):
    with log_on_standard_error(verbose):
        announce("one line")
    assert capsys.readouterr().err == expected


def test_a_quiet_command_and_a_file_show_nothing(terminal, capsys, monkeypatch):
    with log_on_standard_error(0, quiet=True):
        announce("one line")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    announce("one line")
    assert capsys.readouterr().err == ""
