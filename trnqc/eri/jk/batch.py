"""The driver of a class, which adds the quartets of two classes of pairs to J and K, one vector of ket pairs at a time.

for each bra pair:  ket pairs by falling bound -> those that pass the test -> queue -> batches of one pair on each lane
for each batch:     records gathered -> kernel (kernels/quartet.py) -> blocks of D gathered -> digestion (digest.py)
                    -> blocks of J and K scattered

The test is q_ab q_cd min(1, max(4 |D_ab|, 4 |D_cd|, |D_ac|, |D_ad|, |D_bc|, |D_bd|)) >= cutoff, with Schwarz bounds q
and the largest element of each block of D. Quartets with a == b, c == d or ab == cd count half for each equality. That
factor multiplies COEFFICIENT of the ket; lanes beyond the end of the queue have 0 there.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, QuartetClass
from trnqc.eri.jk import schwarz
from trnqc.eri.jk.digest import BLOCKS, QuartetArrays, block_sizes, digest, local
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.quartet import parts, quartet_function
from trnqc.eri.kernels.variants import STANDARD, Variant
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, eq, le, lt, maximum, minimum, select
from trnqc.jit import Recipe, Signature

# The integers that a driver reads, in the order of its array `numbers`: ket pairs; primitive pairs of the records;
# pairs of contractions, and contractions of b and of d; whether bra and ket are one table; densities; lanes; shells;
# elements of a matrix and of all pairs; where the tables begin among all pairs; for each block of BLOCKS, where the
# matrices of its two l begin, and the shells of the second l.
NUMBERS = (
    *("ket_pairs", "bra_rows", "ket_rows", "n_ab", "n_cd", "n_b", "n_d", "same", "densities", "lanes", "shells"),
    *("elements", "pair_elements", "bra_at", "ket_at"),
    *(f"{word}_{block}" for block in BLOCKS for word in ("at", "row")),
)
# The floating-point numbers, in the order of its array `reals`: the cutoffs of the test and of primitive quartets;
# omega; the largest factor of a density in the test.
REALS = ("cutoff", "primitive", "omega", "largest")
# The columns of a table's `places`: primitive pairs, positions of a and b among the shells of their l, numbers of a
# and b.
COUNT, PLACE_A, PLACE_B, SHELL_A, SHELL_B = range(5)
PLACES = 5
# The columns of a table's `measures`: A and A - B (six), and the Schwarz bound.
CENTRE, SCHWARZ, MEASURES = 0, 6, 7

G = Var("pair", "i64")
N = {name: Var(name, "i64") for name in NUMBERS}
_X = {name: Var(name) for name in REALS}


@dataclass(frozen=True)
class Batch:
    """The driver of a class, its parameters and its program. with_j, with_k: whether it adds to J and to K."""

    cls: QuartetClass
    with_j: bool = True
    with_k: bool = True

    @property
    def name(self) -> str:
        return "j" * self.with_j + "k" * self.with_k + "_" + self.cls.name

    @property
    def program(self) -> Recipe:
        """The driver and, if bra and ket have the same shells, the function that computes Schwarz bounds."""
        signatures = [Signature.declared(self.name, self.arrays.values(), WRITTEN)]
        if self.cls.shells[:2] == self.cls.shells[2:]:
            signatures.append(schwarz.signature(self.cls))
        return Recipe(self.name, tuple(signatures), self.functions, __name__, parts=parts(self.cls))

    def functions(self, variant: Variant = STANDARD) -> tuple[st.Function, ...]:
        """Build the functions of the program."""
        alike, kernel = self.cls.shells[:2] == self.cls.shells[2:], quartet_function(self.cls, variant=variant)
        own = driver(self, kernel)
        return (own, schwarz.bounds(self.cls, kernel)) if alike else (own,)

    @cached_property
    def arrays(self) -> dict[str, Array]:
        """The parameters, in order.

        - numbers, reals: the values of NUMBERS and REALS.
        - bra, ket [pairs, K, W]: records, as in classes.py; bra_places, ket_places [pairs, PLACES] and bra_measures,
          ket_measures [pairs, MEASURES]: see above.
        - ket_bounds [pairs, K + 1]: the largest BOUND of a primitive pair over this pair and all after it, then 0.
        - dm_max [shells, shells]: the largest element of each block.
        - dm_pairs, vj [densities, pair_elements]; dm, vk [densities, elements]: in the order of layout.py.
        - boys: the table of the Boys function; lane: 0, 1, ...
        - queue, weight [ket_pairs + lanes], lanes_ket, lanes_centre, work, out, j_ab: scratch memory.
        """
        n, cls = N, self.cls
        wide_ab, wide_cd = (n[x] + CONTRACTION if cls.general else CONTRACTION for x in ("n_ab", "n_cd"))
        na, nb, nc, nd = cls.extents
        arrays = (
            Array("numbers", "i64", (len(NUMBERS),)),
            Array("reals", "f64", (len(REALS),)),
            Array("bra", "f64", (None, n["bra_rows"], wide_ab)),
            Array("bra_places", "i64", (None, PLACES)),
            Array("bra_measures", "f64", (None, MEASURES)),
            Array("ket", "f64", (None, n["ket_rows"], wide_cd)),
            Array("ket_places", "i64", (None, PLACES)),
            Array("ket_measures", "f64", (None, MEASURES)),
            Array("ket_bounds", "f64", (None, n["ket_rows"] + 1)),
            Array("dm_max", "f64", (n["shells"], n["shells"])),
            Array("dm_pairs", "f64"),
            Array("dm", "f64"),
            Array("vj", "f64"),
            Array("vk", "f64"),
            boys.table_array(cls.order),
            Array("lane", "i64", (1,), lanes=True),
            Array("queue", "i64"),
            Array("weight", "f64"),
            Array("lanes_ket", "f64", (n["ket_rows"], wide_cd), lanes=True),
            Array("lanes_centre", "f64", (6,), lanes=True),
            Array("work", "f64", lanes=True),
            Array("out", "f64", (n["n_ab"], n["n_cd"], na * nb, nc * nd), lanes=True),
            Array("j_ab", "f64", lanes=True),
        )
        return {a.name: a for a in arrays}


WRITTEN = ("vj", "vk", "queue", "weight", "lanes_ket", "lanes_centre", "work", "out", "j_ab")


def driver(batch: Batch, kernel: st.Function | None = None) -> st.Function:
    """Build the driver; its groups are the bra pairs. kernel: by default the class's own."""
    cls, count = batch.cls, Var("count", "i64")
    steps = (
        settings(batch),
        selected(batch, count),
        digested(batch, kernel or quartet_function(cls), const(0, "i64"), count),
    )
    arrays = tuple(batch.arrays.values())
    return st.Function(batch.name, arrays, st.block(steps), group=G, title=f"({cls.digits}) into J and K")


