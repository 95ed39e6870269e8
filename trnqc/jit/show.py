"""The stages of a kernel on its way to the compiler, shown to those who write kernels.

TRNQC_SHOW=STAGE:NAME writes a stage of every kernel whose name fits the pattern to standard error when it is asked for:

    program   the generated functions as a listing
    schedule  the same, and in front of each line how many variables live there
    text      the C or CUDA text
    asm       what the compiler made of it, by objdump or cuobjdump
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING

from trnqc.errors import CompilerError, InputError
from trnqc.gen import listing
from trnqc.gen.statements import Function

if TYPE_CHECKING:
    from trnqc.jit.compile import Compilation

VARIABLE = "TRNQC_SHOW"
STAGES = ("program", "schedule", "text", "asm")
# Programs that disassemble a file, by its suffix.
_DISASSEMBLERS = {".cubin": ("cuobjdump", "-sass")}
_OBJDUMP = ("objdump", "-d", "--no-show-raw-insn")
# A line of a listing that makes a variable, and one that opens a loop.
_MAKES = re.compile(r"^ *(?:var )?(\w+)(?:: \w+)? = ")
_LOOP = re.compile(r"^ *(?:for|while)\b")

_shown: set[tuple[str, str, str]] = set()


def wanted(name: str) -> str:
    """The stage that is shown of a kernel, or "". Raises InputError if the variable cannot be read."""
    asked = os.environ.get(VARIABLE, "")
    if not asked:
        return ""
    stage, colon, pattern = asked.partition(":")
    if stage not in STAGES or not colon or not pattern:
        raise InputError(
            f"{VARIABLE} is STAGE:NAME with a stage of {', '.join(STAGES)} and the name of a kernel, which may have "
            f"wildcards; found {asked!r}"
        )
    return stage if fnmatch(name, pattern) else ""


def show(compilation: Compilation) -> None:
    """Write a stage of a compilation once, if it is wanted. Only this stage and those before it are made."""
    name = compilation.recipe.name
    stage = wanted(name)
    if not stage or (key := (stage, name, compilation.target.suffix)) in _shown:
        return
    _shown.add(key)
    if stage == "text":
        body = compilation.text
    elif stage == "asm":
        body = _disassembled(compilation.file)
    else:
        body = "\n".join(map(listing if stage == "program" else with_live_counts, compilation.program))
    sys.stderr.write(f"# {stage} of {name}\n{body.rstrip()}\n")


def with_live_counts(function: Function) -> str:
    """The listings of a function and of those that it calls, with the number of variables that live in each line.

    A variable lives from the line that makes it to the last one that reads it, and to the end of a loop in which it is
    read and before which it is made.
    """
    parts: list[list[str]] = [[]]
    for line in listing(function).splitlines():
        parts[-1].append(line)
        if not line.strip():
            parts.append([])
    counted = (f"{count:4d}  {line}" for part in parts for count, line in zip(_live(part), part))
    return "\n".join(counted)


def _live(lines: Sequence[str]) -> list[int]:
    """The number of variables that live in each line of one function."""
    words = [set(re.findall(r"\w+", line)) for line in lines]
    ends = [_end(lines, n) for n in range(len(lines))]
    live = [0] * len(lines)
    for n, line in enumerate(lines):
        if made := _MAKES.match(line):
            read = max((m for m in range(n + 1, len(lines)) if made[1] in words[m]), default=n)
            loops = (ends[k] for k in range(n + 1, read + 1) if _LOOP.match(lines[k]))
            for m in range(n, max([read, *(end for end in loops if end > read)]) + 1):
                live[m] += 1
    return live


def _end(lines: Sequence[str], start: int) -> int:
    """The last line of the block that a line opens: the lines behind it that are indented further."""
    indent, last = len(lines[start]) - len(lines[start].lstrip()), start
    while last + 1 < len(lines) and len(lines[last + 1]) - len(lines[last + 1].lstrip()) > indent:
        last += 1
    return last


def _disassembled(path: Path) -> str:
    command = _DISASSEMBLERS.get(path.suffix, _OBJDUMP)
    if shutil.which(command[0]) is None:
        raise CompilerError(f"{VARIABLE}=asm needs {command[0]}, which is not installed: ask for the stage text")
    return subprocess.run((*command, str(path)), capture_output=True, text=True, check=True).stdout
