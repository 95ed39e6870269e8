"""Options and errors that all commands share."""

from __future__ import annotations

import subprocess
import sys
import warnings

import pytest

from trnqc import __version__
from trnqc.cli import COMMANDS, main, parser_of


def test_version_and_help(capsys):
    for option in ("--version", "--help"):
        with pytest.raises(SystemExit) as end:
            main([option])
        assert end.value.code == 0
    out = capsys.readouterr().out
    assert __version__ in out
    for name, (_, line) in COMMANDS.items():
        assert name in out
        assert line.split()[0] in out


@pytest.mark.parametrize("name", sorted(COMMANDS))
def test_every_command_explains_itself(name, capsys):
    with pytest.raises(SystemExit) as end:
        main([name, "--help"])
    assert end.value.code == 0
    out = capsys.readouterr().out
    assert f"trnqc {name}" in out
    assert "``" not in out and "The command" not in out
    assert all(action.help for action in parser_of(name)._actions)


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["nonsense"],
        ["mp2", "--nonsense"],
        ["mp2", "--scf", "psi4"],
        ["mp2", "--charge", "x"],
        ["mp2", "--backend", "gpu"],
        ["eri", "make"],
        ["tune", "fft"],
        ["profile"],
        ["doctor", "--nonsense"],
    ],
)
def test_usage_errors_are_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    err = capsys.readouterr().err
    assert "usage: trnqc" in err
    assert err.startswith("trnqc: error: ") and err.count("\n") == 1


@pytest.mark.parametrize("name", ["mp2", "doctor"])
def test_an_unknown_option_points_to_the_help_of_its_command(name, capsys):
    with pytest.raises(SystemExit):
        main([name, "--nonsense"])
    assert f"unrecognized arguments: --nonsense; usage: trnqc {name} --help" in capsys.readouterr().err


def test_help_needs_no_chemistry():
    """PySCF takes a second to import: only commands that use it pay."""
    code = (
        "import sys, trnqc.cli\ntry: trnqc.cli.main(['--help'])\nexcept SystemExit: assert 'pyscf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)


def test_interrupt_while_a_command_is_imported(monkeypatch, capsys):
    def interrupt(_):
        raise KeyboardInterrupt

    monkeypatch.setattr("importlib.import_module", interrupt)
    assert main(["mp2", "water"]) == 130
    assert capsys.readouterr().err == "trnqc: interrupted\n"


def test_warnings_are_one_line_without_code(monkeypatch, capsys):
    monkeypatch.setattr("trnqc.cli.doctor.run", lambda args: warnings.warn("mind the step", stacklevel=1))
    main(["doctor"])
    assert capsys.readouterr().err == "trnqc: warning: mind the step\n"
