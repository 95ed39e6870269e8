"""Programs of the geometry of edges: harmonics and radial functions of vectors, and the gradient of the vectors.

forward: vectors [E, 3] -> lengths, unit vectors, harmonics, radial functions with their slopes, cutoff function
reverse: gradients with respect to harmonics and lengths -> added to the gradient with respect to the vectors

The lanes are edges. Everything is computed in float64, and what layers read is rounded once to their type. Results
have rows up to a whole number of vectors, the last of which repeat the last edge.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import cast, lane, lt, minimum, select, sqrt
from trnqc.mace.edges.geometry.basis import functions
from trnqc.mace.edges.geometry.harmonics import gradient, harmonics
from trnqc.mace.edges.geometry.knots import Knots
from trnqc.mace.edges.geometry.knots import functions as splines
from trnqc.mace.model import RadialBasis

# Number of edges, and number of a group of as many edges as there are lanes.
EDGES, GROUP = Var("edges", "i64"), Var("group", "i64")
SENDERS, RECEIVERS, ELEMENTS = (Array(name, "i64") for name in ("senders", "receivers", "elements"))
# Covalent radius of each element in Angstrom.
RADII = Array("radii", "f64")
VECTORS, G_VECTORS = (Array(name, "f64", (None, 3)) for name in ("vectors", "g_vectors"))
LENGTHS = Array("lengths", "f64")
# Number of the interval of a spline, of each edge.
INTERVALS = Array("intervals", "i64")


def harmonics_size(degree: int) -> int:
    """Number of harmonics of all degrees up to `degree`."""
    return (degree + 1) ** 2


def forward(basis: RadialBasis | Knots, degree: int, dtype: str, lanes: int) -> st.Function:
    """Return the program of the geometry, for radial functions or B-splines and harmonics up to `degree`.

    Its parameters are ``edges, vectors`` [E, 3], the results ``lengths`` [E], ``harmonics`` [E, (degree + 1)^2],
    ``radial`` and ``slopes`` [E, size], ``cutoff`` [E, 2] (value and slope, if it multiplies weights) and ``intervals``
    [E] (of B-splines only), and ``senders, receivers`` [E], ``elements`` [N] and ``radii`` [elements], which only a
    transform reads. A group has an edge for each lane; layers read the results in `dtype`.
    """
    b = Builder()
    y = Array("harmonics", dtype, (None, harmonics_size(degree)))
    radial, slopes = (Array(name, dtype, (None, basis.size)) for name in ("radial", "slopes"))
    cutoff = Array("cutoff", dtype, (None, 2))
    row = b.let("row", GROUP * lanes + lane())
    edge = b.let("edge", minimum(row, EDGES - 1))
    v = [b.let("v", VECTORS[edge, k]) for k in range(3)]
    r = b.let("r", sqrt(dot([(x, x) for x in v])))
    inverse = b.let("inverse", 1.0 / r)
    u = [b.let("u", x * inverse) for x in v]
    b.store(LENGTHS[row], r)
    _write(b, y, row, [value for values in harmonics(b, u, degree) for value in values])
    if isinstance(basis, Knots):
        values, derivatives, interval = splines(b, basis, r)
        b.store(INTERVALS[row], interval)
    else:
        f, envelope = functions(b, basis, r, _sum_of_radii(edge) if basis.transform else None)
        values, derivatives = [each.value for each in f], [each.slope for each in f]
        if basis.cutoff_on_weights:
            _write(b, cutoff, row, [envelope.value, envelope.slope])
    _write(b, radial, row, values)
    _write(b, slopes, row, derivatives)
    results = (LENGTHS, y, radial, slopes, cutoff, INTERVALS)
    params = (EDGES, VECTORS, *results, SENDERS, RECEIVERS, ELEMENTS, RADII)
    return b.function("edge_geometry", params, group=GROUP)


def reverse(degree: int, dtype: str, lanes: int) -> st.Function:
    """Return the program that adds to the gradient of the vectors.

    With v = sum_lk g_lk grad S_lk(u), the gradient is (v - (u v) u) / r + g_r u. Its parameters are ``edges, vectors,
    lengths``, ``g_harmonics`` [E, (degree + 1)^2] and ``g_lengths`` [E], the gradients with respect to harmonics and
    lengths, and ``g_vectors`` [E, 3], to which it adds.
    """
    b = Builder()
    g_y, g_r = Array("g_harmonics", dtype, (None, harmonics_size(degree))), Array("g_lengths", dtype)
    row = b.let("row", GROUP * lanes + lane())
    edge = b.let("edge", minimum(row, EDGES - 1))
    inverse = b.let("inverse", 1.0 / LENGTHS[edge])
    u = [b.let("u", VECTORS[edge, k] * inverse) for k in range(3)]
    g = [[cast(g_y[edge, l * l + k], "f64") for k in range(2 * l + 1)] for l in range(degree + 1)]
    v = [b.let("v", value) for value in gradient(harmonics(b, u, degree), g)]
    along = b.let("along", dot(list(zip(u, v))))
    slope = b.let("slope", cast(g_r[edge], "f64"))
    for k in range(3):
        # Lanes after the last edge add 0 to it.
        part = (v[k] - along * u[k]) * inverse + slope * u[k]
        b.accumulate(G_VECTORS[edge, k], select(lt(row, EDGES), part, 0.0))
    return b.function("vector_gradient", (EDGES, VECTORS, LENGTHS, g_y, g_r, G_VECTORS), group=GROUP)


def _sum_of_radii(edge: Value) -> Value:
    return RADII[ELEMENTS[SENDERS[edge]]] + RADII[ELEMENTS[RECEIVERS[edge]]]


def _write(b: Builder, array: Array, row: Value, values: Iterable[Value] | Sequence[Value]) -> None:
    for n, value in enumerate(values):
        b.store(array[row, n], cast(value, array.dtype))
