"""The kernel of a class of shell quartets: contracted integrals of one bra pair with one ket pair on each lane.

for each primitive quartet:  prefactor, Boys values (boys.py) -> [e0|f0] (vertical.py or columns.py), summed in memory
for the contracted quartet:  [e0|f0] -> (ab|cd) (horizontal.py)

The lanes run over ket pairs and share the bra pair. In a generally contracted class the recurrence of a primitive
quartet runs once. Its targets are added to one set for each ket contraction; after the last ket primitive of each bra
primitive, these are added to one set for each pair of contractions.
"""

from __future__ import annotations

from functools import cache, partial

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P, QuartetClass
from trnqc.eri.kernels import boys, horizontal, vertical
from trnqc.eri.kernels.parameters import KernelParameters, WorkLayout, parameters
from trnqc.eri.kernels.recurrence import BRA, HALF_BOTH, HALVES, KET, SHIFTS
from trnqc.eri.kernels.variants import STANDARD, Variant, primitive_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, either, eq, fma, le, lt, minimum
from trnqc.jit import Recipe

# The columns of a record that a primitive quartet reads, by the names of the variables that hold them.
_COLUMNS = (("zeta", ZETA), ("Px", P), ("Py", P + 1), ("Pz", P + 2), ("coefficient", COEFFICIENT), ("bound", BOUND))
_BRA = {name: Var(f"bra_{name}") for name, _ in _COLUMNS}
_KET = {name: Var(f"ket_{name}") for name, _ in _COLUMNS}
# The bra primitive.
_I = Var("i", "i64")

# The order of a class from which on its kernel takes a compiler longer than the code around it. Smaller kernels are
# compiled with each program that calls them, so that the call costs nothing.
SHARED = 5


def parts(cls: QuartetClass) -> tuple[Recipe, ...]:
    """Return the kernel as a part that several programs link to, if it is worth compiling apart from them."""
    return (Recipe(cls.name, (), partial(_functions, cls), __name__),) if cls.order >= SHARED else ()


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (quartet_function(cls),)


def quartet_function(cls: QuartetClass, form: str = "", variant: Variant = STANDARD) -> st.Function:
    """Build the kernel `cls.name` of `KernelParameters`. form: one of FORMS, by default `form_of`."""
    return _quartet_function(cls, form, variant)


@cache
def _quartet_function(cls: QuartetClass, form: str, variant: Variant) -> st.Function:
    p = parameters(cls)
    work, h = WorkLayout(cls, p.n_ab, p.n_cd), _targets(cls, p, variant)
    kets = _general_kets(cls, p, work, form, variant) if cls.general else _kets(cls, p, work, form, variant, h)
    opening = _declared_targets(cls, p, work, variant, h)
    body = [*opening, *_bras(p, kets), *_contracted(cls, p, work, variant, h)]
    return st.Function(cls.name, p.all, st.block(body), title=f"({cls.digits}) integrals, {cls.operator}")


@cache
def targets_function(cls: QuartetClass, form: str, variant: Variant) -> st.Function:
    """Build the first half of the kernel of a segmented class, which leaves the targets [e0|f0] at the start of `work`.

    It has the parameters of the kernel but `out`. `horizontal.horizontal_function` is the second half.
    """
    p = parameters(cls)
    work = WorkLayout(cls, p.n_ab, p.n_cd)
    kets = _kets(cls, p, work, form, variant, None)
    body = st.block(_declared_targets(cls, p, work, variant, None), _bras(p, kets))
    return st.Function(f"{cls.name}_targets", p.all[:-1], body, title=f"({cls.digits}) targets, {cls.operator}")


def _bras(p: KernelParameters, kets: list[st.Statement]) -> list[st.Statement]:
    """Loop over the bra primitives, with the loop over the ket primitives of each."""
    # Primitive pairs are ordered by BOUND: after the first that is too small for every ket, none is large enough.
    large = both(lt(_I, p.n_bra), le(p.cutoff, p.bra[minimum(_I, p.n_bra - 1), BOUND] * p.ket_bound[0]))
    step = st.block(bra_primitive(p.bra, p.bra_centre, _I), kets, st.Assign(_I, _I + 1))
    return [st.Declare(_I, const(0, "i64")), st.While(either(eq(_I, 0), large), step)]


