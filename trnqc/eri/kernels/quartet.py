"""The kernel of a class of shell quartets: contracted integrals of one bra pair with a lane's ket pair each.

primitive quartet: prefactor, Boys values (boys.py) -> [e0|f0] (vertical.py or columns.py), added up in memory
contracted quartet: -> (ab|cd) (horizontal.py)

Lanes run over ket pairs, the bra pair is the same on all. Of a generally contracted class the recurrence of a primitive
quartet runs once: its targets are added to a set for each ket contraction, and these, once a bra primitive, to a set
for each pair of contractions.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, partial

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P, QuartetClass
from trnqc.eri.kernels import boys, columns, horizontal, vertical
from trnqc.eri.kernels.recurrence import (
    BRA,
    FITTED,
    HALF_BOTH,
    HALVES,
    KET,
    SHIFTS,
    components,
    fewest_flops,
    recurrence,
)
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, either, eq, fma, le, lt, minimum
from trnqc.jit import Recipe


@dataclass(frozen=True)
class Parameters:
    """Of a kernel, in order.

    bra f64 [n_bra, 6 or 6 + n_ab], bra_centre f64 [6] = A, A - B; ket f64 lanes [n_ket, 6 or 6 + n_cd], ket_centre f64
    lanes [6] = C, C - D: records of classes.py. ket_bound f64 [n_ket + 1]: the largest BOUND of a row over the lanes,
    falling; the last entry is read, and any number. Lanes without a pair have COEFFICIENT 0 and ZETA 1.
    n_ab, n_cd: pairs of contractions, 1 in a segmented class; a segmented side of a general class has 1.0 at
    CONTRACTION. cutoff: primitive quartets with a product of BOUNDs below it are left out. omega: of the operator,
    bohr^-1. boys: `boys.table(cls.order)`. work f64 lanes [work_size(...)] may hold anything.
    out f64 lanes [n_ab, n_cd, na nb, nc nd] is overwritten.
    """

    n_bra: Value
    bra: Array
    bra_centre: Array
    n_ket: Value
    ket: Array
    ket_centre: Array
    ket_bound: Array
    n_ab: Value
    n_cd: Value
    cutoff: Value
    omega: Value
    boys: Array
    work: Array
    out: Array

    @property
    def all(self) -> tuple[Value | Array, ...]:
        return tuple(vars(self).values())


def parameters(cls: QuartetClass) -> Parameters:
    n_bra, n_ket, n_ab, n_cd = (Var(name, "i64") for name in ("n_bra", "n_ket", "n_ab", "n_cd"))
    wide_ab, wide_cd = (n + CONTRACTION if cls.general else CONTRACTION for n in (n_ab, n_cd))
    na, nb, nc, nd = cls.extents
    table = boys.table_array(cls.order)
    return Parameters(
        n_bra, Array("bra", "f64", (n_bra, wide_ab)), Array("bra_centre", "f64", (6,)),
        n_ket, Array("ket", "f64", (n_ket, wide_cd), lanes=True), Array("ket_centre", "f64", (6,), lanes=True),
        Array("ket_bound", "f64", (n_ket + 1,)), n_ab, n_cd, Var("cutoff"), Var("omega"),
        Array("boys", "f64", table.shape), Array("work", "f64", (None,), lanes=True),
        Array("out", "f64", (n_ab, n_cd, na * nb, nc * nd), lanes=True),
    )  # fmt: skip


@dataclass(frozen=True)
class Places:
    """Where `work` holds what: targets [n_ab, n_cd, n_t], ket sums [n_cd, n_t], a primitive's targets, scratch."""

    cls: QuartetClass
    n_ab: Value | int
    n_cd: Value | int

    @property
    def targets(self) -> int:
        la, lb, lc, ld = self.cls.shells
        return len(components(la, lb)) * len(components(lc, ld))

    @property
    def ket_sums(self) -> Value | int:
        return self.n_ab * self.n_cd * self.targets if self.cls.general else self.targets

    @property
    def primitive(self) -> Value | int:
        return self.ket_sums + self.n_cd * self.targets if self.cls.general else self.ket_sums

    @property
    def scratch(self) -> Value | int:
        return self.primitive + self.targets if self.cls.general else self.primitive

    @property
    def size(self) -> Value | int:
        shells = self.cls.shells
        fitted = columns.scratch_size(*shells, fitted=True) if self.cls.ld == 0 else 0
        own = max(columns.scratch_size(*shells), fitted, horizontal.scratch_size(*shells, self.cls.cartesian))
        return self.scratch + own


