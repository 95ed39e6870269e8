"""Barriers that nothing stands behind: those that follow another one before any lane uses memory that lanes share."""

from __future__ import annotations

from dataclasses import replace

from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.values import walk


def needed(function: st.Function, kernel: bool) -> st.Block:
    """Return the body of a function without barriers that follow another one immediately, on every way to them.

    Between two barriers of which one is left out, no lane reads or writes an array of all lanes. A loop whose body ends
    with a barrier needs none where the body begins. Arrays that a `kernel`, started by the host, only reads are written
    by nobody meanwhile; those of other functions may be arrays in shared memory that the caller writes.
    """
    names = {st.name_of(p) for p in function.params if isinstance(p, Array)}
    unwritten = frozenset(names.difference(function.written)) if kernel else frozenset()
    return _Pass(unwritten).block(function.body, False)[0]


class _Pass:
    """Walks over statements with whether a barrier has passed since memory was used last."""

    def __init__(self, unwritten: frozenset[str]) -> None:
        self.unwritten = unwritten

    def block(self, block: st.Block, clean: bool) -> tuple[st.Block, bool]:
        kept: list[st.Statement] = []
        for s in block.body:
            if isinstance(s, st.Barrier) and clean:
                continue
            s, clean = self.statement(s, clean)
            kept.append(s)
        return replace(block, body=tuple(kept)), clean

    def statement(self, s: st.Statement, clean: bool) -> tuple[st.Statement, bool]:
        match s:
            case st.Barrier():
                return s, True
            case st.Block():
                return self.block(s, clean)
            case st.For() | st.While():
                return self.loop(s, clean and not self.uses(s))
            case st.If():
                clean = clean and not self.uses(s)
                then, first = self.block(s.then, clean)
                orelse, second = self.block(s.orelse, clean)
                return replace(s, then=then, orelse=orelse), first and second
        return s, clean and not self.uses(s)

    def loop(self, s: st.For | st.While, clean: bool) -> tuple[st.Statement, bool]:
        """The state at the head of a loop is that before it and that at the end of its body."""
        body, end = self.block(s.body, clean)
        if clean and not end:
            clean = False
            body, end = self.block(s.body, clean)
        return replace(s, body=body), clean and end

    def uses(self, s: st.Statement) -> bool:
        """Return whether a statement, without those inside it, may use memory that lanes share."""
        match s:
            case st.Store() | st.Accumulate() if s.array.space != "local":
                return True
            case st.GatherRows() | st.ScatterRows() | st.Unpack() | st.Pack() | st.Call():
                return True
        loads = (v.attr for v in walk(st.values(s)) if v.op == "load")
        return any(a.space in ("global", "shared") and a.name not in self.unwritten for a in loads)
