"""Values as scalar text: one method per operation, with parentheses by precedence."""

from __future__ import annotations

import math

import numpy as np

from trnqc.errors import ProgramError
from trnqc.gen import statements as st
from trnqc.gen.emit.dialect import Dialect, safe
from trnqc.gen.lanes import Lanes
from trnqc.gen.values import Array, Value

ATOM, PREFIX, PRODUCT, SUM, ORDER, EQUALITY, AND, OR, CHOICE = 9, 8, 7, 6, 5, 4, 3, 2, 1
INFIX = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT), "div": ("/", PRODUCT), "idiv": ("/", PRODUCT),
         "mod": ("%", PRODUCT), "lt": ("<", ORDER), "le": ("<=", ORDER), "eq": ("==", EQUALITY), "and": ("&&", AND),
         "or": ("||", OR)}  # fmt: skip
Text = tuple[str, int]


class Scalars:
    """The expressions of one function, for one lane."""

    def __init__(self, dialect: Dialect, lanes: int, function: st.Function, program: Lanes) -> None:
        self.dialect, self.lanes, self.function, self.program = dialect, lanes, function, program
        self.helpers: dict[str, str] = {}
        self._differs: dict[Value, bool] = {}

    def differs(self, value: Value) -> bool:
        if value not in self._differs:
            self._differs[value] = self.program.differs(self.function, value)
        return self._differs[value]

    def text(self, value: Value) -> str:
        return self.bound(value)[0]

    def inside(self, value: Value, binding: int) -> str:
        """The text of an operand, in parentheses if its precedence is lower than `binding`."""
        text, strength = self.bound(value)
        return text if strength >= binding else f"({text})"

    def bound(self, value: Value) -> Text:
        return getattr(self, f"on_{value.op}", self.on_infix)(value)

    def variable_type(self, value: Value) -> str:
        """The type of a variable for the value."""
        return self.dialect.types[value.dtype]

    def array_type(self, array: Array) -> str:
        return self.dialect.types[array.dtype]

    def on_infix(self, value: Value) -> Text:
        if value.op not in INFIX:
            raise ProgramError(f"{self.dialect.name} has no text for the operation {value.op}")
        sign, binding = INFIX[value.op]
        a, b = value.args
        return f"{self.inside(a, binding)} {sign} {self.inside(b, binding + 1)}", binding

    def on_const(self, value: Value) -> Text:
        number = value.attr
        if value.dtype in ("i32", "i64"):
            return f"{number}{'LL' if abs(number) >= 2**31 else ''}", ATOM if number >= 0 else PREFIX
        if not math.isfinite(number):
            word = "NAN" if math.isnan(number) else "INFINITY"
            sign = "-" if number < 0 else ""
            return f"(({self.dialect.types[value.dtype]}){sign}{word})", ATOM
        text = repr(number) if value.dtype == "f64" else f"{np.float32(number)!s}f"
        return text, PREFIX if text.startswith("-") else ATOM

    def on_var(self, value: Value) -> Text:
        return safe(value.attr), ATOM

    def on_lane(self, value: Value) -> Text:
        return (f"({self.dialect.types[value.dtype]})lane", PREFIX) if self.dialect.threads else ("0", ATOM)

    def on_load(self, value: Value) -> Text:
        return self.element(value.attr, value.args[0]), ATOM

    def element(self, array: Array, index: Value) -> str:
        """An element, also as the target of an assignment."""
        if self.dialect.threads and array.lanes:
            return f"{safe(array.name)}[{self.inside(index, PRODUCT)} * {self.lanes} + lane]"
        return f"{safe(array.name)}[{self.text(index)}]"

    def address(self, array: Array, begin: Value) -> str:
        """The address of an element, as an argument of a called function."""
        step = f" * {self.lanes}" if self.dialect.threads and array.lanes else ""
        return f"{safe(array.name)} + {self.inside(begin, PRODUCT)}{step}"

    def warp_sum(self, dtype: str) -> str:
        """The name of a helper that sums over the lanes of a warp and returns the sum on each of them."""
        kind, name = self.dialect.types[dtype], f"warp_sum_{dtype}"
        self.helpers[name] = (
            f"static __device__ __forceinline__ {kind} {name}({kind} x) {{ "
            "for (int n = 16; n; n /= 2) x += __shfl_xor_sync(0xffffffffu, x, n); return x; }"
        )
        return name

    def on_neg(self, value: Value) -> Text:
        return f"-{self.inside(value.args[0], ATOM)}", PREFIX

    def on_not(self, value: Value) -> Text:
        return f"!{self.inside(value.args[0], ATOM)}", PREFIX

    def on_fma(self, value: Value) -> Text:
        a, b, c = value.args
        if self.dialect.threads:
            return self.call("fma", value)
        return f"{self.inside(a, PRODUCT)} * {self.inside(b, PREFIX)} + {self.inside(c, PRODUCT)}", SUM

    def on_sqrt(self, value: Value) -> Text:
        return self.call("sqrt", value)

    def on_exp(self, value: Value) -> Text:
        return self.call("exp", value)

    def call(self, name: str, value: Value) -> Text:
        suffix = "f" if value.dtype == "f32" else ""
        return f"{name}{suffix}({', '.join(map(self.text, value.args))})", ATOM

    def on_min(self, value: Value) -> Text:
        return self.choice(value, "<")

    def on_max(self, value: Value) -> Text:
        return self.choice(value, ">")

    def choice(self, value: Value, sign: str) -> Text:
        a, b = (self.inside(v, SUM) for v in value.args)
        return f"{a} {sign} {b} ? {a} : {b}", CHOICE

    def on_select(self, value: Value) -> Text:
        condition, a, b = value.args
        return f"{self.inside(condition, OR)} ? {self.inside(a, OR)} : {self.inside(b, OR)}", CHOICE

    def on_cast(self, value: Value) -> Text:
        return f"({self.dialect.types[value.dtype]}){self.inside(value.args[0], ATOM)}", PREFIX

    def store(self, s: st.Store) -> str:
        return f"{self.element(s.array, s.index)} = {self.text(s.value)};"

    def accumulate(self, s: st.Accumulate) -> str:
        return f"{self.element(s.array, s.index)} += {self.text(s.value)};"
