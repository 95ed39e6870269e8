"""Statements written one after another, with names that no other has, and loops as ``with`` blocks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from trnqc.gen import Value, Var
from trnqc.gen import statements as st


class Writer:
    """A body under construction. `constants` are tables that stand before it."""

    def __init__(self) -> None:
        self.body: list[st.Statement] = []
        self._names: Counter[str] = Counter()

    def name(self, hint: str) -> str:
        self._names[hint] += 1
        return f"{hint}_n{self._names[hint]}"

    def add(self, *statements: st.Statement) -> None:
        self.body += statements

    def let(self, hint: str, value: Value) -> Value:
        """A name for the value, unless it has one or is a number."""
        if value.op in ("const", "var"):
            return value
        variable = Var(self.name(hint), value.dtype)
        self.add(st.Let(variable, value))
        return variable

    def declare(self, hint: str, value: Value) -> Value:
        variable = Var(self.name(hint), value.dtype)
        self.add(st.Declare(variable, value))
        return variable

    def barrier(self) -> None:
        self.add(st.Barrier())

    @contextmanager
    def block(self, title: str) -> Iterator[None]:
        outer, self.body = self.body, []
        yield
        inner, self.body = self.body, outer
        self.add(st.block(inner, title=title))

    @contextmanager
    def loop(self, hint: str, end: Value | int, begin: Value | int = 0, step: int = 1) -> Iterator[Value]:
        outer, self.body = self.body, []
        variable = Var(self.name(hint), "i64")
        yield variable
        inner, self.body = self.body, outer
        self.add(st.loop(variable, end, inner, begin=begin, step=step))
