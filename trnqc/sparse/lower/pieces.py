"""The functions of a program, and what a caller needs to know to run them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from trnqc.gen import Array
from trnqc.gen import statements as st
from trnqc.gen.values import walk
from trnqc.sparse.lower.tensors import ProgramTensors
from trnqc.sparse.network.nest import Nest


@dataclass(frozen=True)
class Piece:
    """One function of a program, whose groups are the turns of an outermost loop.

    Groups are all values of an index (``"index"``), the entries of the outermost level of an operand (``"level"``) or
    of the list of a workspace (``"list"``), or a single group (``"once"``); `of` is the index or the number of the
    tensor. Ranges of groups of a `divisible` function may run at the same time, each with its own workspaces.
    `appends`: it appends elements of a sparse result.
    """

    function: st.Function
    over: Literal["index", "level", "list", "once"]
    of: str | int
    divisible: bool
    appends: bool


@dataclass(frozen=True)
class NestProgram:
    """The functions of a nest, in the order in which they run, and the tensors whose arrays they take.

    Its nest ends with a copy of the result if that has to be sorted, see `network.loops.ordered`.
    """

    tensors: ProgramTensors
    pieces: tuple[Piece, ...]

    @property
    def nest(self) -> Nest:
        """The nest that the functions compute."""
        return self.tensors.nest


def names_in(body: Sequence[st.Statement]) -> set[str]:
    """Return the names of all variables and arrays that statements read or write."""
    return {name for s in body for part in st.statements(s) for name in _own_names(part)}


def _own_names(s: st.Statement) -> Iterator[str]:
    for value in walk(st.values(s)):
        if value.op in ("var", "load"):
            yield st.name_of(value) if value.op == "var" else value.attr.name
    match s:
        case st.Store() | st.Accumulate() | st.Prefetch():
            yield s.array.name
        case st.Unpack() | st.Pack():
            yield from (s.target.name, s.source.name)
        case st.Call():
            yield from (a.name for a in map(st.whole, s.arguments) if isinstance(a, Array))
