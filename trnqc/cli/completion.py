"""Print a script that completes commands and options in a shell: eval "$(trnqc completion bash)"."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

SHELLS = ("bash", "zsh", "fish")


@dataclass(frozen=True)
class Words:
    """What may follow a command: options with their choices, and choices of arguments without a name."""

    options: Mapping[str, Sequence[str]]
    arguments: Sequence[str]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the shell."""
    parser.add_argument("shell", choices=SHELLS, help="the shell that will read the script")


def run(args: argparse.Namespace) -> int:
    """Print the script."""
    from trnqc.cli import COMMANDS, parser_of

    commands = {name: words_of(parser_of(name)) for name in COMMANDS}
    print({"bash": _bash, "zsh": _zsh, "fish": _fish}[args.shell](commands))
    return 0


def words_of(parser: argparse.ArgumentParser) -> Words:
    """The words that a parser accepts; a value that is no choice is completed as a file name."""
    options: dict[str, Sequence[str]] = {}
    arguments: list[str] = []
    for action in parser._actions:
        choices = [str(choice) for choice in action.choices or ()]
        options |= dict.fromkeys(action.option_strings, choices)
        arguments += choices if not action.option_strings else []
    return Words(options, arguments)


def _bash(commands: Mapping[str, Words]) -> str:
    return "\n".join(
        [
            "_trnqc() {",
            '    local word="${COMP_WORDS[COMP_CWORD]}" before="${COMP_WORDS[COMP_CWORD-1]}" words=""',
            f'    if [ "$COMP_CWORD" -eq 1 ]; then words="{" ".join(commands)} --help --version"; else',
            '    case "${COMP_WORDS[1]} $before" in',
            *(
                f'        "{name} {option}") words="{" ".join(choices)}" ;;'
                for name, option, choices in _chosen(commands)
            ),
            '        *) case "${COMP_WORDS[1]}" in',
            *(f'            {name}) words="{" ".join((*w.arguments, *w.options))}" ;;' for name, w in commands.items()),
            "        esac ;;",
            "    esac; fi",
            '    COMPREPLY=($(compgen -W "$words" -- "$word"))',
            "}",
            "complete -o default -F _trnqc trnqc",
        ]
    )


def _zsh(commands: Mapping[str, Words]) -> str:
    """zsh reads bash's script by its own emulation of bash's completion."""
    return f"autoload -U +X bashcompinit && bashcompinit\n{_bash(commands)}"


def _fish(commands: Mapping[str, Words]) -> str:
    names = " ".join(commands)
    lines = [f"complete -c trnqc -n __fish_use_subcommand -f -a '{names}'"]
    for name, words in commands.items():
        within = f"complete -c trnqc -n '__fish_seen_subcommand_from {name}'"
        if words.arguments:
            lines.append(f"{within} -a '{' '.join(words.arguments)}'")
        for option, choices in words.options.items():
            kind = "l" if option.startswith("--") else "s"
            values = f" -x -a '{' '.join(choices)}'" if choices else ""
            lines.append(f"{within} -{kind} {option.lstrip('-')}{values}")
    return "\n".join(lines)


def _chosen(commands: Mapping[str, Words]) -> Iterator[tuple[str, str, Sequence[str]]]:
    """Command, option and values of every option that has choices."""
    for name, words in commands.items():
        for option, choices in words.options.items():
            if choices:
                yield name, option, choices
