"""Text of values that differ by lane, over the vector types of GCC and Clang. Other values remain scalars.

An operator may have a vector and a scalar as its operands. A scalar is broadcast only where the compilers require it.
"""

from __future__ import annotations

from trnqc.gen import statements as st
from trnqc.gen.arrays import Array
from trnqc.gen.emit import packed, rows
from trnqc.gen.emit.dialect import safe
from trnqc.gen.emit.exponential import exponential
from trnqc.gen.emit.expressions import ATOM, PREFIX, Fragment, Scalars
from trnqc.gen.values import BYTES, Value

# The integer type that comparing elements of 8 or 4 bytes gives. All bits are set if the comparison holds, else none.
MASKS = {8: "i64", 4: "i32"}
# The sign and the precedence of the logical operations on masks.
BITWISE = {"and": ("&", 3), "or": ("|", 2)}


class Vectors(Scalars):
    """The expressions of one function, for all lanes at once."""

    masks: dict[str, str]

    def __init__(self, *args: object) -> None:
        super().__init__(*args)  # type: ignore[arg-type]
        self.masks = {}

    def vector(self, dtype: str) -> str:
        return f"{dtype}x{self.lanes}"

    def kind(self, value: Value) -> str:
        """The element type of the vector of a value. A condition is a vector of integers as wide as its operands."""
        if value.dtype != "bool":
            return value.dtype
        if value.op == "var":
            return self.masks.get(value.attr, "i64")
        operand = next((a for a in value.args if self.differs(a)), value.args[0])
        return self.kind(operand) if operand.dtype == "bool" else MASKS[BYTES[operand.dtype]]

    def variable_type(self, value: Value) -> str:
        if not self.differs(value):
            return super().variable_type(value)
        return self.vector(self.kind(value))

    def array_type(self, array: Array) -> str:
        if not self.analysis.array_differs(self.function, array):
            return super().array_type(array)
        # Parameters have the alignment of their elements, not that of vectors.
        return self.vector(array.dtype) + ("u" if array.space == "global" else "")

    def spread(self, value: Value, kind: str = "") -> str:
        """The value as a vector with elements of the type `kind`; by default, its own type."""
        kind = kind or self.kind(value)
        if self.differs(value):
            text = self.text(value)
            return text if self.kind(value) == kind else self.converted(text, kind)
        text = f"-({self.text(value)})" if value.dtype == "bool" else self.text(value)
        name = f"all_{self.vector(kind)}"
        element = self.dialect.types[kind]
        # 0 is subtracted and not added, because the sum of -0 and 0 is not -0.
        body = f"return x - ({self.vector(kind)}){{0}};"
        self.helpers[name] = f"static inline {self.vector(kind)} {name}({element} x) {{ {body} }}"
        return f"{name}({text})"

    def converted(self, text: str, kind: str) -> str:
        return f"__builtin_convertvector({text}, {self.vector(kind)})"

    def fragment(self, value: Value) -> Fragment:
        by_lane = getattr(self, f"lanes_{value.op}", None)
        return by_lane(value) if by_lane and self.differs(value) else super().fragment(value)

    def lanes_lane(self, value: Value) -> Fragment:
        return f"(({self.vector(value.dtype)}){{{', '.join(map(str, range(self.lanes)))}}})", ATOM

    def lanes_load(self, value: Value) -> Fragment:
        array, index = value.attr, value.args[0]
        if not self.differs(index):
            return self.element(array, index), ATOM
        by_lane = self.analysis.array_differs(self.function, array)
        vector, source = self.vector(array.dtype), self.array_type(array)
        name = f"gather_{source}_x{self.lanes}"
        self.helpers[name] = (
            f"static inline {vector} {name}(const {source} *a, {self.vector('i64')} at) {{ {vector} r; "
            f"for (int l = 0; l < {self.lanes}; l++) r[l] = a[at[l]]{'[l]' if by_lane else ''}; return r; }}"
        )
        return f"{name}({safe(array.name)}, {self.spread(index, 'i64')})", ATOM

    def lanes_not(self, value: Value) -> Fragment:
        return f"~{self.inside(value.args[0], ATOM)}", PREFIX

    def lanes_and(self, value: Value) -> Fragment:
        sign, precedence = BITWISE[value.op]
        kind = self.kind(value)
        a, b = (self.spread(v, kind) for v in value.args)
        return f"({a}) {sign} ({b})", precedence

    lanes_or = lanes_and

    def lanes_eq(self, value: Value) -> Fragment:
        text, _ = super().on_infix(value)
        return f"({text})", ATOM

    lanes_lt = lanes_le = lanes_eq

    def lanes_sqrt(self, value: Value) -> Fragment:
        name, vector = f"sqrt_{self.vector(value.dtype)}", self.vector(value.dtype)
        self.helpers[name] = square_root(name, vector, self.dialect.types[value.dtype], self.lanes)
        return f"{name}({self.text(value.args[0])})", ATOM

    def lanes_fma(self, value: Value) -> Fragment:
        if not self.dialect.names_fma:
            return self.on_fma(value)
        name, vector = f"fma_{self.vector(value.dtype)}", self.vector(value.dtype)
        self.helpers[name] = multiply_add(name, vector, self.dialect.types[value.dtype], self.lanes)
        return f"{name}({', '.join(map(self.spread, value.args))})", ATOM

    def lanes_log(self, value: Value) -> Fragment:
        name, vector = f"log_{self.vector(value.dtype)}", self.vector(value.dtype)
        scalar = "logf" if value.dtype == "f32" else "log"
        self.helpers[name] = (
            f"static inline {vector} {name}({vector} x) {{ "
            f"{vector} r; for (int l = 0; l < {self.lanes}; l++) r[l] = {scalar}(x[l]); return r; }}"
        )
        return f"{name}({self.text(value.args[0])})", ATOM

    def lanes_exp(self, value: Value) -> Fragment:
        vector = self.vector(value.dtype)
        name, select = f"exp_{vector}", self.selector(value.dtype)
        self.helpers[name] = exponential(name, value.dtype, self.lanes, select, self.dialect.types[value.dtype])
        return f"{name}({self.text(value.args[0])})", ATOM

    def lanes_min(self, value: Value) -> Fragment:
        return self.smaller_or_larger(value, "<")

    def lanes_max(self, value: Value) -> Fragment:
        return self.smaller_or_larger(value, ">")

    def smaller_or_larger(self, value: Value, sign: str) -> Fragment:
        name, vector = f"{value.op}_{self.vector(value.dtype)}", self.vector(value.dtype)
        select = self.selector(value.dtype)
        self.helpers[name] = (
            f"static inline {vector} {name}({vector} a, {vector} b) {{ return {select}(a {sign} b, a, b); }}"
        )
        return f"{name}({', '.join(self.spread(a) for a in value.args)})", ATOM

    def lanes_select(self, value: Value) -> Fragment:
        condition, a, b = value.args
        select = self.selector(value.dtype)
        mask = self.spread(condition, MASKS[BYTES[value.dtype]])
        return f"{select}({mask}, {self.spread(a)}, {self.spread(b)})", ATOM

    def selector(self, dtype: str) -> str:
        vector, mask = self.vector(dtype), self.vector(MASKS[BYTES[dtype]])
        name = f"select_{vector}"
        self.helpers[name] = (
            f"static inline {vector} {name}({mask} m, {vector} a, {vector} b) {{ "
            f"return ({vector})((m & ({mask})a) | (~m & ({mask})b)); }}"
        )
        return name

    def lanes_cast(self, value: Value) -> Fragment:
        return self.converted(self.text(value.args[0]), value.dtype), ATOM

    def lanes_bits(self, value: Value) -> Fragment:
        return f"(({self.vector(value.dtype)})({self.text(value.args[0])}))", ATOM

    lanes_from_bits = lanes_bits

    def lanes_with_bit(self, value: Value) -> Fragment:
        """The scalar function for one lane after the other."""
        scalar, vector = self.of_bits(value), self.vector(value.dtype)
        name, names = f"{scalar}_{vector}", "ab"[: len(value.args)]
        words, each = (", ".join(text.format(x) for x in names) for text in (f"{vector} {{}}", "{}[l]"))
        self.helpers[name] = (
            f"static inline {vector} {name}({words}) {{ {vector} r; "
            f"for (int l = 0; l < {self.lanes}; l++) r[l] = {scalar}({each}); return r; }}"
        )
        return f"{name}({', '.join(map(self.spread, value.args))})", ATOM

    lanes_lowest_bit = lanes_without_lowest_bit = lanes_with_bit

    def store(self, s: st.Store) -> str:
        if self.differs(s.index):
            return self.scatter(s, "=")
        if not self.analysis.array_differs(self.function, s.array):
            return super().store(s)
        place, value = self.element(s.array, s.index), self.spread(s.value)
        if s.where is None:
            return f"{place} = {value};"
        if not self.differs(s.where):
            return f"if ({self.text(s.where)}) {place} = {value};"
        mask = self.spread(s.where, MASKS[BYTES[s.array.dtype]])
        return f"{place} = {self.selector(s.array.dtype)}({mask}, {value}, {place});"

    def accumulate(self, s: st.Accumulate) -> str:
        if self.differs(s.index):
            return self.scatter(s, "+=")
        if self.analysis.array_differs(self.function, s.array) or not self.differs(s.value):
            return super().accumulate(s)
        vector, element = self.vector(s.value.dtype), self.dialect.types[s.value.dtype]
        name = f"sum_{vector}"
        self.helpers[name] = (
            f"static inline {element} {name}({vector} x) {{ "
            f"{element} r = x[0]; for (int l = 1; l < {self.lanes}; l++) r += x[l]; return r; }}"
        )
        return f"{self.element(s.array, s.index)} += {name}({self.text(s.value)});"

    def rows(self, s: st.GatherRows | st.ScatterRows) -> str:
        gathers = isinstance(s, st.GatherRows)
        by_lane, common = (s.target, s.source) if gathers else (s.source, s.target)
        vector, kind = self.vector(common.dtype), self.array_type(by_lane)
        mask, element = self.vector(MASKS[BYTES[common.dtype]]), self.dialect.types[common.dtype]
        self.helpers[f"halves_{vector}"] = rows.shuffles(vector, element, self.lanes)
        name, write = f"{'gather' if gathers else 'scatter'}_rows_{kind}", rows.gather if gathers else rows.scatter
        self.helpers[name] = write(name, vector, kind, element, mask, self.lanes)
        places = f"{safe(by_lane.name)}, {safe(common.name)}, {self.spread(s.start, 'i64')}"
        return f"{name}({places}, {self.text(s.count)});"

    def packed(self, s: st.Unpack | st.Pack) -> str:
        unpacks = isinstance(s, st.Unpack)
        by_lane, common = (s.target, s.source) if unpacks else (s.source, s.target)
        used = min(s.rows, self.lanes)
        layout = packed.RowLayout(
            kind=self.array_type(by_lane),
            vector=self.vector(common.dtype),
            element=self.dialect.types[common.dtype],
            mask=self.vector(MASKS[BYTES[common.dtype]]),
            lanes=self.lanes,
            stride=s.stride,
            count=s.count,
            used=used,
        )
        name, write = (layout.name("unpack"), packed.unpack) if unpacks else (layout.name("pack"), packed.pack)
        self.helpers["shuffle"] = packed.SHUFFLE
        if used < self.lanes:
            self.helpers[f"partial_{layout.vector}"] = packed.partial(layout.vector, layout.element, self.lanes)
        self.helpers[name] = write(name, layout)
        return f"{name}({self.address(by_lane, s.place)}, {self.address(common, s.start)});"

    def scatter(self, s: st.Store | st.Accumulate, sign: str) -> str:
        by_lane = self.analysis.array_differs(self.function, s.array)
        target, vector = self.array_type(s.array), self.vector(s.value.dtype)
        place, at, kind, word = self.places(s)
        mask = "" if s.where is None else self.vector("i64")
        name = f"{'store' if sign == '=' else 'add'}_at_{word}{target}_x{self.lanes}{'_where' if mask else ''}"
        self.helpers[name] = (
            f"static inline void {name}({target} *a, {kind} at, {vector} x{f', {mask} m' if mask else ''}) {{ "
            f"for (int l = 0; l < {self.lanes}; l++) {'if (m[l]) ' if mask else ''}"
            f"a[at[l]]{'[l]' if by_lane else ''} {sign} x[l]; }}"
        )
        last = "" if s.where is None else f", {self.spread(s.where, 'i64')}"
        return f"{name}({place}, {at}, {self.spread(s.value)}{last});"

    def places(self, s: st.Store | st.Accumulate) -> tuple[str, str, str, str]:
        """How to address elements at indices that differ by lane.

        Returns the text of the address, the text of the indices, the type of the indices, and a prefix for the name of
        the helper function. If the index is the sum of a common offset and an element of an array of lanes, the helper
        function reads the indices from that array.
        """
        index = s.index
        for base, table in (index.args, index.args[::-1]) if index.op == "add" else ():
            plain = table.op == "load" and table.dtype == "i64" and table.attr.lanes and not self.differs(table.args[0])
            if plain and not self.differs(base):
                return self.address(s.array, base), f"(const int64_t *)&{self.text(table)}", "const int64_t *", "table_"
        return safe(s.array.name), self.spread(index, "i64"), self.vector("i64"), ""