def work_size(cls: QuartetClass, n_ab: int, n_cd: int) -> int:
    """Elements, of one lane, of the kernel's parameter `work`."""
    size = Places(cls, n_ab, n_cd).size
    assert isinstance(size, int)
    return size


TIERS = ("straight", "columns")
# Nodes of the graph that a kernel has as straight-line code; what is larger takes compilers too long, and that of a
# fitting shell more time to run.
LARGEST, LARGEST_FITTED = 6000, 4000


@dataclass(frozen=True)
class Variant:
    """What else can be chosen of a kernel; the defaults suit CPUs.

    rule, method, draws: of the tier "straight", see there. space: where a segmented class keeps its targets: "global"
    in work, "shared" or "local", which are registers if these suffice. peeled: the first primitive quartet has code of
    its own, which stores, so that nothing is cleared. fused, unrolled: see `horizontal.phase2`.
    """

    rule: str = ""
    method: str = ""
    draws: int = 1
    space: str = "global"
    peeled: bool = True
    fused: bool = True
    unrolled: bool | None = None

    def targets(self, cls: QuartetClass) -> Array | None:
        """The array of the targets, unless it is in work."""
        la, lb, lc, ld = cls.shells
        shape = (len(components(la, lb)), len(components(lc, ld)))
        kept = self.space != "global" and not cls.general
        return Array("h", "f64", shape, self.space, lanes=self.space != "local") if kept else None


STANDARD = Variant()


def _kept(cls: QuartetClass, p: Parameters, variant: Variant) -> Array | st.View | None:
    """Where the targets are, unless in work: in out if they are the integrals already."""
    if cls.general or variant.space != "global" or horizontal.stages(*cls.shells, cls.cartesian):
        return variant.targets(cls)
    return st.View(p.out, const(0, "i64"))


@cache
def tier_of(cls: QuartetClass, variant: Variant = STANDARD) -> str:
    """The faster of the tiers that compile in civil time: straight-line code if there is not too much of it."""
    most = (LARGEST_FITTED if variant.rule == FITTED else LARGEST) // (2 if variant.peeled and not cls.general else 1)
    if Places(cls, 1, 1).targets > most:
        return "columns"
    graph = recurrence(*cls.shells, variant.rule or fewest_flops(*cls.shells)).graph
    return "straight" if len(graph) <= most else "columns"


@cache
def primitive_function(cls: QuartetClass, tier: str = "", add: bool = True, variant: Variant = STANDARD) -> st.Function:
    """The recurrence of a primitive quartet in a tier of TIERS, which adds to its targets or stores them."""
    if (tier or tier_of(cls, variant)) == "columns":
        return columns.vertical(*cls.shells, add=add, fitted=variant.rule == FITTED)
    space = "global" if cls.general else variant.space
    chosen = {"rule": variant.rule, "method": variant.method, "draws": variant.draws, "space": space}
    return vertical.straight(*cls.shells, add=add, **chosen)  # type: ignore[arg-type]


