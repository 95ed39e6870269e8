"""Flops and bytes of a program for one lane, counted on its statements.

A loop multiplies the count of its body by its trip count, which may be a symbol such as ``N``. A count is therefore a
polynomial in trip counts, which is printed as such and evaluated when their values are known.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.expression_text import expression
from trnqc.gen.values import BYTES, FLOATS, Value, walk

# Flops of each operation on floats. A call of the mathematical library counts as one.
FLOPS = {"add": 1, "sub": 1, "mul": 1, "div": 1, "fma": 2, "neg": 1, "sqrt": 1, "exp": 1, "log": 1, "min": 1, "max": 1}
Trips = tuple[str, ...]


@dataclass(frozen=True)
class TripPolynomial:
    """A polynomial in trip counts. `terms` maps the trip counts of each product, in order, to its coefficient."""

    terms: Mapping[Trips, int] = field(default_factory=dict)

    def __add__(self, other: TripPolynomial) -> TripPolynomial:
        total = Counter(self.terms)
        total.update(other.terms)
        return TripPolynomial({k: v for k, v in sorted(total.items()) if v})

    def times(self, factor: int, trip: str = "") -> TripPolynomial:
        """The count of `factor` passes through this body, times the symbolic trip count `trip` if there is one."""
        more = (trip,) if trip else ()
        return TripPolynomial({tuple(sorted((*k, *more))): v * factor for k, v in self.terms.items() if v * factor})

    def at(self, **trips: int) -> int:
        """The number for the values of the trip counts, passed by the names in `names`."""
        missing = [name for name in self.names if name not in trips]
        if missing:
            raise ProgramError(f"the count {self} depends on {', '.join(missing)}, whose values are missing")
        total = 0
        for k, v in self.terms.items():
            for name in k:
                v *= trips[name]
            total += v
        return total

    def called(self, arguments: Mapping[str, int | str]) -> TripPolynomial:
        """The count of a call of this function: parameters among the trip counts are replaced by the arguments."""
        total = ZERO
        for k, v in self.terms.items():
            factors = [arguments.get(name, name) for name in k]
            numbers = math.prod(a for a in factors if isinstance(a, int))
            total += TripPolynomial({tuple(sorted(a for a in factors if isinstance(a, str))): v * numbers})
        return total

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(name for k in self.terms for name in k))

    def __str__(self) -> str:
        return " + ".join(" ".join((str(v), *k)) for k, v in sorted(self.terms.items())) or "0"


ZERO = TripPolynomial()


@dataclass(frozen=True)
class Cost:
    """The cost of a program for one lane: floating-point operations and bytes of global arrays, cached or not.

    `operations` counts each operation in the program, without regard to loops.
    """

    flops: TripPolynomial = ZERO
    read: TripPolynomial = ZERO
    written: TripPolynomial = ZERO
    operations: Mapping[str, int] = field(default_factory=dict)

    def __add__(self, other: Cost) -> Cost:
        operations = dict(sorted((Counter(self.operations) + Counter(other.operations)).items()))
        return Cost(self.flops + other.flops, self.read + other.read, self.written + other.written, operations)

    def times(self, factor: int, trip: str = "") -> Cost:
        flops, read, written = (count.times(factor, trip) for count in (self.flops, self.read, self.written))
        return Cost(flops, read, written, self.operations)

    def __str__(self) -> str:
        return f"{self.flops} flops, {self.read} bytes read, {self.written} bytes written"


def cost_of_values(*roots: Value) -> Cost:
    """The cost of computing the roots. Each common subexpression counts once."""
    flops = read = 0
    operations: Counter[str] = Counter()
    for value in walk(roots):
        if value.dtype in FLOATS and value.op in FLOPS:
            flops += FLOPS[value.op]
            operations[value.op] += 1
        if value.op == "load" and value.attr.space == "global":
            read += BYTES[value.dtype]
    return Cost(_number(flops), _number(read), ZERO, dict(sorted(operations.items())))


def cost(program: st.Function | st.Statement) -> Cost:
    """The cost of a program for one group and one lane.

    A while loop counts as one pass through its body, and an if statement as both of its branches.
    """
    match program:
        case st.Function():
            return cost(program.body)
        case st.Block():
            return sum((cost(s) for s in program.body), Cost())
        case st.For():
            inner = cost(program.body)
            if program.begin.op == program.end.op == "const":
                trips = max(0, -(-(program.end.attr - program.begin.attr) // program.step))
                return inner.times(trips)
            return inner.times(1, _trip(program))
        case st.While():
            return cost_of_values(program.condition) + cost(program.body)
        case st.If():
            return cost_of_values(program.condition) + cost(program.then) + cost(program.orelse)
        case st.Call():
            arguments = {
                st.name_of(p): a.attr if a.op == "const" else expression(a)
                for p, a in zip(program.function.params, program.arguments)
                if isinstance(a, Value)
            }
            inner = cost(program.function)
            flops, read, written = (count.called(arguments) for count in (inner.flops, inner.read, inner.written))
            return Cost(flops, read, written, inner.operations)
    own = cost_of_values(*st.values(program))
    if isinstance(program, st.GatherRows | st.ScatterRows):
        return own + _rows(program)
    if isinstance(program, st.Unpack | st.Pack):
        return own + _moved(program.target, program.source, False).times(program.count)
    if isinstance(program, st.Store | st.Accumulate):
        size = BYTES[program.array.dtype] if program.array.space == "global" else 0
        adding = isinstance(program, st.Accumulate)
        additions = int(adding and program.array.dtype in FLOATS)
        own = own + Cost(_number(additions), _number(size * adding), _number(size))
    return own


def _rows(s: st.GatherRows | st.ScatterRows) -> Cost:
    one = _moved(s.target, s.source, isinstance(s, st.ScatterRows))
    return one.times(s.count.attr) if s.count.op == "const" else one.times(1, expression(s.count))


def _moved(target: Array, source: Array, adding: bool) -> Cost:
    """The cost of moving one element."""
    size, into, out_of = BYTES[target.dtype], target.space == "global", source.space == "global"
    flops = int(adding and target.dtype in FLOATS)
    return Cost(_number(flops), _number(size * (out_of + (adding and into))), _number(size * into))


def _number(n: int) -> TripPolynomial:
    return TripPolynomial({(): n}) if n else ZERO


def _trip(loop: st.For) -> str:
    span = expression(loop.end)
    if not (loop.begin.op == "const" and loop.begin.attr == 0):
        span = f"({span} - {expression(loop.begin)})"
    return span if loop.step == 1 else f"{span}/{loop.step}"