def _targets(cls: QuartetClass, p: KernelParameters, variant: Variant) -> Array | st.View | None:
    """Return where the targets are, None for work: in `out` if they are the integrals already."""
    if cls.general or variant.space != "global" or horizontal.stages(*cls.shells, cls.cartesian):
        return variant.targets(cls)
    return st.View(p.out, const(0, "i64"))


def _declared_targets(
    cls: QuartetClass, p: KernelParameters, work: WorkLayout, variant: Variant, h: Array | st.View | None
) -> list[st.Statement]:
    """Declare targets that are not in work, and clear them unless the first primitive quartet stores its own."""
    n = Var("n", "i64")
    declared: list[st.Statement] = [st.DeclareArray(h)] if isinstance(h, Array) else []
    if cls.general or variant.peeled:
        return declared
    zero = const(0.0)
    if isinstance(h, Array) and h.space == "local":
        return declared + [st.Store(h, const(k, "i64"), zero) for k in range(work.targets)]
    array = h.array if isinstance(h, st.View) else h or p.work
    return [*declared, st.loop(n, work.targets, st.Store(array, n, zero))]


def _kets(
    cls: QuartetClass, p: KernelParameters, work: WorkLayout, form: str, variant: Variant, h: Array | st.View | None
) -> list[st.Statement]:
    """Loop over the ket primitives of one bra primitive, in a segmented class with targets in h."""
    j = Var("j", "i64")

    into = h or st.view(p.work[0])

    def step(add: bool) -> st.Block:
        function = primitive_function(cls, form, add, variant)
        return st.block(_primitive(cls, p, work, function, j, into), st.Assign(j, j + 1))

    first = [st.If(eq(_I, 0), step(False))] if variant.peeled else []
    return [st.Declare(j, const(0, "i64")), *first, st.While(_large(p, j), step(True))]


def _general_kets(
    cls: QuartetClass, p: KernelParameters, work: WorkLayout, form: str, variant: Variant
) -> list[st.Statement]:
    """Loop over the ket primitives of one bra primitive, in a general class."""
    j, cd, ab = (Var(name, "i64") for name in ("j", "cd", "ab"))
    n, many = work.targets, p.n_cd * work.targets
    to_ket = _distributed(p, p.ket, j, cd, p.n_cd, n, source=work.primitive, target=work.ket_sums)
    to_bra = _distributed(p, p.bra, _I, ab, p.n_ab, many, source=work.ket_sums, target=0)
    into = st.view(p.work[work.primitive])
    step = _primitive(cls, p, work, primitive_function(cls, form, False, variant), j, into)
    loop = st.While(either(eq(j, 0), _large(p, j)), st.block(step, to_ket, st.Assign(j, j + 1)))
    return [st.Declare(j, const(0, "i64")), loop, to_bra]


def _large(p: KernelParameters, j: Value) -> Value:
    """Return whether the ket primitive j matters; so do all before it."""
    return primitive_matters(j, p.n_ket, p.ket_bound, p.cutoff)


def _distributed(
    p: KernelParameters,
    records: Array,
    primitive: Value,
    c: Value,
    count: Value,
    n: Value | int,
    source: Value | int,
    target: Value | int,
) -> st.Statement:
    """Add n values of a primitive, times its coefficient, to the values of each contraction; the first primitive
    stores.
    """
    t, share = Var("t", "i64"), Var("share")
    element, value = p.work[c * n + t + target], share * p.work[t + source]
    store, add = (st.block(st.loop(t, n, put(element, value))) for put in (st.store, st.accumulate))
    return st.loop(c, count, st.Let(share, records[primitive, c + CONTRACTION]), st.If(eq(primitive, 0), store, add))


def _primitive(
    cls: QuartetClass, p: KernelParameters, work: WorkLayout, function: st.Function, j: Value, into: Array | st.View
) -> list[st.Statement]:
    """Compute one primitive quartet of a class into its targets."""
    scratch = st.view(p.work[work.scratch])
    record = (p.ket, p.ket_centre)
    return primitive_quartet(cls.shells, cls.operator, function, record, j, p.omega, p.boys, into, scratch)


