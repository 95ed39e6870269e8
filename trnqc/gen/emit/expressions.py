"""Scalar text of values: one method for each operation, with parentheses where precedence needs them."""

from __future__ import annotations

import math

import numpy as np

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.emit.dialect import Dialect, safe
from trnqc.gen.lanes import Lanes
from trnqc.gen.values import Value

# Precedence of expressions in C, the tightest first.
ATOM, PREFIX, PRODUCT, SUM, ORDER, EQUALITY, AND, OR, CHOICE = 9, 8, 7, 6, 5, 4, 3, 2, 1
# The sign and the precedence of the operations that are written between their operands.
INFIX = {
    "add": ("+", SUM),
    "sub": ("-", SUM),
    "mul": ("*", PRODUCT),
    "div": ("/", PRODUCT),
    "idiv": ("/", PRODUCT),
    "mod": ("%", PRODUCT),
    "lt": ("<", ORDER),
    "le": ("<=", ORDER),
    "eq": ("==", EQUALITY),
    "and": ("&&", AND),
    "or": ("||", OR),
}
# The names of types in CUDA's functions such as __float_as_int.
BITS = {"f64": "double", "f32": "float", "i64": "longlong", "i32": "int"}
# The text of an expression and its precedence.
Fragment = tuple[str, int]


