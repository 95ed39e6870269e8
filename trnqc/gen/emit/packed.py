"""C helpers that move evenly spaced rows between memory and lanes.

Rows without gaps are read as whole vectors. If the row length and the number of lanes are coprime, an element's
position in its vector determines its lane: a column is collected by blending vectors and ordered by one permutation.
Other lengths need a chain of shuffles of two vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

SHUFFLE = "\n".join([
    "#ifdef __clang__",
    "#define SHUFFLED(kind, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)",
    "#else",
    "#define SHUFFLED(kind, a, b, ...) __builtin_shuffle(a, b, (kind){__VA_ARGS__})",
    "#endif",
])  # fmt: skip
# For every lane of a vector: the number of a source vector, and the lane in it.
Picks = list[tuple[int, int]]


@dataclass(frozen=True)
class Rows:
    """Names of the types (array of lanes, vector, element, mask), and extents. used: number of lanes with a row."""

    kind: str
    vector: str
    element: str
    mask: str
    lanes: int
    stride: int
    count: int
    used: int

    def name(self, verb: str) -> str:
        return f"{verb}_{self.count}_of_{self.stride}_x{self.used}_{self.kind}"

    @property
    def dense(self) -> bool:
        return self.stride == self.count

    @property
    def coprime(self) -> bool:
        return gcd(self.count, self.lanes) == 1 and self.count > 1

    @property
    def held(self) -> list[int]:
        """How many elements of rows each vector of memory contains."""
        there = self.count * self.used
        return [min(self.lanes, max(0, there - n * self.lanes)) for n in range(self.count)]

    def shuffled(self, a: str, b: str, order: list[int]) -> str:
        return f"SHUFFLED({self.mask}, {a}, {b}, {', '.join(map(str, order))})"


# By element type: the builtins of masked moves of a 64-byte vector, and the type of the mask.
MASKED = {"float": ("loadups512", "storeups512", "uint16_t"), "double": ("loadupd512", "storeupd512", "uint8_t")}


def partial(vector: str, element: str, lanes: int) -> str:
    """Helpers that move the first n elements of a vector, reading the rest as zero; without masks through memory."""
    inline = "static inline __attribute__((always_inline))"
    load = f"{{ {element} part[{lanes}] = {{0}}; __builtin_memcpy(part, p, n * sizeof({element})); " \
           f"return *(const {vector}u *)part; }}"  # fmt: skip
    store = f"{{ {element} part[{lanes}]; *({vector}u *)part = x; __builtin_memcpy(p, part, n * sizeof({element})); }}"
    heads = (f"{inline} {vector} some_{vector}(const {element} *p, int n)",
             f"{inline} void put_some_{vector}({element} *p, {vector} x, int n)")  # fmt: skip
    plain = [f"{heads[0]} {load}", f"{heads[1]} {store}"]
    if element not in MASKED:
        return "\n".join(plain)
    read, write, mask = MASKED[element]
    chosen = f"({mask})((1u << n) - 1)"
    return "\n".join([
        f"#if defined(__AVX512F__) && {lanes} * __SIZEOF_{element.upper()}__ == 64",
        f"{heads[0]} {{ return __builtin_ia32_{read}_mask(p, ({vector}){{0}}, {chosen}); }}",
        f"{heads[1]} {{ __builtin_ia32_{write}_mask(p, x, {chosen}); }}",
        "#else",
        *plain,
        "#endif",
    ])  # fmt: skip


def unpack(name: str, rows: Rows) -> str:
    head = f"static inline __attribute__((always_inline)) void {name}({rows.kind} *to, const {rows.element} *from) {{"
    if not rows.dense:
        return f"""{head}
    for (int i = 0; i < {rows.count}; i++) {{
        {rows.vector} r = {{0}};
        for (int l = 0; l < {rows.used}; l++) r[l] = from[l * {rows.stride} + i];
        to[i] = r;
    }}
}}"""
    lines = [head]
    for n, held in enumerate(rows.held):
        value = f"*(const {rows.vector}u *)(from + {n * rows.lanes})"
        if held < rows.lanes:
            value = f"some_{rows.vector}(from + {n * rows.lanes}, {held})" if held else f"({rows.vector}){{0}}"
        lines.append(f"    const {rows.vector} m{n} = {value};")
    for i in range(rows.count):
        flat = [lane * rows.count + i for lane in range(rows.lanes)]
        lines += _picked(rows, f"t{i}", "m", [divmod(place, rows.lanes) for place in flat])
        lines.append(f"    to[{i}] = t{i};")
    return "\n".join([*lines, "}"])


def pack(name: str, rows: Rows) -> str:
    inline = "static inline __attribute__((always_inline)) void"
    head = f"{inline} {name}(const {rows.kind} *from, {rows.element} *to) {{"
    if not rows.dense:
        return f"""{head}
    for (int i = 0; i < {rows.count}; i++)
        for (int l = 0; l < {rows.used}; l++) to[l * {rows.stride} + i] = from[i][l];
}}"""
    lines = [head, *_ordered(rows)]
    for n, held in enumerate(rows.held):
        if not held:
            break
        flat = [n * rows.lanes + place for place in range(rows.lanes)]
        picks = [(place % rows.count, place // rows.count) for place in flat]
        if rows.coprime:
            picks = [(i, lane) for lane, (i, _) in enumerate(picks)]
        lines += _picked(rows, f"t{n}", "m", picks)
        if held == rows.lanes:
            lines.append(f"    *({rows.vector}u *)(to + {n * rows.lanes}) = t{n};")
        else:
            lines.append(f"    put_some_{rows.vector}(to + {n * rows.lanes}, t{n}, {held});")
    return "\n".join([*lines, "}"])


def _ordered(rows: Rows) -> list[str]:
    """The columns, each in the order of its elements' places in memory where blends are to join them."""
    lines = []
    for i in range(rows.count):
        value = f"from[{i}]"
        if rows.coprime:
            order = [0] * rows.lanes
            for lane in range(rows.lanes):
                order[(lane * rows.count + i) % rows.lanes] = lane
            lines.append(f"    const {rows.vector} c{i} = {value};")
            value = rows.shuffled(f"c{i}", f"c{i}", order)
        lines.append(f"    const {rows.vector} m{i} = {value};")
    return lines


def _picked(rows: Rows, name: str, source: str, picks: Picks) -> list[str]:
    """Introduce the vector `name` of the picked elements."""
    order, picks = list(range(rows.lanes)), list(picks)
    if len({place for _, place in picks}) == rows.lanes and [p for _, p in picks] != order:
        # Every place occurs once: collect in place, then order.
        order = [place for _, place in picks]
        by_place = {place: n for n, place in picks}
        picks = [(by_place[place], place) for place in range(rows.lanes)]
    used = sorted({n for n, _ in picks})
    text, have = f"{source}{used[0]}", {used[0]}
    # Once a first pair is joined, what was taken lies at its own lane.
    first = [place if n == used[0] else lane for lane, (n, place) in enumerate(picks)]
    for n in used[1:]:
        merged = [
            rows.lanes + place if m == n else (first[lane] if m in have else lane)
            for lane, (m, place) in enumerate(picks)
        ]
        text, first = rows.shuffled(text, f"{source}{n}", merged), list(range(rows.lanes))
        have.add(n)
    if len(used) == 1 and first != list(range(rows.lanes)):
        text = rows.shuffled(text, text, first)
    lines = [f"    {rows.vector} {name} = {text};"]
    if order != list(range(rows.lanes)):
        lines.append(f"    {name} = {rows.shuffled(name, name, order)};")
    return lines
