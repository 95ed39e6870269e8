"""What programs rely on: exit statuses, JSON on standard output, silence, completion."""

import json
import os
import subprocess
import sys

import pytest

from trnqc.cli import COMMANDS, EXIT_STATUSES, main, parser_of
from trnqc.cli.completion import SHELLS, words_of

WITH_JSON = {
    "mp2": ["mp2", "water", "--basis", "sto-3g"],
    "doctor": ["doctor"],
    "eri": ["eri", "list"],
    "cache": ["cache", "list"],
    "tune": ["tune", "--list"],
}


@pytest.mark.parametrize("words", WITH_JSON.values(), ids=WITH_JSON)
def test_json_on_standard_output_is_all_that_is_printed(words, capsys):
    assert main([*words, "--json", "-"]) == 0
    json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("words", WITH_JSON.values(), ids=WITH_JSON)
def test_quiet_prints_nothing_but_energies_and_still_writes(words, tmp_path, capsys):
    assert main([*words, "--quiet", "--json", str(tmp_path / "facts.json")]) == 0
    assert capsys.readouterr().out.count("\n") == (words[0] == "mp2")
    json.loads((tmp_path / "facts.json").read_text())


@pytest.mark.parametrize("name", sorted(set(COMMANDS) - {"completion"}))
def test_every_command_has_json_quiet_and_verbose(name):
    assert {"--json", "--quiet", "--verbose"} <= set(words_of(parser_of(name)).options)


def test_exit_statuses_are_in_the_help(capsys):
    with pytest.raises(SystemExit) as end:
        main(["--help"])
    assert end.value.code == 0
    assert EXIT_STATUSES.strip() in capsys.readouterr().out


def test_a_reader_that_ends_is_no_error():
    """`trnqc completion bash | head -c 1` ends without a complaint of Python."""
    reader, writer = os.pipe()
    os.close(reader)
    command = [sys.executable, "-c", "import sys; from trnqc.cli import main; sys.exit(main(['completion', 'bash']))"]
    done = subprocess.run(command, stdout=writer, stderr=subprocess.PIPE, text=True, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_knows_every_command(shell, capsys):
    assert main(["completion", shell]) == 0
    script = capsys.readouterr().out
    assert all(name in script for name in COMMANDS)


def completed(script: str, *words: str) -> set[str]:
    """What bash offers for the last of the words."""
    line = " ".join(f"'{word}'" for word in words)
    text = f'{script}\nCOMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _trnqc; printf "%s\\n" "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-c", text], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_values(capsys):
    main(["completion", "bash"])
    script = capsys.readouterr().out
    assert completed(script, "trnqc", "do") == {"doctor"}
    assert completed(script, "trnqc", "mp2", "--fused") == {"--fused-energy"}
    assert completed(script, "trnqc", "mp2", "--reference", "r") == {"rhf", "rohf"}
    assert completed(script, "trnqc", "eri", "b") == {"build"}