class Scalars:
    """The expressions of one function, for one lane.

    `analysis` says which variables and arrays differ by lane; `helpers` has by name the text of the helper functions
    that the expressions call.
    """

    def __init__(self, dialect: Dialect, lanes: int, function: st.Function, analysis: Lanes) -> None:
        self.dialect, self.lanes, self.function, self.analysis = dialect, lanes, function, analysis
        self.helpers: dict[str, str] = {}
        self._differs: dict[Value, bool] = {}

    def differs(self, value: Value) -> bool:
        """Whether the value may be different on different lanes."""
        if value not in self._differs:
            self._differs[value] = self.analysis.differs(self.function, value)
        return self._differs[value]

    def text(self, value: Value) -> str:
        return self.fragment(value)[0]

    def inside(self, value: Value, least: int) -> str:
        """The text of an operand, in parentheses if its precedence is lower than `least`."""
        text, precedence = self.fragment(value)
        return text if precedence >= least else f"({text})"

    def fragment(self, value: Value) -> Fragment:
        return getattr(self, f"on_{value.op}", self.on_infix)(value)

    def variable_type(self, value: Value) -> str:
        """The type of a variable that holds the value."""
        return self.dialect.types[value.dtype]

    def array_type(self, array: Array) -> str:
        return self.dialect.types[array.dtype]

    def on_infix(self, value: Value) -> Fragment:
        if value.op not in INFIX:
            raise ProgramError(f"the operation {value.op} cannot be emitted as {self.dialect.name}")
        sign, precedence = INFIX[value.op]
        a, b = value.args
        return f"{self.inside(a, precedence)} {sign} {self.inside(b, precedence + 1)}", precedence

    def on_const(self, value: Value) -> Fragment:
        number = value.attr
        if value.dtype in ("i32", "i64"):
            return f"{number}{'LL' if abs(number) >= 2**31 else ''}", ATOM if number >= 0 else PREFIX
        if not math.isfinite(number):
            word = "NAN" if math.isnan(number) else "INFINITY"
            sign = "-" if number < 0 else ""
            return f"(({self.dialect.types[value.dtype]}){sign}{word})", ATOM
        text = repr(number) if value.dtype == "f64" else f"{np.float32(number)!s}f"
        return text, PREFIX if text.startswith("-") else ATOM

    def on_var(self, value: Value) -> Fragment:
        return safe(value.attr), ATOM

    def on_lane(self, value: Value) -> Fragment:
        return (f"({self.dialect.types[value.dtype]})lane", PREFIX) if self.dialect.threads else ("0", ATOM)

    def on_load(self, value: Value) -> Fragment:
        return self.element(value.attr, value.args[0]), ATOM

    def element(self, array: Array, index: Value) -> str:
        """The text of an element, which may also be the target of an assignment."""
        if self.has_lanes(array):
            return f"{safe(array.name)}[{self.inside(index, PRODUCT)} * {self.lanes} + lane]"
        return f"{safe(array.name)}[{self.text(index)}]"

    def has_lanes(self, array: Array) -> bool:
        """Whether the lanes of an array lie side by side in memory. A thread has a local array of its own."""
        return self.dialect.threads and array.lanes and array.space != "local"

    def address(self, array: Array, begin: Value) -> str:
        """The address of an element, as an argument of a called function."""
        step = f" * {self.lanes}" if self.has_lanes(array) else ""
        return f"{safe(array.name)} + {self.inside(begin, PRODUCT)}{step}"

    def warp_sum(self, dtype: str) -> str:
        """The name of a helper function that returns the sum over the lanes of a warp on each of them."""
        kind, name = self.dialect.types[dtype], f"warp_sum_{dtype}"
        self.helpers[name] = (
            f"{self.dialect.helper} {kind} {name}({kind} x) {{ "
            f"for (int n = 16; n; n /= 2) x += {self.dialect.shuffle}; return x; }}"
        )
        return name

    def on_neg(self, value: Value) -> Fragment:
        return f"-{self.inside(value.args[0], ATOM)}", PREFIX

    def on_not(self, value: Value) -> Fragment:
        return f"!{self.inside(value.args[0], ATOM)}", PREFIX

    def on_fma(self, value: Value) -> Fragment:
        a, b, c = value.args
        if self.dialect.threads:
            return self.call("fma", value)
        return f"{self.inside(a, PRODUCT)} * {self.inside(b, PREFIX)} + {self.inside(c, PRODUCT)}", SUM

    def on_sqrt(self, value: Value) -> Fragment:
        return self.call("sqrt", value)

    def on_exp(self, value: Value) -> Fragment:
        return self.call("exp", value)

    def on_log(self, value: Value) -> Fragment:
        return self.call("log", value)

    def call(self, name: str, value: Value) -> Fragment:
        suffix = "f" if value.dtype == "f32" else ""
        return f"{name}{suffix}({', '.join(map(self.text, value.args))})", ATOM

    def on_min(self, value: Value) -> Fragment:
        return self.choice(value, "<")

    def on_max(self, value: Value) -> Fragment:
        return self.choice(value, ">")

    def choice(self, value: Value, sign: str) -> Fragment:
        """The smaller or larger operand. Its text has each operand twice only if both are names or numbers."""
        a, b = map(self.text, value.args)
        if all(v.op in ("var", "const") for v in value.args):
            return f"{a} {sign} {b} ? {a} : {b}", CHOICE
        kind, name = self.dialect.types[value.dtype], f"{value.op}_of_{value.dtype}"
        self.helpers[name] = f"{self.dialect.helper} {kind} {name}({kind} a, {kind} b) {{ return a {sign} b ? a : b; }}"
        return f"{name}({a}, {b})", ATOM

    def on_select(self, value: Value) -> Fragment:
        condition, a, b = value.args
        return f"{self.inside(condition, OR)} ? {self.inside(a, OR)} : {self.inside(b, OR)}", CHOICE

    def on_cast(self, value: Value) -> Fragment:
        return f"({self.dialect.types[value.dtype]}){self.inside(value.args[0], ATOM)}", PREFIX

    def on_bits(self, value: Value) -> Fragment:
        """The value of another type with the same bits: a built-in function of CUDA, or a helper function."""
        (a,), types = value.args, self.dialect.types
        source, target = types[a.dtype], types[value.dtype]
        if self.dialect.threads:
            words = (BITS[dtype] for dtype in (a.dtype, value.dtype))
            return f"__{'_as_'.join(words)}({self.text(a)})", ATOM
        name = f"{value.dtype}_with_bits_of_{a.dtype}"
        self.helpers[name] = (
            f"static inline {target} {name}({source} x) {{ {target} y; __builtin_memcpy(&y, &x, sizeof y); return y; }}"
        )
        return f"{name}({self.text(a)})", ATOM

    on_from_bits = on_bits

    def on_with_bit(self, value: Value) -> Fragment:
        return f"{self.of_bits(value)}({', '.join(map(self.text, value.args))})", ATOM

    on_lowest_bit = on_without_lowest_bit = on_with_bit

    def of_bits(self, value: Value) -> str:
        """The name of a helper function on the bits of a word. The arithmetic is unsigned, which cannot overflow."""
        word = self.dialect.types["i64"]
        parameters = f"{word} a, {word} k" if value.op == "with_bit" else f"{word} a"
        result = {
            "with_bit": f"({word})((unsigned long long)a | 1ULL << (k & 63))",
            "lowest_bit": "__ffsll(a) - 1" if self.dialect.threads else "__builtin_ctzll((unsigned long long)a)",
            "without_lowest_bit": f"({word})((unsigned long long)a & ((unsigned long long)a - 1))",
        }[value.op]
        self.helpers[value.op] = f"{self.dialect.helper} {word} {value.op}({parameters}) {{ return {result}; }}"
        return value.op

    def store(self, s: st.Store) -> str:
        guard = "" if s.where is None else f"if ({self.text(s.where)}) "
        return f"{guard}{self.element(s.array, s.index)} = {self.text(s.value)};"

    def accumulate(self, s: st.Accumulate) -> str:
        guard = "" if s.where is None else f"if ({self.text(s.where)}) "
        return f"{guard}{self.element(s.array, s.index)} += {self.text(s.value)};"
