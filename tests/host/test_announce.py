"""Lines that users see without asking: on a terminal, or by the logging that they have set up, never twice."""

from __future__ import annotations

import logging
import sys

import pytest

from trnqc.host.output import announce, log_on_standard_error


def at_a_terminal(monkeypatch):
    """In the test itself, because pytest changes standard error and the handlers of the root logger before it."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])


def test_a_terminal_shows_the_line(monkeypatch, capsys):
    at_a_terminal(monkeypatch)
    announce("one line")
    assert capsys.readouterr().err == "trnqc: one line\n"


@pytest.mark.parametrize("verbose, expected", [(0, "trnqc: one line\n"), (1, "trnqc: info: one line\n")])
def test_a_command_shows_it_once(monkeypatch, capsys, verbose, expected):
    at_a_terminal(monkeypatch)
    with log_on_standard_error(verbose):
        announce("one line")
    assert capsys.readouterr().err == expected


def test_a_quiet_command_and_a_file_show_nothing(monkeypatch, capsys):
    at_a_terminal(monkeypatch)
    with log_on_standard_error(0, quiet=True):
        announce("one line")
    monkeypatch.setattr(sys.stderr, "isatty", lambda: False, raising=False)
    announce("one line")
    assert capsys.readouterr().err == ""
