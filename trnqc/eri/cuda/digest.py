"""The digestion on a GPU: integrals of a bra pair with a ket pair on each lane, into the sums of tile.py.

It computes what jk/digest.py computes, with fewer values at once, because registers are what is short. The loop over
the functions a stays a loop, so that of D and K with a shell a one row is held at a time. The numbers of the task, and
the ket pair of each lane, are read again where they are needed, so that no register holds them during the recurrence.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnqc.eri.cuda.tile import Indices, TileSums
from trnqc.eri.jk.batch import Batch, G, N, bra_cleared, coulomb_start, exchange_start, operands_of, settings
from trnqc.eri.jk.digest import block_sizes, digest_one, local
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import lane

# Up to this many functions cd, the loop over c is unrolled.
UNROLLED = 15
# Elements of D, J and K that a lane holds at once, at most, for J and K together: beyond, ptxas spills.
HELD = 70
# The ket pair of each lane, the position of the first one in the queue, and the positions of the queue.
WORKER, J_STEP = Var("worker", "i64"), Var("j_step", "i64")
_AT, FIRST, END = Var("at", "i64"), Var("first", "i64"), Var("end", "i64")


def digestion(batch: Batch, sums: TileSums) -> list[st.Statement]:
    """Return the statements that add a vector of ket pairs, from position `first` of the queue on, to the sums."""
    wanted = [replace(batch, with_k=False), replace(batch, with_j=False)] if apart(batch) else [batch]
    statements: list[st.Statement] = []
    for one in wanted:
        own = replace(sums, batch=one)
        statements += _apart(one, own, "digest", (FIRST, END), [_contractions(one, own)])
    return statements


def apart(batch: Batch) -> bool:
    """Return whether J and K read the integrals one after the other, as registers cannot hold the blocks of both."""
    _, nb, nc, nd = batch.cls.extents
    held = 2 * (nb * (nc + nd) + nc + nd + nc * nd)
    return batch.with_j and batch.with_k and held > HELD


def row_begin(batch: Batch, sums: TileSums) -> list[st.Statement]:
    """Return the statements that clear the lanes' sums for J of the bra pair."""
    return _apart(batch, sums, "row_begin", (), bra_cleared(batch))


def row_end(batch: Batch, sums: TileSums) -> list[st.Statement]:
    """Return the statements that add what is left of the sums after the last ket pair of a bra pair."""
    return _apart(batch, sums, "row_end", (), sums.row())


def _apart(
    batch: Batch,
    sums: TileSums,
    name: str,
    own: tuple[Value | Array, ...],
    body: list[st.Statement],
    outer: bool = True,
) -> list[st.Statement]:
    """Return the call of a function that reads the numbers of the task where they are needed.

    The compiler does not know where they begin, and so cannot read them before. own: what the function reads beside the
    parameters of the driver. outer: whether the caller has the sums of all workers for J of the bra pair.
    """
    begin = Var(f"{name}_{batch.name}_numbers", "i64")
    params = (begin, *own, G, *batch.arrays.values(), *sums.parameters)
    j_ab = batch.arrays["j_ab"]
    given = [st.View(j_ab, begin + WORKER * J_STEP) if outer and p == j_ab else p for p in params]
    # The ket pair of each lane is read again, too.
    at = [st.Let(_AT, batch.arrays["queue"][begin + FIRST + lane()])] * (FIRST in own)
    function = st.Function(f"{name}_{batch.name}", params, st.block(settings(batch, begin), at, body))
    return [st.Declare(begin, const(0, "i64")), st.Fence((begin,)), st.Call(function, tuple(given))]


def _contractions(batch: Batch, sums: TileSums) -> st.Statement:
    """Digest every density with every quartet of contractions."""
    s, ab, cd = Var("s", "i64"), Var("ab", "i64"), Var("cd", "i64")
    if not batch.cls.general:
        zero = const(0, "i64")
        return st.loop(s, N["densities"], _density(batch, sums, Indices(s, zero, zero)))
    inner = st.loop(ab, N["n_ab"], st.loop(cd, N["n_cd"], _density(batch, sums, Indices(s, ab, cd))))
    return st.loop(s, N["densities"], inner)