def settings(batch: Batch, begin: Value | int = 0) -> st.Block:
    """Define variables for all numbers and reals. begin: where the array of numbers begins."""
    numbers = [st.Let(N[x], batch.arrays["numbers"][begin + i]) for i, x in enumerate(NUMBERS)]
    reals = [st.Let(_X[x], batch.arrays["reals"][i]) for i, x in enumerate(REALS)]
    return st.block(numbers, reals, title="settings")


def digested(batch: Batch, kernel: st.Function, begin: Value, end: Value) -> list[st.Statement]:
    """Add positions begin .. end of the queue of bra pair G to J and K, one vector at a time."""
    a, i, s, first = batch.arrays, Var("i", "i64"), Var("s", "i64"), Var("first", "i64")
    size = bra_elements(batch)
    flush = st.accumulate(a["vj"][bra_start(batch, s) + i], a["j_ab"][s * size + i])
    return [
        *bra_cleared(batch),
        *vectors([*computed(batch, kernel, first), _contractions(batch, Var("at", "i64"))], begin, end, first),
        *([st.loop(s, N["densities"], st.loop(i, size, flush))] * batch.with_j),
    ]


def bra_elements(batch: Batch) -> Value:
    """Return the elements of J of a bra pair."""
    na, nb, _, _ = batch.cls.extents
    return N["n_ab"] * (na * nb)


def bra_start(batch: Batch, s: Value) -> Value:
    """Return where J of the bra pair begins in vj."""
    return s * N["pair_elements"] + N["bra_at"] + G * bra_elements(batch)


def bra_cleared(batch: Batch) -> list[st.Statement]:
    """Clear the lanes' sums for J of the bra pair."""
    i = Var("i", "i64")
    return [st.loop(i, N["densities"] * bra_elements(batch), st.store(batch.arrays["j_ab"][i], 0.0))] * batch.with_j


def vectors(step: list[st.Statement], begin: Value, end: Value, first: Value) -> list[st.Statement]:
    """Take a step for each vector of the ket pairs at positions begin .. end of the queue, `first` and on."""
    body = st.block(step, st.Assign(first, first + N["lanes"]))
    return [st.Declare(first, begin), st.While(lt(first, end), body)]