@cache
def quartet_function(cls: QuartetClass, tier: str = "", variant: Variant = STANDARD) -> st.Function:
    """The kernel, named `cls.name`, with the parameters of `Parameters`. tier: of TIERS, by default `tier_of`."""
    p = parameters(cls)
    i = Var("i", "i64")
    places = Places(cls, p.n_ab, p.n_cd)
    per_bra = [st.Let(Var(f"bra_{word}"), p.bra[i, at]) for word, at in _WORDS]
    per_bra += [st.Let(SHIFTS[BRA][n][0], _BRA[f"P{x}"] - p.bra_centre[n]) for n, x in enumerate("xyz")]
    per_bra += [st.Let(HALVES[BRA], 0.5 / _BRA["zeta"])]
    kets = _general_kets(cls, p, places, tier, variant, i) if cls.general else _kets(cls, p, places, tier, variant, i)
    # Rows are ordered by BOUND: after the first that is too small for every ket none is large enough.
    enough = both(lt(i, p.n_bra), le(p.cutoff, p.bra[minimum(i, p.n_bra - 1), BOUND] * p.ket_bound[0]))
    bras = st.While(either(eq(i, 0), enough), st.block(per_bra, kets, st.Assign(i, i + 1)))
    begin = _begin(cls, p, places, variant)
    body = [*begin, st.Declare(i, const(0, "i64")), bras, *_contracted(cls, p, places, variant)]
    return st.Function(cls.name, p.all, st.block(body), title=f"({cls.digits}) integrals, {cls.operator}")


# The order from which on the kernel takes a compiler longer than what is around it; smaller ones are compiled with each
# program that calls them, so that the call costs nothing.
SHARED = 5


def parts(cls: QuartetClass) -> tuple[Recipe, ...]:
    """The kernel of a class as a part of the programs that call it, where it is compiled apart from them."""
    return (Recipe(cls.name, (), partial(_functions, cls), __name__),) if cls.order >= SHARED else ()


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (quartet_function(cls),)


_WORDS = (("zeta", ZETA), ("Px", P), ("Py", P + 1), ("Pz", P + 2), ("coefficient", COEFFICIENT), ("bound", BOUND))
_BRA = {word: Var(f"bra_{word}") for word, _ in _WORDS}
_KET = {word: Var(f"ket_{word}") for word, _ in _WORDS}


def _begin(cls: QuartetClass, p: Parameters, places: Places, variant: Variant) -> list[st.Statement]:
    """Targets that are not in work are introduced, and cleared if the first primitive quartet does not store."""
    h, n = _kept(cls, p, variant), Var("n", "i64")
    made: list[st.Statement] = [st.DeclareArray(h)] if isinstance(h, Array) else []
    if cls.general or variant.peeled:
        return made
    zero = const(0.0)
    if isinstance(h, Array) and h.space == "local":
        return made + [st.Store(h, const(k, "i64"), zero) for k in range(places.targets)]
    array = h.array if isinstance(h, st.View) else h or p.work
    return [*made, st.loop(n, places.targets, st.Store(array, n, zero))]


def _kets(
    cls: QuartetClass, p: Parameters, places: Places, tier: str, variant: Variant, i: Value
) -> list[st.Statement]:
    """The loop over ket primitives for one of the bra."""
    j = Var("j", "i64")

    def step(add: bool) -> st.Block:
        function = primitive_function(cls, tier, add, variant)
        return st.block(_primitive(cls, p, places, function, j, _kept(cls, p, variant)), st.Assign(j, j + 1))

    first = [st.If(eq(i, 0), step(False))] if variant.peeled else []
    return [st.Declare(j, const(0, "i64")), *first, st.While(_large(p, j), step(True))]


def _general_kets(
    cls: QuartetClass, p: Parameters, places: Places, tier: str, variant: Variant, i: Value
) -> list[st.Statement]:
    """The same for a general class: to sums over ket primitives, and of these to the targets."""
    j, cd, ab, t = (Var(name, "i64") for name in ("j", "cd", "ab", "t"))
    n, many = places.targets, p.n_cd * places.targets
    to_ket = _shared(j, cd, p.n_cd, p.ket, t, n, places.ket_sums, places.primitive, p.work)
    to_bra = _shared(i, ab, p.n_ab, p.bra, t, many, 0, places.ket_sums, p.work)
    step = _primitive(cls, p, places, primitive_function(cls, tier, False, variant), j)
    within = st.While(either(eq(j, 0), _large(p, j)), st.block(step, to_ket, st.Assign(j, j + 1)))
    return [st.Declare(j, const(0, "i64")), within, to_bra]


