"""Programs between those of the edges and of the atoms: first features, densities, sums over threads, pair repulsion.

A group is an atom.
"""

from __future__ import annotations

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, exp, lt
from trnqc.mace.model import PairRepulsion

# e^2 / (4 pi epsilon_0) in eV Angstrom, as MACE rounds it.
COULOMB = 14.3996
NODE, NODES, COPIES = (Var(name, "i64") for name in ("node", "atoms", "threads"))
STARTS, SENDERS, ELEMENTS = (Array(name, "i64") for name in ("starts", "senders", "elements"))
ENERGIES = Array("energies", "f64")


def begin(dtype: str, width: int) -> st.Function:
    """Return the program that writes the vectors that an atom sends in the first layer, and its constant energy.

    An atom sends `width` vectors. The parameters are ``elements`` [N], ``sent`` and ``constants`` of the elements, and
    the results ``x`` [N, width] and ``energies`` [N].
    """
    b = Builder()
    sent, x, constants = Array("sent", dtype, lanes=True), Array("x", dtype, lanes=True), Array("constants", "f64")
    element = b.let("element", ELEMENTS[NODE])
    with b.loop("v", width) as v:
        b.store(x[NODE * width + v], sent[element * width + v])
    b.store(ENERGIES[NODE], constants[element])
    return b.function("begin", (ELEMENTS, sent, constants, x, ENERGIES), group=NODE)


def density(dtype: str) -> st.Function:
    """Return the program of the density of an atom; parameters ``starts``, ``part`` [E] and the result ``rho`` [N]."""
    b, part, rho = Builder(), Array("part", dtype), Array("rho", dtype)
    total = b.declare("total", const(0.0))
    with b.loop("edge", STARTS[NODE + 1], begin=STARTS[NODE]) as edge:
        b.assign(total, total + cast(part[edge], "f64"))
    b.store(rho[NODE], cast(total, dtype))
    return b.function("density", (STARTS, part, rho), group=NODE)


def density_gradient(dtype: str) -> st.Function:
    """Return the program that adds to the gradient of the lengths what follows from that of the density.

    Its parameters are ``starts``, ``slope`` of each edge's part, ``g_density`` [N] and the result ``g_lengths`` [E].
    """
    b = Builder()
    slope, g_density, g_lengths = (Array(name, dtype) for name in ("slope", "g_density", "g_lengths"))
    g = b.let("g", g_density[NODE])
    with b.loop("edge", STARTS[NODE + 1], begin=STARTS[NODE]) as edge:
        b.accumulate(g_lengths[edge], g * slope[edge])
    return b.function("density_gradient", (STARTS, slope, g_density, g_lengths), group=NODE)


def add_threads(dtype: str, width: int) -> st.Function:
    """Return the program that adds the rows of an atom of all threads to that of the first one.

    Its parameters are ``atoms, threads``, and ``g_x`` [threads, N, width].
    """
    b, g_x = Builder(), Array("g_x", dtype, lanes=True)
    with b.loop("copy", COPIES, begin=const(1, "i64")) as copy:
        row = b.let("row", (copy * NODES + NODE) * width)
        with b.loop("v", width) as v:
            b.accumulate(g_x[NODE * width + v], g_x[row + v])
    return b.function("add_threads", (NODES, COPIES, g_x), group=NODE)


def repulsion(pair: PairRepulsion) -> st.Function:
    """Return the program of the pair repulsion, float64.

    Its parameters are ``starts, senders, elements``, the ``vectors`` [E, 3] and ``lengths`` [E] of the edges,
    ``charges``, ``strengths`` (charge^exponent / length) and ``covalent`` (radii) of the elements, and ``energies`` [N]
    and ``g_vectors`` [E, 3], to which it adds.
    """
    b = Builder()
    lengths, charges, strengths, covalent = (Array(n, "f64") for n in ("lengths", "charges", "strengths", "covalent"))
    vectors, g_vectors = (Array(name, "f64", (None, 3)) for name in ("vectors", "g_vectors"))
    receiver = b.let("receiver", ELEMENTS[NODE])
    with b.loop("edge", STARTS[NODE + 1], begin=STARTS[NODE]) as edge:
        sender, r = b.let("sender", ELEMENTS[SENDERS[edge]]), b.let("r", lengths[edge])
        reach = b.let("reach", covalent[receiver] + covalent[sender])
        with b.when(lt(r, reach)):
            scale = b.let("scale", 0.5 * pair.scale * COULOMB * charges[receiver] * charges[sender] / r)
            inverse = b.let("inverse", strengths[receiver] + strengths[sender])
            phi, d_phi = _screening(b, pair, inverse, r)
            f, d_f = _cutoff(b, b.let("x", r / reach), pair.cutoff_order)
            b.accumulate(ENERGIES[NODE], scale * phi * f)
            slope = b.let("slope", scale * (d_phi * f + phi * d_f / reach - phi * f / r) / r)
            for k in range(3):
                b.accumulate(g_vectors[edge, k], slope * vectors[edge, k])
    arrays = (STARTS, SENDERS, ELEMENTS, vectors, lengths, charges, strengths, covalent, ENERGIES, g_vectors)
    return b.function("pair_repulsion", arrays, group=NODE)


def _screening(b: Builder, pair: PairRepulsion, inverse: Value, r: Value) -> tuple[Value, Value]:
    """The screening function and its derivative by r."""
    phi = slope = const(0.0)
    for c, d in pair.screening:
        term = b.let("term", c * exp(-d * inverse * r))
        phi, slope = phi + term, slope - d * inverse * term
    return b.let("phi", phi), b.let("d_phi", slope)


def _cutoff(b: Builder, x: Value, p: int) -> tuple[Value, Value]:
    """The polynomial cutoff function of `RadialBasis` and its derivative by x, for x < 1."""
    power = const(1.0)
    for _ in range(p - 1):
        power = b.let("power", power * x)
    f = 1.0 - power * x * ((p + 1) * (p + 2) / 2 - p * (p + 2) * x + (p * (p + 1) / 2) * x * x)
    slope = (-p * (p + 1) * (p + 2) / 2) * power * (1.0 - x) * (1.0 - x)
    return b.let("f", f), b.let("d_f", slope)
