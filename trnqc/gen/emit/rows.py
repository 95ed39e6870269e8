"""C helper functions that move rows between memory and lanes, one row for each lane.

Blocks of lanes x lanes elements are transposed in registers. The rest of a row is moved in half blocks, in which a
vector holds elements of two rows, and the last elements are moved one by one.
"""

from __future__ import annotations

HEAD = "static inline void {name}({array} *{a}, {memory} *{b}, i64x{lanes} at, int64_t n) {{"


def shuffles(vector: str, element: str, lanes: int) -> str:
    """The macro that takes elements of two vectors, and the types and functions of halves of vectors, where the
    compiler can join them.
    """
    half = f"half_{vector}"
    first, second = (", ".join(str(k + n) for k in range(lanes // 2)) for n in (0, lanes // 2))
    wide = f"sizeof({vector}) / 2"
    macro = """\
#ifdef __clang__
#define SHUFFLE(kind, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(kind, a, b, ...) __builtin_shuffle(a, b, (kind){__VA_ARGS__})
#endif"""
    if lanes < 4:
        return macro
    return f"""\
{macro}
#if defined(__clang__) || __GNUC__ >= 12
#define HALVES_{vector}
typedef {element} {half} __attribute__((vector_size({wide})));
typedef {element} {half}u __attribute__((vector_size({wide}), aligned(sizeof({element})), may_alias));
static inline {vector} join_{vector}({half} a, {half} b) {{ return __builtin_shufflevector(a, b, {first}, {second}); }}
static inline {half} low_{vector}({vector} a) {{ return __builtin_shufflevector(a, a, {first}); }}
static inline {half} high_{vector}({vector} a) {{ return __builtin_shufflevector(a, a, {second}); }}
#endif"""


def _transposed(vector: str, mask: str, lanes: int, rows: int) -> str:
    """Statements that transpose the block of the vectors r0, r1, ...; or half a block, of half as many.

    In steps of powers of two, they exchange the off-diagonal parts of pairs of vectors. The vectors have names instead
    of being an array, which compilers keep in memory where they optimise little.
    """
    lines = [f"{vector} a, b;"]
    step = rows // 2
    while step:
        low = ", ".join(str(k if not k & step else k - step + lanes) for k in range(lanes))
        high = ", ".join(str(k + step if not k & step else k + lanes) for k in range(lanes))
        for i in (i for i in range(rows) if not i & step):
            lines.append(
                f"a = r{i}; b = r{i + step}; r{i} = SHUFFLE({mask}, a, b, {low}); "
                f"r{i + step} = SHUFFLE({mask}, a, b, {high});"
            )
        step //= 2
    return "\n        ".join(lines)


def _each(pattern: str, count: int, pad: int = 8) -> str:
    """A statement for each l below count, with h = l + count."""
    return ("\n" + " " * pad).join(pattern.format(l=l, h=l + count) for l in range(count))


def gather(name: str, vector: str, target: str, element: str, mask: str, lanes: int) -> str:
    """Return the helper function of a `GatherRows` statement, whose last half block may overlap with the one before it.

    `vector`, `target` and `element` are the types of a vector, of an element of the array of lanes, and of a number;
    `mask` is a vector of integers.
    """
    head = HEAD.format(name=name, array=target, a="to", memory=f"const {element}", b="from", lanes=lanes)
    half = lanes // 2
    read = f"{vector} r{{l}} = *(const {vector}u *)(row{{l}} + i);"
    joined = [f"*(const half_{vector}u *)(row{{{x}}} + i)" for x in "lh"]
    read_half = f"{vector} r{{l}} = join_{vector}({', '.join(joined)});"
    put = "to[i + {l}] = r{l};"
    return f"""{head}
    int64_t i = 0;
    {_each(f"const {element} *row{{l}} = from + at[{{l}}];", lanes, 4)}
    for (; i + {lanes} <= n; i += {lanes}) {{
        {_each(read, lanes)}
        {_transposed(vector, mask, lanes, lanes)}
        {_each(put, lanes)}
    }}
#ifdef HALVES_{vector}
    while (n >= {half} && n - i > 1) {{
        if (i > n - {half}) i = n - {half};
        {_each(read_half, half)}
        {_transposed(vector, mask, lanes, half)}
        {_each(put, half)}
        i += {half};
    }}
#endif
    for (; i < n; i++)
        to[i] = ({vector}){{{", ".join(f"row{l}[i]" for l in range(lanes))}}};
}}"""


def scatter(name: str, vector: str, source: str, element: str, mask: str, lanes: int) -> str:
    """The helper function of a `ScatterRows` statement; see `gather` for the parameters.

    It adds one lane after the other, because two lanes may have the same row.
    """
    head = HEAD.format(name=name, array=f"const {source}", a="from", memory=element, b="to", lanes=lanes)
    half = lanes // 2
    read = f"{vector} r{{l}} = from[i + {{l}}];"
    add = f"*({vector}u *)(row{{l}} + i) += r{{l}};"
    add_low = f"*(half_{vector}u *)(row{{l}} + i) += low_{vector}(r{{l}});"
    add_high = f"*(half_{vector}u *)(row{{h}} + i) += high_{vector}(r{{l}});"
    return f"""{head}
    int64_t i = 0;
    {_each(f"{element} *row{{l}} = to + at[{{l}}];", lanes, 4)}
    for (; i + {lanes} <= n; i += {lanes}) {{
        {_each(read, lanes)}
        {_transposed(vector, mask, lanes, lanes)}
        {_each(add, lanes)}
    }}
#ifdef HALVES_{vector}
    for (; i + {half} <= n; i += {half}) {{
        {_each(read, half)}
        {_transposed(vector, mask, lanes, half)}
        {_each(add_low, half)}
        {_each(add_high, half)}
    }}
#endif
    for (; i < n; i++) {{
        {_each("row{l}[i] += from[i][{l}];", lanes)}
    }}
}}"""