# For each element type, the builtin function of GCC for the roots of a vector of 64 bytes, and the scalar function.
ROOTS = {"double": ("sqrtpd512", "sqrt"), "float": ("sqrtps512", "sqrtf")}


def square_root(name: str, vector: str, element: str, lanes: int) -> str:
    """A helper function. GCC makes one instruction of the loop only where it vectorises, from -O2 on."""
    builtin, scalar = ROOTS[element]
    # All lanes, with the rounding mode of the processor.
    one = f"return __builtin_ia32_{builtin}_mask(x, x, -1, 4);"
    each = f"{vector} r; for (int l = 0; l < {lanes}; l++) r[l] = {scalar}(x[l]); return r;"
    head = f"static inline {vector} {name}({vector} x)"
    return f"""\
#if defined(__AVX512F__) && !defined(__clang__) && {lanes} * __SIZEOF_{element.upper()}__ == 64
{head} {{ {one} }}
#else
{head} {{ {each} }}
#endif"""


def multiply_add(name: str, vector: str, element: str, lanes: int) -> str:
    """A macro. Where GCC has no built-in function for this vector, it computes a product and a sum."""
    size, letter = lanes * (8 if element == "double" else 4), element[0].replace("f", "s")
    builtins = {
        # All lanes, with the rounding mode of the processor.
        64: ("__AVX512F__", f"__builtin_ia32_vfmaddp{letter}512_mask(a, b, c, -1, 4)"),
        32: ("__FMA__", f"__builtin_ia32_vfmaddp{letter}256(a, b, c)"),
    }
    plain = f"#define {name}(a, b, c) ((a) * (b) + (c))"
    if size not in builtins:
        return plain
    macro, builtin = builtins[size]
    return f"""\
#if defined({macro}) && !defined(__clang__)
#define {name}(a, b, c) (({vector}){builtin})
#else
{plain}
#endif"""


def preamble(lanes: int) -> list[str]:
    """Definitions of the vector types. Types whose names end in u need only the alignment of their elements."""
    lines = ['#pragma GCC diagnostic ignored "-Wpsabi"']
    for dtype, element in (("f64", "double"), ("f32", "float"), ("i64", "int64_t"), ("i32", "int32_t")):
        size = BYTES[dtype]
        attributes = f"vector_size({lanes * size})"
        lines.append(f"typedef {element} {dtype}x{lanes} __attribute__(({attributes}));")
        lines.append(f"typedef {element} {dtype}x{lanes}u __attribute__(({attributes}, aligned({size}), may_alias));")
    return lines