def selected(batch: Batch, count: Value) -> st.Block:
    """Fill `queue` with the ket pairs that pass the test and `weight` with their factors; declare and set `count`.

    One more vector of pairs with weight 0 follows the selected pairs.
    """
    a = batch.arrays
    k, end, i = Var("k", "i64"), Var("end", "i64"), Var("i", "i64")
    q, bound = Var("q"), Var("bound")
    (sa, sb), (sc, sd) = (Var("shell_a", "i64"), Var("shell_b", "i64")), (Var("shell_c", "i64"), Var("shell_d", "i64"))
    largest = Var("density")
    dm = a["dm_max"]
    tests = [4.0 * dm[sc, sd]] if batch.with_j else []
    tests += [dm[x, y] for x in (sa, sb) for y in (sc, sd)] if batch.with_k else []
    density = Var("density_ab")
    most: Value = density
    for test in tests:
        most = maximum(test, most)
    half = select(eq(sc, sd), 0.5 * Var("factor"), Var("factor"))
    half = select(both(eq(N["same"], const(1, "i64")), eq(k, G)), 0.5 * half, half)
    one = [
        st.Let(sc, a["ket_places"][k, SHELL_A]),
        st.Let(sd, a["ket_places"][k, SHELL_B]),
        st.Let(bound, q * a["ket_measures"][k, SCHWARZ]),
        st.Let(largest, minimum(most, 1.0)),
        st.store(a["queue"][count], k),
        st.store(a["weight"][count], half),
        st.Assign(count, count + select(le(_X["cutoff"], bound * largest), const(1, "i64"), const(0, "i64"))),
        st.Assign(k, k + 1),
    ]
    enough = le(_X["cutoff"], q * a["ket_measures"][minimum(k, end - 1), SCHWARZ] * _X["largest"])
    last = a["queue"][maximum(count - 1, const(0, "i64"))]
    zero = const(0, "i64")
    return st.block(
        st.Let(sa, a["bra_places"][G, SHELL_A]),
        st.Let(sb, a["bra_places"][G, SHELL_B]),
        st.Let(q, a["bra_measures"][G, SCHWARZ]),
        st.Let(Var("factor"), select(eq(sa, sb), const(0.5), const(1.0))),
        st.Let(density, 4.0 * dm[sa, sb] if batch.with_j else const(0.0)),
        st.Let(end, select(eq(N["same"], const(1, "i64")), G + 1, N["ket_pairs"])),
        st.Declare(count, zero),
        st.Declare(k, zero),
        st.While(both(lt(k, end), enough), st.block(one)),
        st.loop(
            i,
            N["lanes"],
            st.store(a["queue"][count + i], select(lt(const(0, "i64"), count), last, zero)),
            st.store(a["weight"][count + i], 0.0),
        ),
        title="ket pairs that matter",
    )


def computed(batch: Batch, kernel: st.Function, first: Value) -> list[st.Statement]:
    """Compute the integrals of one vector of ket pairs, or their targets, from position `first` of the queue on.

    What follows finds the ket pairs of the lanes in the variable `at`.
    """
    a, cls = batch.arrays, batch.cls
    at, weight, lead, rows, j = Var("at", "i64"), Var("half"), Var("lead", "i64"), Var("rows", "i64"), Var("j", "i64")
    wide = N["n_cd"] + CONTRACTION if cls.general else CONTRACTION
    # The bounds of the first pair hold for all pairs behind it, and so for this batch.
    matters = le(_X["primitive"], a["bra"][G, 0, BOUND] * a["ket_bounds"][lead, rows])
    place = first + a["lane"][0]
    arguments: dict[str, Value | Array | st.View] = {
        "n_bra": a["bra_places"][G, COUNT],
        "bra": st.view(a["bra"][G, 0, 0]),
        "bra_centre": st.view(a["bra_measures"][G, CENTRE]),
        "n_ket": rows,
        "ket": a["lanes_ket"],
        "ket_centre": a["lanes_centre"],
        "ket_bound": st.view(a["ket_bounds"][lead, 0]),
        "cutoff": _X["primitive"],
        "omega": _X["omega"],
        **{name: N[name] for name in ("n_ab", "n_cd")},
        **{name: a[name] for name in ("boys", "work", "out")},
    }
    call = st.call(kernel, **{name: arguments[name] for name in map(st.name_of, kernel.params)})
    return [
        st.Let(at, a["queue"][place]),
        st.Let(weight, a["weight"][place]),
        st.Let(lead, a["queue"][first]),
        st.Declare(rows, const(0, "i64")),
        st.While(both(lt(rows, N["ket_rows"]), matters), st.block(st.Assign(rows, rows + 1))),
        st.GatherRows(a["lanes_ket"], a["ket"], at * (N["ket_rows"] * wide), rows * wide),
        st.GatherRows(a["lanes_centre"], a["ket_measures"], at * MEASURES + CENTRE, const(6, "i64")),
        st.loop(j, rows, st.store(a["lanes_ket"][j, COEFFICIENT], a["lanes_ket"][j, COEFFICIENT] * weight)),
        call,
    ]


