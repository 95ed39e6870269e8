"""What all commands share."""

from __future__ import annotations

import subprocess
import sys

import pytest

from trnqc import __version__
from trnqc.cli import COMMANDS, main


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
    assert f"trnqc {name}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["mp2", "--nonsense"]])
def test_usage_errors_are_status_two(arguments, capsys):
    with pytest.raises(SystemExit) as end:
        main(arguments)
    assert end.value.code == 2
    assert "usage: trnqc" in capsys.readouterr().err


def test_help_needs_no_chemistry():
    """PySCF takes a second to import: only commands that use it pay."""
    code = (
        "import sys, trnqc.cli\ntry: trnqc.cli.main(['--help'])\nexcept SystemExit: assert 'pyscf' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, stdout=subprocess.DEVNULL)
