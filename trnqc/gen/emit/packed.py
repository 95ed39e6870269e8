"""C helper functions that move evenly spaced rows between memory and lanes.

Rows without gaps are read and written as whole vectors. If the length of a row and the number of lanes are coprime, the
elements of a column lie at different positions of their vectors, so that a column is collected by blending vectors and
then ordered by one permutation. Other lengths need a chain of shuffles of two vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import gcd

# A macro that selects elements of two vectors by number.
SHUFFLE = """\
#ifdef __clang__
#define SHUFFLED(kind, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLED(kind, a, b, ...) __builtin_shuffle(a, b, (kind){__VA_ARGS__})
#endif"""
INLINE = "static inline __attribute__((always_inline))"
# For each lane of a vector, the number of a source vector and a lane of that vector.
Picks = list[tuple[int, int]]


@dataclass(frozen=True)
class RowLayout:
    """Rows in memory, `stride` elements apart with `count` elements each, and the C types that hold them.

    `kind` is the element type of the array of lanes, `vector` has one number (`element`) for each lane, `mask` is a
    vector of integers of the same size; `used` lanes of `lanes` have a row.
    """

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
    def filled(self) -> list[int]:
        """For each vector in memory, the number of its elements that belong to a row."""
        elements = self.count * self.used
        return [min(self.lanes, max(0, elements - n * self.lanes)) for n in range(self.count)]

    def shuffled(self, a: str, b: str, order: list[int]) -> str:
        return f"SHUFFLED({self.mask}, {a}, {b}, {', '.join(map(str, order))})"


# For each element type, the builtin functions for masked moves of a vector of 64 bytes, and the type of the mask.
MASKED = {"float": ("loadups512", "storeups512", "uint16_t"), "double": ("loadupd512", "storeupd512", "uint8_t")}


def partial(vector: str, element: str, lanes: int) -> str:
    """Helper functions that load and store the first n elements of a vector. Loading sets the others to zero.

    They use masked moves where the machine has them, and otherwise copy through an array.
    """
    load = f"{INLINE} {vector} some_{vector}(const {element} *p, int n)"
    store = f"{INLINE} void put_some_{vector}({element} *p, {vector} x, int n)"
    size = f"n * sizeof({element})"
    through_memory = f"""\
{load} {{ {element} part[{lanes}] = {{0}}; __builtin_memcpy(part, p, {size}); return *(const {vector}u *)part; }}
{store} {{ {element} part[{lanes}]; *({vector}u *)part = x; __builtin_memcpy(p, part, {size}); }}"""
    if element not in MASKED:
        return through_memory
    read, write, mask = MASKED[element]
    first_n = f"({mask})((1u << n) - 1)"
    return f"""\
#if defined(__AVX512F__) && {lanes} * __SIZEOF_{element.upper()}__ == 64
{load} {{ return __builtin_ia32_{read}_mask(p, ({vector}){{0}}, {first_n}); }}
{store} {{ __builtin_ia32_{write}_mask(p, x, {first_n}); }}
#else
{through_memory}
#endif"""


def unpack(name: str, rows: RowLayout) -> str:
    """The helper function of an `Unpack` statement."""
    head = f"{INLINE} void {name}({rows.kind} *to, const {rows.element} *from) {{"
    if not rows.dense:
        return f"""{head}
    for (int i = 0; i < {rows.count}; i++) {{
        {rows.vector} r = {{0}};
        for (int l = 0; l < {rows.used}; l++) r[l] = from[l * {rows.stride} + i];
        to[i] = r;
    }}
}}"""
    lines = [head]
    for n, filled in enumerate(rows.filled):
        value = f"*(const {rows.vector}u *)(from + {n * rows.lanes})"
        if filled < rows.lanes:
            value = f"some_{rows.vector}(from + {n * rows.lanes}, {filled})" if filled else f"({rows.vector}){{0}}"
        lines.append(f"    const {rows.vector} m{n} = {value};")
    for i in range(rows.count):
        flat = [lane * rows.count + i for lane in range(rows.lanes)]
        lines += _picked(rows, f"t{i}", "m", [divmod(place, rows.lanes) for place in flat])
        lines.append(f"    to[{i}] = t{i};")
    return "\n".join([*lines, "}"])


def pack(name: str, rows: RowLayout) -> str:
    """The helper function of a `Pack` statement."""
    head = f"{INLINE} void {name}(const {rows.kind} *from, {rows.element} *to) {{"
    if not rows.dense:
        return f"""{head}
    for (int i = 0; i < {rows.count}; i++)
        for (int l = 0; l < {rows.used}; l++) to[l * {rows.stride} + i] = from[i][l];
}}"""
    lines = [head, *_ordered(rows)]
    for n, filled in enumerate(rows.filled):
        if not filled:
            break
        flat = [n * rows.lanes + place for place in range(rows.lanes)]
        picks = [(place % rows.count, place // rows.count) for place in flat]
        if rows.coprime:
            picks = [(i, lane) for lane, (i, _) in enumerate(picks)]
        lines += _picked(rows, f"t{n}", "m", picks)
        if filled == rows.lanes:
            lines.append(f"    *({rows.vector}u *)(to + {n * rows.lanes}) = t{n};")
        else:
            lines.append(f"    put_some_{rows.vector}(to + {n * rows.lanes}, t{n}, {filled});")
    return "\n".join([*lines, "}"])


def _ordered(rows: RowLayout) -> list[str]:
    """Introduce the columns. For blends, the elements of a column are ordered by their positions in memory."""
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


def _picked(rows: RowLayout, name: str, source: str, picks: Picks) -> list[str]:
    """Introduce the vector `name` that consists of the picked elements of the vectors ``source0``, ``source1``, ..."""
    order, picks = list(range(rows.lanes)), list(picks)
    if len({place for _, place in picks}) == rows.lanes and [p for _, p in picks] != order:
        # Every position occurs once: collect the elements at their positions, then order them.
        order = [place for _, place in picks]
        by_place = {place: n for n, place in picks}
        picks = [(by_place[place], place) for place in range(rows.lanes)]
    used = sorted({n for n, _ in picks})
    text, joined = f"{source}{used[0]}", {used[0]}
    # After two vectors are joined, the elements that were picked from them lie at their own lanes.
    first = [place if n == used[0] else lane for lane, (n, place) in enumerate(picks)]
    for n in used[1:]:
        merged = [
            rows.lanes + place if m == n else (first[lane] if m in joined else lane)
            for lane, (m, place) in enumerate(picks)
        ]
        text, first = rows.shuffled(text, f"{source}{n}", merged), list(range(rows.lanes))
        joined.add(n)
    if len(used) == 1 and first != list(range(rows.lanes)):
        text = rows.shuffled(text, text, first)
    lines = [f"    {rows.vector} {name} = {text};"]
    if order != list(range(rows.lanes)):
        lines.append(f"    {name} = {rows.shuffled(name, name, order)};")
    return lines
