"""Couplings of y, formed by the lanes together, and the gradients of y, summed over the lanes."""

from __future__ import annotations

from trnqc.cg.cuda.couplings import Couplings, Form
from trnqc.cg.cuda.memory import Memory
from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.values import cast, fma, minimum


class Coupled(Memory):
    """What a kernel does with y."""

    def table(self, hint: str, dtype: str, data: tuple[float, ...]) -> Array:
        key = (float(dtype == "i32"), *data)
        if key not in self.tables:
            self.tables[key] = Array(f"{hint}_{len(self.tables)}", dtype, (len(data),), space="constant", data=data)
        return self.tables[key]

    def couple(self, table: Couplings, v: Value | None = None) -> None:
        """Every lane forms some of the couplings; also clears the lane's part of gy."""
        write, count = self.write, len(table.forms)
        size = -(-count // self.wide) * self.wide
        terms = max(map(len, table.forms))
        nothing: Form = ((0, 0.0),) * terms
        padded = [(form + nothing)[:terms] for form in table.forms] + [nothing] * (size - count)
        which = self.table("y_of", "i32", tuple(form[t][0] for t in range(terms) for form in padded))
        factor = self.table("c_of", self.dtype, tuple(form[t][1] for t in range(terms) for form in padded))
        write.barrier()
        for source, into in (("y", "a"), ("ggy", "b")) if self.work.double else (("y", "a"),):
            base = write.let("at_y", self.row(source) * self.problem.dims[1])
            base = base if v is None else write.let("at_y", base + v * table.step)
            for r in range(size // self.wide):
                total: Value | None = None
                at = self.lane + r * self.wide
                for t in range(terms):
                    y = self.array(source)[base + cast(which[at + t * size], "i64")]
                    total = factor[at + t * size] * y if total is None else fma(factor[at + t * size], y, total)
                assert total is not None
                write.add(st.store(self.shared[into][at], total))
        if "gy" in self.work.writes:
            partial, mine = self.shared["partial"], self.lane * (len(table.y) | 1)
            write.add(*(st.store(partial[mine + j], self.zero()) for j in range(len(table.y))))
        write.barrier()

    def flush(self, table: Couplings, v: Value) -> None:
        """Add the lanes' parts of gy up, and to the edge's row."""
        write, count = self.write, len(table.y)
        pitch, size = count | 1, -(-count // self.wide) * self.wide
        where = self.table("y_at", "i32", table.y + table.y[-1:] * (size - count))
        base = write.let("at_gy", self.row("gy") * self.problem.dims[1] + v * table.step)
        write.barrier()
        for r in range(size // self.wide):
            at = self.lane + r * self.wide
            total = write.declare("total", self.zero())
            with write.loop("l", self.wide) as other:
                part = self.shared["partial"][other * pitch + minimum(at, count - 1)]
                write.add(st.Assign(total, total + part))
            element = self.array("gy")[base + cast(where[at], "i64")]
            old = write.let("old", element)
            # Lanes that repeat the last element read it before any of them writes.
            write.barrier()
            write.add(st.store(element, old + total))
        write.barrier()
