"""Text that moves rows which lie evenly apart between memory and lanes.

Rows without gaps are whole vectors of memory. Where their length and the number of lanes have no common factor, an
element's place in its vector tells the lane that it belongs to: blending vectors collects a column, one permutation
orders it. Other lengths take a chain of shuffles of two vectors.
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
Picks = list[tuple[int, int]]  # for every lane of a vector: the number of a source, and the lane there


@dataclass(frozen=True)
class Rows:
    """Names of types (of the array of lanes, a vector, an element, a mask) and extents; used: lanes that have a row."""

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

    def shuffled(self, a: str, b: str, order: list[int]) -> str:
        return f"SHUFFLED({self.mask}, {a}, {b}, {', '.join(map(str, order))})"


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
    lines, source = [head], "from"
    if rows.used < rows.lanes:
        lines += [
            f"    {rows.element} part[{rows.count * rows.lanes}] = {{0}};",
            f"    __builtin_memcpy(part, from, {rows.count * rows.used} * sizeof({rows.element}));",
        ]
        source = "part"
    for n in range(rows.count):
        lines.append(f"    const {rows.vector} m{n} = *(const {rows.vector}u *)({source} + {n * rows.lanes});")
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
    lines, target = [head], "to"
    if rows.used < rows.lanes:
        lines.append(f"    {rows.element} part[{rows.count * rows.lanes}];")
        target = "part"
    lines += _ordered(rows)
    for n in range(rows.count):
        flat = [n * rows.lanes + place for place in range(rows.lanes)]
        picks = [(place % rows.count, place // rows.count) for place in flat]
        if rows.coprime:
            picks = [(i, lane) for lane, (i, _) in enumerate(picks)]
        lines += _picked(rows, f"t{n}", "m", picks)
        lines.append(f"    *({rows.vector}u *)({target} + {n * rows.lanes}) = t{n};")
    if rows.used < rows.lanes:
        lines.append(f"    __builtin_memcpy(to, part, {rows.count * rows.used} * sizeof({rows.element}));")
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
