"""The program that evaluates contracted shells, and their derivatives, on grid points.

task -> vectors of points -> sums over primitives -> times angular factors -> [component, function, point]

A lane is a point. A task is one contraction of one shell on the points of one block. With the radial sums G_k = sum_p
c_p (-2 a_p)^k exp(-a_p r^2), the derivative of G_k with respect to x is x G_(k+1), and those of a function P(x, y, z)
G_0 follow from Leibniz' rule.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trnqc.eri.kernels.angular import Powers, raised
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import exp
from trnqc.jit import Recipe, Signature
from trnqc.xc.programs import polynomials
from trnqc.xc.programs.polynomials import Polynomial

# The columns of a task: its first point and its number of points, the place of its shell's record and the primitives to
# sum, the place of its first function in the output, and the distances there from a function and from a component to
# the next.
TASK = ("point", "points", "record", "primitives", "place", "row", "component")
# Numbers of a record before those of its primitives: the centre.
CENTRE = 3

AT = Var("task", "i64")


@dataclass(frozen=True, order=True)
class ShellClass:
    """Shells of angular momentum l that one program evaluates; `cartesian` is False for s and p."""

    l: int
    cartesian: bool = False

    @property
    def functions(self) -> int:
        """The number of functions of one contraction."""
        return len(polynomials.angular_factors(self.l, self.cartesian))


def parameters(dtype: str) -> tuple[Value | Array, ...]:
    """Return the parameters of the program.

    - lanes: the points of a vector.
    - tasks [tasks, 7]: see TASK. All counts and distances of points are multiples of the lanes.
    - records: for each contraction x, y and z of its centre, then exponent and coefficient of each primitive.
    - points [3, stride], of lanes: the coordinates; stride is the number of vectors.
    - ao, of lanes: the output.
    """
    lanes, stride = Var("lanes", "i64"), Var("stride", "i64")
    return (
        lanes,
        stride,
        Array("tasks", "i64", (None, len(TASK))),
        Array("records", dtype),
        Array("points", dtype, (None, stride), lanes=True),
        Array("ao", dtype, lanes=True),
    )


def ao_program(cls: ShellClass, order: int, dtype: str = "f64") -> Recipe:
    """Return the recipe of a class for derivatives up to an order; its groups are the tasks."""
    name = f"ao_{'cartesian' if cls.cartesian else 'spherical'}_{cls.l}_{order}_{dtype}"
    signature = Signature.declared(name, parameters(dtype), ("ao",))
    return Recipe(name, (signature,), partial(_functions, name, cls, order, dtype), __name__)


def _functions(name: str, cls: ShellClass, order: int, dtype: str) -> tuple[st.Function, ...]:
    return (shell_function(name, cls, order, dtype),)


def shell_function(name: str, cls: ShellClass, order: int, dtype: str) -> st.Function:
    """Build the program."""
    params = parameters(dtype)
    args: dict[str, Any] = {st.name_of(p): p for p in params}
    lanes, tasks, records, points = (args[n] for n in ("lanes", "tasks", "records", "points"))
    b = Builder()
    field = {word: b.let(word, tasks[AT, n]) for n, word in enumerate(TASK)}
    first, row, component = (b.let(f"{word}_vector", field[word] // lanes) for word in ("point", "row", "component"))
    place = b.let("place_vector", field["place"] // lanes)
    record = field["record"]
    with b.loop("v", b.let("vectors", field["points"] // lanes)) as v:
        x, y, z = (b.let("xyz"[n], points[n, first + v] - records[record + n]) for n in range(3))
        radial = _radial_sums(b, order, dot([(x, x), (y, y), (z, z)]), records, record + CENTRE, field["primitives"])
        factors = _Factors(b, (x, y, z), radial)
        for n, by in enumerate(polynomials.components(order)):
            for m, angular in enumerate(polynomials.angular_factors(cls.l, cls.cartesian)):
                b.store(args["ao"][place + component * n + row * m + v], factors.value(angular, by))
    return b.function(name, params, group=AT, title=f"functions with l = {cls.l}, derivatives up to order {order}")


def _radial_sums(b: Builder, order: int, square: Value, records: Array, start: Value, primitives: Value) -> list[Value]:
    """Write the sums over primitives, and return G_0, ..., G_order."""
    square = b.let("square", square)
    sums = [b.declare(f"G{k}", const(0.0, square.dtype)) for k in range(order + 1)]
    with b.loop("primitive", primitives) as p:
        exponent = b.let("exponent", records[start + p * 2])
        term = b.let("term", exp(-exponent * square) * records[start + p * 2 + 1])
        for k, total in enumerate(sums):
            b.assign(total, total + term)
            if k < order:
                term = b.let("term", term * (-2.0 * exponent))
    return sums


class _Factors:
    """The factors of values: monomials, polynomials and derivatives of G_0, each a variable that is written once.

    b: where statements are written. xyz: the coordinates relative to the centre. radial: G_0, G_1, ...
    """

    def __init__(self, b: Builder, xyz: tuple[Value, Value, Value], radial: list[Value]) -> None:
        self.b, self.xyz, self.radial, self.dtype = b, xyz, radial, xyz[0].dtype
        self._monomials: dict[Powers, Value] = {(0, 0, 0): const(1.0, self.dtype)}
        self._polynomials: dict[tuple[tuple[Powers, float], ...], Value] = {}
        self._radials: dict[Powers, Value] = {}

    def monomial(self, powers: Powers) -> Value:
        """Return x^i y^j z^k."""
        if powers not in self._monomials:
            axis = next(n for n, p in enumerate(powers) if p)
            rest = self.monomial(raised(powers, axis, -1))
            one = rest.op == "const"
            self._monomials[powers] = self.xyz[axis] if one else self.b.let("m", rest * self.xyz[axis])
        return self._monomials[powers]

    def polynomial(self, terms: Polynomial) -> Value:
        """Return a polynomial that has terms."""
        key = tuple(sorted(terms.items()))
        if key not in self._polynomials:
            self._polynomials[key] = self.b.let("P", _sum([_times(c, self.monomial(p)) for p, c in key]))
        return self._polynomials[key]

    def radial_derivative(self, by: Powers) -> Value:
        """Return a derivative of G_0."""
        if by not in self._radials:
            terms = [
                _times(factor, self.radial[k] if not any(powers) else self.monomial(powers) * self.radial[k])
                for factor, powers, k in polynomials.radial_derivative(by)
            ]
            self._radials[by] = self.b.let("R", _sum(terms))
        return self._radials[by]

    def value(self, angular: Polynomial, by: Powers) -> Value:
        """Return a derivative of the product of an angular factor and G_0."""
        terms = []
        for factor, of_angular, of_radial in polynomials.leibniz(by):
            differentiated = polynomials.derivative(angular, of_angular)
            if differentiated:
                terms.append((_times(factor, self.polynomial(differentiated)), self.radial_derivative(of_radial)))
        return dot(terms)


def _times(factor: float, value: Value) -> Value:
    return value if factor == 1 else value * float(factor)


def _sum(terms: list[Value]) -> Value:
    total, *rest = terms
    for term in rest:
        total = total + term
    return total
