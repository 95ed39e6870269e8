"""Ranks of a program, forked from one process that has imported what they need.

Importing PyTorch, PySCF and trnqc takes a rank longer than most programs of the tests, so it is done once for all of
them. Each rank is a process of its own, with the environment that a launcher would give it.
"""

from __future__ import annotations

import multiprocessing
import os
import runpy
import sys
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

IMPORTED = [
    "pytest",
    "torch",
    "torch.distributed",
    "pyscf.gto",
    "pyscf.scf",
    "pyscf.df",
    "trnqc.mp2.run",
    "trnqc.cli",
    "trnqc.eri.jk.builder",
    "trnqc.contraction.ranks.distributed",
    "trnqc.ranks.transport",
]


class Rank:
    """One process that runs the program at `path`; ``ended`` gives its status, output and errors."""

    def __init__(self, path: Path, arguments: list[str], environment: dict[str, str]) -> None:
        context = multiprocessing.get_context("forkserver")
        context.set_forkserver_preload(IMPORTED)
        # Libraries read the number of their threads when they are loaded.
        with mock.patch.dict(os.environ, OMP_NUM_THREADS="1"):
            forkserver.ensure_running()
        self.written = [path.with_name(f"{environment['RANK']}.{name}") for name in ("out", "err")]
        task = (str(path), arguments, environment, list(map(str, self.written)))
        self.process = context.Process(target=_run, args=task)
        self.process.start()

    def ended(self, seconds: float) -> tuple[int | None, str, str]:
        """(status, output, errors); the status is None if it has not ended within the time."""
        self.process.join(seconds)
        out, err = (path.read_text() if path.exists() else "" for path in self.written)
        return self.process.exitcode, out, err

    def kill(self) -> None:
        self.process.kill()
        self.process.join()


def _run(path: str, arguments: list[str], environment: dict[str, str], written: list[str]) -> None:
    os.environ.clear()
    os.environ.update(environment)
    for number, name in enumerate(written, start=1):
        opened = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(opened, number)
        os.close(opened)
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