def _large(p: Parameters, j: Value) -> Value:
    return both(lt(j, p.n_ket), le(p.cutoff, _BRA["bound"] * p.ket_bound[j]))


def _shared(row: Value, c: Value, count: Value, records: Array, t: Value, n: Value | int, to: Value | int,
            source: Value | int, work: Array) -> st.Statement:  # fmt: skip
    """A primitive's n values times the coefficient of each contraction c, the first stored and others added."""
    share = Var("share")
    place, value = work[c * n + t + to], share * work[t + source]
    begin, more = (st.block(st.loop(t, n, put(place, value))) for put in (st.store, st.accumulate))
    return st.loop(c, count, st.Let(share, records[row, c + CONTRACTION]), st.If(eq(row, 0), begin, more))


def _primitive(
    cls: QuartetClass, p: Parameters, places: Places, vertical_step: st.Function, j: Value,
    h: Array | st.View | None = None,
) -> list[st.Statement]:  # fmt: skip
    """One primitive quartet: its coefficients, Boys values and recurrence to h, by default in work."""
    made: list[st.Statement] = []

    def let(variable: Value | str, value: Value) -> Value:
        variable = variable if isinstance(variable, Value) else Var(variable)
        made.append(st.Let(variable, value))
        return variable

    for word, at in _WORDS[:-1]:
        let(_KET[word], p.ket[j, at])
    zeta, eta = _BRA["zeta"], _KET["zeta"]
    # One division gives 1/eta and 1/(zeta + eta).
    total = let("total", zeta + eta)
    inverse = let("inverse", 1.0 / (total * eta))
    let(HALVES[KET], 0.5 * (inverse * total))
    let(HALF_BOTH, HALVES[BRA] * HALVES[KET])
    rho = let("rho", zeta * eta * (inverse * eta))
    between = [let(f"PQ_{x}", _BRA[f"P{x}"] - _KET[f"P{x}"]) for x in "xyz"]
    for n, x in enumerate("xyz"):
        let(SHIFTS[BRA][n][1], -(HALVES[BRA] * between[n]))
        let(SHIFTS[KET][n][0], _KET[f"P{x}"] - p.ket_centre[n])
        let(SHIFTS[KET][n][1], HALVES[KET] * between[n])
    distance = let("distance", fma(between[0], between[0], fma(between[1], between[1], between[2] * between[2])))
    factor = let("factor", _BRA["coefficient"] * _KET["coefficient"])
    values = Array("values", "f64", (cls.order + 1,), "local")
    made.append(st.DeclareArray(values))
    made += boys.values(cls.order, cls.operator, factor, total, rho, distance, p.omega, p.boys, values)
    own = vertical.parameters(*cls.shells)
    into = h or st.view(p.work[places.primitive if cls.general else 0])
    made.append(st.Call(vertical_step, (*own[:-3], values, into, st.view(p.work[places.scratch]))))
    return made


def _contracted(cls: QuartetClass, p: Parameters, places: Places, variant: Variant) -> list[st.Statement]:
    """From targets to integrals, for every pair of contractions."""
    kept = _kept(cls, p, variant)
    if isinstance(kept, st.View):
        return []
    space = kept.space if kept else "global"
    # Registers have no indices: what is in them is worked on without loops.
    unrolled = True if space == "local" else variant.unrolled
    final = horizontal.phase2(*cls.shells, cls.cartesian, fused=variant.fused, unrolled=unrolled, space=space)
    ab, cd = Var("ab", "i64"), Var("cd", "i64")
    scratch = st.view(p.work[places.scratch])

    def one(ab: Value | int, cd: Value | int) -> st.Statement:
        h = kept or st.view(p.work[(ab * p.n_cd + cd) * places.targets if cls.general else 0])
        return st.Call(final, (h, p.bra_centre, p.ket_centre, scratch, st.view(p.out[ab, cd, 0, 0])))

    return [st.loop(ab, p.n_ab, st.loop(cd, p.n_cd, one(ab, cd)))] if cls.general else [one(0, 0)]