def _contractions(batch: Batch, at: Value) -> st.Statement:
    """Digest every density with every quartet of contractions."""
    s, ab, cd = Var("s", "i64"), Var("ab", "i64"), Var("cd", "i64")
    if not batch.cls.general:
        zero = const(0, "i64")
        return st.loop(s, N["densities"], _density(batch, at, s, zero, zero))
    inner = st.loop(ab, N["n_ab"], st.loop(cd, N["n_cd"], _density(batch, at, s, ab, cd)))
    return st.loop(s, N["densities"], inner)


def _density(batch: Batch, at: Value, s: Value, ab: Value, cd: Value) -> list[st.Statement]:
    a, cls = batch.arrays, batch.cls
    sizes = block_sizes(cls)
    before: list[st.Statement] = []
    after: list[st.Statement] = []
    i = Var("i", "i64")

    def zeroed(array: Array) -> list[st.Statement]:
        return [st.DeclareArray(array), st.loop(i, array.size or 0, st.store(array[i], 0.0))]

    for block in BLOCKS if batch.with_k else ():
        start, d, k = Var(f"start_{block}", "i64"), local(cls, "d", block), local(cls, "k", block)
        before.append(st.Let(start, exchange_start(batch, block, at, s, ab, cd)))
        before += [st.DeclareArray(d), st.GatherRows(d, a["dm"], start, const(sizes[block], "i64")), *zeroed(k)]
        after.append(st.ScatterRows(a["vk"], k, start, const(sizes[block], "i64")))
    if batch.with_j:
        start, d, j = Var("start_cd", "i64"), local(cls, "d", "cd"), local(cls, "j", "cd")
        before.append(st.Let(start, coulomb_start(batch, at, s, cd)))
        before += [st.DeclareArray(d), st.GatherRows(d, a["dm_pairs"], start, const(sizes["cd"], "i64")), *zeroed(j)]
        after.append(st.ScatterRows(a["vj"], j, start, const(sizes["cd"], "i64")))
    return [*before, digest(cls, operands_of(batch, s, ab, cd), batch.with_j, batch.with_k), *after]


def operands_of(batch: Batch, s: Value, ab: Value, cd: Value) -> QuartetArrays:
    """Return the operands of a density and a quartet of contractions."""
    a, (na, nb, _, _) = batch.arrays, batch.cls.extents
    d_ab = s * N["pair_elements"] + N["bra_at"] + (G * N["n_ab"] + ab) * (na * nb)
    return QuartetArrays(a["out"], ab, cd, a["dm_pairs"], d_ab, a["j_ab"], (s * N["n_ab"] + ab) * (na * nb))


def exchange_start(batch: Batch, block: str, at: Value, s: Value, ab: Value, cd: Value) -> Value:
    """Return where a block of D and K begins, for the ket pair `at` and a quartet of contractions."""
    a, general = batch.arrays, batch.cls.general
    row = _shell(a["bra_places"], G, block[0], ab, N["n_b"], general)
    column = _shell(a["ket_places"], at, {"c": "a", "d": "b"}[block[1]], cd, N["n_d"], general)
    place = (row * N[f"row_{block}"] + column) * block_sizes(batch.cls)[block]
    return s * N["elements"] + N[f"at_{block}"] + place


def coulomb_start(batch: Batch, at: Value, s: Value, cd: Value) -> Value:
    """Return where the block of D and J of the ket pair `at` begins."""
    return s * N["pair_elements"] + N["ket_at"] + (at * N["n_cd"] + cd) * block_sizes(batch.cls)["cd"]


def _shell(places: Array, pair: Value, which: str, contraction: Value, second: Value, general: bool) -> Value:
    """Return the position of shell a or b among the contracted shells of its l, for a pair of contractions."""
    base = places[pair, PLACE_A if which == "a" else PLACE_B]
    if not general:
        return base
    return base + (contraction // second if which == "a" else contraction % second)