def _density(batch: Batch, sums: TileSums, indices: Indices) -> list[st.Statement]:
    blocks = [*(["bc", "bd"] * batch.with_k), *(["cd"] * batch.with_j)]
    part = _Part(batch, sums, indices, {block: block_sizes(batch.cls)[block] for block in blocks}, "block")
    return [*part.read(), _functions_a(batch, sums, indices), *part.add()]


def _functions_a(batch: Batch, sums: TileSums, indices: Indices) -> st.Statement:
    """Digest the integrals of one function a after the other."""
    cls = batch.cls
    na, _, nc, nd = cls.extents
    a, count = Var("a", "i64"), Var("functions_a", "i64")
    part = _Part(batch, sums, indices, {"ac": nc, "ad": nd} if batch.with_k else {}, "row", a)
    operands = operands_of(batch, indices.s, indices.ab, indices.cd)
    one = digest_one(cls, operands, a, None, batch.with_j, batch.with_k, UNROLLED)
    # Of a number that it does not know, the compiler leaves the loop a loop.
    opaque = [st.Declare(count, const(na, "i64")), st.Fence((count,))]
    return st.block(part.found(), opaque, st.loop(a, count, part.read(), one, part.add()))


@dataclass(frozen=True)
class _Part:
    """Blocks of D, J and K, or their rows of one function a, that a lane holds at once.

    elements: how many of each block. name: a word for the parts. row: the function a. Where the blocks are is found
    before each use, so that no register holds it in between.
    """

    batch: Batch
    sums: TileSums
    indices: Indices
    elements: dict[str, int]
    name: str
    row: Value | None = None

    def found(self) -> list[st.Statement]:
        """Find where the blocks of the rows are."""
        places: list[st.Statement] = self.sums.vector(_AT, FIRST + lane(), END) if self.elements else []
        for block in self.elements:
            places += [st.Let(Var(f"start_{block}", "i64"), self._start(block)), *self.sums.placed(block, self.indices)]
        return places

    def read(self) -> list[st.Statement]:
        """Read the blocks of D, and clear those of J and K."""
        arrays, i = self.batch.arrays, Var("i", "i64")
        body: list[st.Statement] = []
        for block, n in self.elements.items():
            source = arrays["dm_pairs" if block == "cd" else "dm"]
            start = self._start(block) if self.row is None else Var(f"start_{block}", "i64") + self._shift(n)
            body.append(st.GatherRows(self._array("d", block), source, start, const(n, "i64")))
        declared = [
            st.DeclareArray(a) for block in self.elements for a in (self._array("d", block), self._total(block))
        ]
        zeroed = [st.loop(i, n, st.store(self._total(block)[i], 0.0)) for block, n in self.elements.items()]
        return [*declared, *self._apart("read", [self._array("d", block) for block in self.elements], body), *zeroed]

    def add(self) -> list[st.Statement]:
        """Add the blocks of J and K to the sums."""
        arrays = self.batch.arrays
        body = self.found() if self.row is None else []
        for block, n in self.elements.items():
            memory, start = arrays["vj" if block == "cd" else "vk"], Var(f"start_{block}", "i64")
            body += self.sums.added(block, self._total(block), memory, start, self._shift(n))
        return self._apart("add", [self._total(block) for block in self.elements], body)

    def _shift(self, n: int) -> Value | int:
        return 0 if self.row is None else self.row * n

    def _start(self, block: str) -> Value:
        s, ab, cd = self.indices.s, self.indices.ab, self.indices.cd
        if block == "cd":
            return coulomb_start(self.batch, _AT, s, cd)
        return exchange_start(self.batch, block, _AT, s, ab, cd)

    def _array(self, matrix: str, block: str) -> Array:
        return local(self.batch.cls, matrix, block, rows=None if self.row is None else 1)

    def _total(self, block: str) -> Array:
        return self._array("j" if block == "cd" else "k", block)

    def _apart(self, word: str, arrays: list[Array], body: list[st.Statement]) -> list[st.Statement]:
        if not arrays or self.row is not None:
            return body
        known = (self.indices.s, *([self.indices.ab, self.indices.cd] * self.batch.cls.general))
        own: tuple[Value | Array, ...] = (FIRST, END, *known, *([] if self.row is None else [self.row]), *arrays)
        return _apart(self.batch, self.sums, f"{word}_{self.name}", own, body, outer=False)