def bra_primitive(records: Array, centre: Array, i: Value) -> list[st.Statement]:
    """Return statements that read primitive i of a bra pair, for `primitive_quartet`."""
    reads = [st.Let(_BRA[name], records[i, column]) for name, column in _COLUMNS]
    shifts = [st.Let(SHIFTS[BRA][n][0], _BRA[f"P{x}"] - centre[n]) for n, x in enumerate("xyz")]
    return [*reads, *shifts, st.Let(HALVES[BRA], 0.5 / _BRA["zeta"])]


def primitive_matters(j: Value, n_ket: Value, ket_bound: Array, cutoff: Value) -> Value:
    """Return whether primitive j of the kets matters with the primitive that `bra_primitive` read."""
    return both(lt(j, n_ket), le(cutoff, _BRA["bound"] * ket_bound[j]))


def primitive_quartet(
    shells: tuple[int, int, int, int],
    operator: str,
    function: st.Function,
    ket: tuple[Array, Array],
    j: Value,
    omega: Value,
    table: Array,
    into: Array | st.View,
    scratch: st.View,
) -> list[st.Statement]:
    """Return statements for one primitive quartet: its coefficients, Boys values and recurrence.

    `function` is the vertical recurrence (`vertical.parameters`), `ket` the records of the ket pairs with C and C - D,
    `j` the primitive, `omega` is in 1/Bohr, and `table` is that of the Boys function. `bra_primitive` reads the bra.
    `into` are the targets, `scratch` memory of the recurrence.
    """
    statements: list[st.Statement] = []
    records, centre = ket

    def let(variable: Value | str, value: Value) -> Value:
        variable = variable if isinstance(variable, Value) else Var(variable)
        statements.append(st.Let(variable, value))
        return variable

    for name, column in _COLUMNS[:-1]:
        let(_KET[name], records[j, column])
    zeta, eta = _BRA["zeta"], _KET["zeta"]
    # One division gives 1/eta and 1/(zeta + eta).
    total = let("total", zeta + eta)
    inverse = let("inverse", 1.0 / (total * eta))
    let(HALVES[KET], 0.5 * (inverse * total))
    let(HALF_BOTH, HALVES[BRA] * HALVES[KET])
    rho = let("rho", zeta * eta * (inverse * eta))
    pq = [let(f"PQ_{x}", _BRA[f"P{x}"] - _KET[f"P{x}"]) for x in "xyz"]
    for n, x in enumerate("xyz"):
        let(SHIFTS[BRA][n][1], -(HALVES[BRA] * pq[n]))
        let(SHIFTS[KET][n][0], _KET[f"P{x}"] - centre[n])
        let(SHIFTS[KET][n][1], HALVES[KET] * pq[n])
    distance = let("distance", fma(pq[0], pq[0], fma(pq[1], pq[1], pq[2] * pq[2])))
    factor = let("factor", _BRA["coefficient"] * _KET["coefficient"])
    order = sum(shells)
    values = Array("values", "f64", (order + 1,), "local")
    statements.append(st.DeclareArray(values))
    statements += boys.values(order, operator, factor, total, rho, distance, omega, table, values)
    statements.append(st.Call(function, (*vertical.parameters(*shells)[:-3], values, into, scratch)))
    return statements


def _contracted(
    cls: QuartetClass, p: KernelParameters, work: WorkLayout, variant: Variant, targets: Array | st.View | None
) -> list[st.Statement]:
    """Turn targets into integrals, for every pair of contractions."""
    if isinstance(targets, st.View):
        return []
    space = targets.space if targets else "global"
    # Registers cannot be indexed: code for targets in registers has no loops.
    unrolled = True if space == "local" else variant.unrolled
    function = horizontal.horizontal_function(
        *cls.shells, cls.cartesian, fused=variant.fused, unrolled=unrolled, space=space
    )
    ab, cd = Var("ab", "i64"), Var("cd", "i64")
    scratch = st.view(p.work[work.scratch])

    def one(ab: Value | int, cd: Value | int) -> st.Statement:
        h = targets or st.view(p.work[(ab * p.n_cd + cd) * work.targets if cls.general else 0])
        return st.Call(function, (h, p.bra_centre, p.ket_centre, scratch, st.view(p.out[ab, cd, 0, 0])))

    return [st.loop(ab, p.n_ab, st.loop(cd, p.n_cd, one(ab, cd)))] if cls.general else [one(0, 0)]
