"""Calls of rank 0 that all ranks carry out.

    rank 0: ask(name, arguments) -> result ... end        the others: serve -> the same calls -> the argument of end

Rank 0 alone runs PySCF's loops. Convergence, DIIS and errors are decided there, so that ranks cannot disagree.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

from trnqc.errors import MemoryLimit
from trnqc.ranks import Ranks


class RankCalls:
    """Calls of methods of a subclass by all ranks of a job.

    `done` are the words of the methods that have been called, in the order of their first calls.
    """

    # What the methods compute, in words.
    WORDS: ClassVar[dict[str, str]] = {}

    def __init__(self, ranks: Ranks) -> None:
        self.ranks = ranks
        self.done: dict[str, None] = {}
        self._stage = ""

    @property
    def among(self) -> str:
        """The ranks in words, behind the name of what they run."""
        return f" on each of {self.ranks.size} ranks"

    def ask(self, name: str, *arguments: Any) -> Any:
        """On rank 0, call a method on every rank and return its result."""
        self.ranks.at_first(lambda: (name, arguments))
        if name in self.WORDS:
            self.done[self.WORDS[name]] = None
        return self._call(name, arguments)

    def end(self, result: Any = None) -> Any:
        """On rank 0, have `serve` return `result` on the other ranks."""
        self.clear()
        return self.ranks.at_first(lambda: ("end", result))[1]

    def serve(self) -> Any:
        """On the other ranks, answer the calls of rank 0 until it calls `end`; returns the argument of `end`."""
        while True:
            name, arguments = self.ranks.at_first(_nothing)
            if name == "end":
                self.clear()
                return arguments
            # All ranks run out of the same memory before they exchange anything, and rank 0 decides what follows.
            with suppress(MemoryLimit):
                self._call(name, arguments)

    def clear(self) -> None:
        """Free what this rank keeps for later calls."""

    def _call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        stage = self.WORDS.get(name, self._stage)
        if stage != self._stage:
            self._stage = stage
            self.ranks.at(stage)
        return getattr(self, name)(*arguments)


def _nothing() -> Any:
    """The argument of `at_first` on ranks other than 0, where it is not called."""
