"""The digestion: integrals of one bra pair ab with a ket pair cd on each lane, added to J and K.

Half of the eight integrals equal to (ab|cd) by symmetry are added here; the transpose of the sums is the other half:
  J_ab += (ab|cd) D_cd,  J_cd += (ab|cd) D_ab,
  K_ac += (ab|cd) D_bd,  K_ad += (ab|cd) D_bc,  K_bc += (ab|cd) D_ad,  K_bd += (ab|cd) D_ac.
Blocks of D and K are contiguous in memory (layout.py), so that a lane's block is gathered or scattered at once. The
sums over d stay in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.eri.classes import QuartetClass
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma

# The blocks of D and K that a quartet reads and adds to; the function of the bra's shell is the first index.
BLOCKS = ("ac", "ad", "bc", "bd")
# Up to this many functions cd, the loop over c is unrolled, as that over d always is.
UNROLLED = 9


@dataclass(frozen=True)
class QuartetArrays:
    """The arrays of one quartet of contractions.

    The integrals [na nb, nc nd] are out[n_ab, n_cd], of lanes. For the bra, D [na nb] begins at d_ab[d_ab_at], and J at
    j_ab[j_ab_at].
    """

    out: Array
    n_ab: Value
    n_cd: Value
    d_ab: Array
    d_ab_at: Value
    j_ab: Array
    j_ab_at: Value


def block_sizes(cls: QuartetClass) -> dict[str, int]:
    """Return the elements of the blocks of BLOCKS and of cd."""
    size = dict(zip("abcd", cls.extents))
    return {name: size[name[0]] * size[name[1]] for name in (*BLOCKS, "cd")}


def local(cls: QuartetClass, matrix: str, block: str, rows: int | None = None) -> Array:
    """Return the array of lanes that holds a block of the matrix d, j or k during a batch, or some rows of it."""
    size = dict(zip("abcd", cls.extents))
    rows = size[block[0]] if rows is None else rows
    return Array(f"{matrix}_{block}", "f64", (rows * size[block[1]],), "local", lanes=True)


def digest(cls: QuartetClass, operands: QuartetArrays, with_j: bool, with_k: bool) -> st.Statement:
    """Add a block of integrals to the local blocks and to j_ab."""
    a = Var("a", "i64")
    return st.loop(a, cls.extents[0], digest_one(cls, operands, a, a, with_j, with_k, UNROLLED))


def digest_one(
    cls: QuartetClass, operands: QuartetArrays, a: Value, row: Value | None, with_j: bool, with_k: bool, unrolled: int
) -> st.Statement:
    """Add the integrals of one function a to the local blocks and to j_ab.

    row: the row of a in the local blocks ac and ad, or None if they have only this one. unrolled: up to this many
    functions cd, the loop over c is unrolled.
    """
    _, nb, nc, nd = cls.extents
    b, c = Var("b", "i64"), Var("c", "i64")
    inner = _Inner(cls, operands, a, b, row, with_j, with_k)
    if nc * nd <= unrolled:
        over_c: list[st.Statement] = [s for n in range(nc) for s in inner.row(n, f"_{n}")]
    else:
        over_c = [st.loop(c, nc, inner.row(c, ""))]
    return st.loop(b, nb, inner.opening(), over_c, inner.closing())


@dataclass(frozen=True)
class _Inner:
    """The statements for one a and b."""

    cls: QuartetClass
    operands: QuartetArrays
    a: Value
    b: Value
    row_a: Value | None
    with_j: bool
    with_k: bool

    def place(self, matrix: str, block: str, second: Value | int) -> Value:
        """Return an element of a local block whose first index is a or b."""
        if block[0] == "a" and self.row_a is None:
            return local(self.cls, matrix, block, rows=1)[second]
        row = self.b if block[0] == "b" else self.row_a
        assert row is not None
        return local(self.cls, matrix, block)[row * self.cls.extents["abcd".index(block[1])] + second]

    def opening(self) -> list[st.Statement]:
        statements: list[st.Statement] = []
        if self.with_j:
            ab = self.a * self.cls.extents[1] + self.b
            statements += [st.Let(_D_AB, self.operands.d_ab[self.operands.d_ab_at + ab]), st.Declare(_J_AB, const(0.0))]
        for d in range(self.cls.extents[3]) if self.with_k else ():
            statements += [st.Let(Var(f"{x}_{d}"), self.place("d", x[1:], d)) for x in ("dad", "dbd")]
            statements += [st.Declare(Var(f"{x}_{d}"), self.place("k", x[1:], d)) for x in ("kad", "kbd")]
        return statements

    def closing(self) -> list[st.Statement]:
        statements: list[st.Statement] = []
        if self.with_j:
            ab = self.a * self.cls.extents[1] + self.b
            statements.append(st.accumulate(self.operands.j_ab[self.operands.j_ab_at + ab], _J_AB))
        for d in range(self.cls.extents[3]) if self.with_k else ():
            statements += [st.store(self.place("k", x[1:], d), Var(f"{x}_{d}")) for x in ("kad", "kbd")]
        return statements

    def row(self, c: Value | int, mark: str) -> list[st.Statement]:
        """Digest all d of one c. mark: distinguishes the variables of one c from those of another."""
        _, nb, _, nd = self.cls.extents
        statements: list[st.Statement] = []
        dac, dbc, kac, kbc = (Var(f"{x}{mark}") for x in ("dac", "dbc", "kac", "kbc"))
        if self.with_k:
            statements += [st.Let(dac, self.place("d", "ac", c)), st.Let(dbc, self.place("d", "bc", c))]
            statements += [st.Declare(kac, self.place("k", "ac", c)), st.Declare(kbc, self.place("k", "bc", c))]
        d_cd, j_cd = local(self.cls, "d", "cd"), local(self.cls, "j", "cd")
        for d in range(nd):
            g = Var(f"g{mark}_{d}")
            cd = c * nd + d
            statements.append(
                st.Let(g, self.operands.out[self.operands.n_ab, self.operands.n_cd, self.a * nb + self.b, cd])
            )
            if self.with_j:
                statements += [_add(_J_AB, g, d_cd[cd]), st.accumulate(j_cd[cd], g * _D_AB)]
            if self.with_k:
                dad, dbd, kad, kbd = (Var(f"{x}_{d}") for x in ("dad", "dbd", "kad", "kbd"))
                statements += [_add(kac, g, dbd), _add(kad, g, dbc), _add(kbc, g, dad), _add(kbd, g, dac)]
        if self.with_k:
            statements += [st.store(self.place("k", "ac", c), kac), st.store(self.place("k", "bc", c), kbc)]
        return statements


_D_AB, _J_AB = Var("dab"), Var("jab")


def _add(total: Value, g: Value, factor: Value) -> st.Statement:
    return st.Assign(total, fma(g, factor, total))
