"""Integrals of a batch into J and K: one bra pair (ab, a ket pair cd on every lane.

Of the eight images of (ab|cd) one half is added here; the other is the transpose of the sums:
  J_ab += (ab|cd) D_cd,  J_cd += (ab|cd) D_ab,
  K_ac += (ab|cd) D_bd,  K_ad += (ab|cd) D_bc,  K_bc += (ab|cd) D_ad,  K_bd += (ab|cd) D_ac.
Blocks of D and K lie in memory shell pair by shell pair (layout.py), so that a lane's block is a row to be gathered, or
added, at once. Between a, b and c the sums over d stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.eri.classes import QuartetClass
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma

# Blocks of D and K that a quartet touches: a bra shell's function runs slower.
BLOCKS = ("ac", "ad", "bc", "bd")
# Up to here c is unrolled as well as d.
UNROLLED = 9


@dataclass(frozen=True)
class Operands:
    """What a quartet of contractions is digested with, all but `d_ab` and `j_ab` of lanes.

    out[n_ab, n_cd] are the integrals [na nb, nc nd]; d_ab [na nb] begins at `d_ab_at`, j_ab [na nb] at `j_ab_at`.
    """

    out: Array
    n_ab: Value
    n_cd: Value
    d_ab: Array
    d_ab_at: Value
    j_ab: Array
    j_ab_at: Value


def block_sizes(cls: QuartetClass) -> dict[str, int]:
    """Elements of the blocks of BLOCKS and of cd."""
    size = dict(zip("abcd", cls.extents))
    return {name: size[name[0]] * size[name[1]] for name in (*BLOCKS, "cd")}


def local(cls: QuartetClass, matrix: str, block: str) -> Array:
    """The array of lanes that holds a block of matrix d, j or k during a batch."""
    return Array(f"{matrix}_{block}", "f64", (block_sizes(cls)[block],), "local", lanes=True)


def digest(cls: QuartetClass, given: Operands, with_j: bool, with_k: bool) -> st.Statement:
    """Add a block of integrals to the local blocks and to j_ab."""
    na, nb, nc, nd = cls.extents
    a, b, c = Var("a", "i64"), Var("b", "i64"), Var("c", "i64")
    inner = _Inner(cls, given, a, b, with_j, with_k)
    if nc * nd <= UNROLLED:
        over_c: list[st.Statement] = [s for n in range(nc) for s in inner.row(n, f"_{n}")]
    else:
        over_c = [st.loop(c, nc, inner.row(c, ""))]
    return st.loop(a, na, st.loop(b, nb, inner.opening(), over_c, inner.closing()))


@dataclass(frozen=True)
class _Inner:
    """What is done for one a and b."""

    cls: QuartetClass
    given: Operands
    a: Value
    b: Value
    with_j: bool
    with_k: bool

    def place(self, matrix: str, block: str, second: Value | int) -> Value:
        """An element of a local block whose first index is a or b."""
        row = self.a if block[0] == "a" else self.b
        return local(self.cls, matrix, block)[row * self.cls.extents["abcd".index(block[1])] + second]

    def opening(self) -> list[st.Statement]:
        made: list[st.Statement] = []
        if self.with_j:
            ab = self.a * self.cls.extents[1] + self.b
            made += [st.Let(_D_AB, self.given.d_ab[self.given.d_ab_at + ab]), st.Declare(_J_AB, const(0.0))]
        for d in range(self.cls.extents[3]) if self.with_k else ():
            made += [st.Let(Var(f"{x}_{d}"), self.place("d", x[1:], d)) for x in ("dad", "dbd")]
            made += [st.Declare(Var(f"{x}_{d}"), self.place("k", x[1:], d)) for x in ("kad", "kbd")]
        return made

    def closing(self) -> list[st.Statement]:
        made: list[st.Statement] = []
        if self.with_j:
            ab = self.a * self.cls.extents[1] + self.b
            made.append(st.accumulate(self.given.j_ab[self.given.j_ab_at + ab], _J_AB))
        for d in range(self.cls.extents[3]) if self.with_k else ():
            made += [st.store(self.place("k", x[1:], d), Var(f"{x}_{d}")) for x in ("kad", "kbd")]
        return made

    def row(self, c: Value | int, mark: str) -> list[st.Statement]:
        """All d of one c; mark tells names of one c from those of another."""
        _, nb, _, nd = self.cls.extents
        made: list[st.Statement] = []
        dac, dbc, kac, kbc = (Var(f"{x}{mark}") for x in ("dac", "dbc", "kac", "kbc"))
        if self.with_k:
            made += [st.Let(dac, self.place("d", "ac", c)), st.Let(dbc, self.place("d", "bc", c))]
            made += [st.Declare(kac, self.place("k", "ac", c)), st.Declare(kbc, self.place("k", "bc", c))]
        d_cd, j_cd = local(self.cls, "d", "cd"), local(self.cls, "j", "cd")
        for d in range(nd):
            g = Var(f"g{mark}_{d}")
            cd = c * nd + d
            made.append(st.Let(g, self.given.out[self.given.n_ab, self.given.n_cd, self.a * nb + self.b, cd]))
            if self.with_j:
                made += [_add(_J_AB, g, d_cd[cd]), st.accumulate(j_cd[cd], g * _D_AB)]
            if self.with_k:
                dad, dbd, kad, kbd = (Var(f"{x}_{d}") for x in ("dad", "dbd", "kad", "kbd"))
                made += [_add(kac, g, dbd), _add(kad, g, dbc), _add(kbc, g, dad), _add(kbd, g, dac)]
        if self.with_k:
            made += [st.store(self.place("k", "ac", c), kac), st.store(self.place("k", "bc", c), kbc)]
        return made


_D_AB, _J_AB = Var("dab"), Var("jab")


def _add(total: Value, g: Value, factor: Value) -> st.Statement:
    return st.Assign(total, fma(g, factor, total))
