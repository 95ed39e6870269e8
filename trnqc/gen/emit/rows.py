"""C helper functions that move rows between memory and lanes, one row for each lane.

Blocks of lanes x lanes elements are transposed in registers. The rest of a row is moved in half blocks, in which a
vector holds elements of two rows, and the last elements are moved one by one.
"""

from __future__ import annotations

HEAD = "static inline void {name}({array} *{a}, {memory} *{b}, i64x{lanes} at, int64_t n) {{"


def transpose(name: str, vector: str, element: str, mask: str, lanes: int) -> str:
    """Helper functions that transpose a block, and half a block if the compiler can join halves of vectors."""
    half = f"half_{vector}"
    first, second = (", ".join(str(k + n) for k in range(lanes // 2)) for n in (0, lanes // 2))
    wide = f"sizeof({vector}) / 2"
    whole = f"""\
#ifdef __clang__
#define SHUFFLE(kind, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#else
#define SHUFFLE(kind, a, b, ...) __builtin_shuffle(a, b, (kind){{__VA_ARGS__}})
#endif
{_exchange(name, vector, mask, lanes, lanes)}"""
    if lanes < 4:
        return whole
    return f"""\
{whole}
#if defined(__clang__) || __GNUC__ >= 12
#define HALVES_{vector}
typedef {element} {half} __attribute__((vector_size({wide})));
typedef {element} {half}u __attribute__((vector_size({wide}), aligned(sizeof({element})), may_alias));
{_exchange(f"{name}_half", vector, mask, lanes, lanes // 2)}
static inline {vector} join_{vector}({half} a, {half} b) {{ return __builtin_shufflevector(a, b, {first}, {second}); }}
static inline {half} low_{vector}({vector} a) {{ return __builtin_shufflevector(a, a, {first}); }}
static inline {half} high_{vector}({vector} a) {{ return __builtin_shufflevector(a, a, {second}); }}
#endif"""


def _exchange(name: str, vector: str, mask: str, lanes: int, rows: int) -> str:
    """A function that transposes a block in place.

    In steps of powers of two, it exchanges the off-diagonal parts of pairs of vectors.
    """
    lines = [f"static inline void {name}({vector} *r) {{", f"    {vector} a, b;"]
    step = rows // 2
    while step:
        low = ", ".join(str(k if not k & step else k - step + lanes) for k in range(lanes))
        high = ", ".join(str(k + step if not k & step else k + lanes) for k in range(lanes))
        for i in (i for i in range(rows) if not i & step):
            lines.append(
                f"    a = r[{i}]; b = r[{i + step}]; r[{i}] = SHUFFLE({mask}, a, b, {low}); "
                f"r[{i + step}] = SHUFFLE({mask}, a, b, {high});"
            )
        step //= 2
    return "\n".join([*lines, "}"])


def gather(name: str, exchange: str, vector: str, target: str, element: str, lanes: int) -> str:
    """Return the helper function of a `GatherRows` statement, whose last half block may overlap with the one before it.

    `exchange` names the function that transposes a block; `vector`, `target` and `element` are the types of a vector,
    of an element of the array of lanes, and of a number.
    """
    head = HEAD.format(name=name, array=target, a="to", memory=f"const {element}", b="from", lanes=lanes)
    half = lanes // 2
    return f"""{head}
    const {element} *row[{lanes}];
    int64_t i = 0;
    for (int l = 0; l < {lanes}; l++) row[l] = from + at[l];
    for (; i + {lanes} <= n; i += {lanes}) {{
        {vector} r[{lanes}];
        for (int l = 0; l < {lanes}; l++) r[l] = *(const {vector}u *)(row[l] + i);
        {exchange}(r);
        for (int l = 0; l < {lanes}; l++) to[i + l] = r[l];
    }}
#ifdef HALVES_{vector}
    while (n >= {half} && n - i > 1) {{
        {vector} r[{half}];
        if (i > n - {half}) i = n - {half};
        for (int l = 0; l < {half}; l++)
            r[l] = join_{vector}(*(const half_{vector}u *)(row[l] + i), *(const half_{vector}u *)(row[l + {half}] + i));
        {exchange}_half(r);
        for (int l = 0; l < {half}; l++) to[i + l] = r[l];
        i += {half};
    }}
#endif
    for (; i < n; i++) {{
        {vector} r;
        for (int l = 0; l < {lanes}; l++) r[l] = row[l][i];
        to[i] = r;
    }}
}}"""


def scatter(name: str, exchange: str, vector: str, source: str, element: str, lanes: int) -> str:
    """The helper function of a `ScatterRows` statement; see `gather` for the parameters.

    It adds one lane after the other, because two lanes may have the same row.
    """
    head = HEAD.format(name=name, array=f"const {source}", a="from", memory=element, b="to", lanes=lanes)
    half = lanes // 2
    return f"""{head}
    {element} *row[{lanes}];
    int64_t i = 0;
    for (int l = 0; l < {lanes}; l++) row[l] = to + at[l];
    for (; i + {lanes} <= n; i += {lanes}) {{
        {vector} r[{lanes}];
        for (int l = 0; l < {lanes}; l++) r[l] = from[i + l];
        {exchange}(r);
        for (int l = 0; l < {lanes}; l++) *({vector}u *)(row[l] + i) += r[l];
    }}
#ifdef HALVES_{vector}
    for (; i + {half} <= n; i += {half}) {{
        {vector} r[{half}];
        for (int l = 0; l < {half}; l++) r[l] = from[i + l];
        {exchange}_half(r);
        for (int l = 0; l < {half}; l++) *(half_{vector}u *)(row[l] + i) += low_{vector}(r[l]);
        for (int l = 0; l < {half}; l++) *(half_{vector}u *)(row[l + {half}] + i) += high_{vector}(r[l]);
    }}
#endif
    for (; i < n; i++)
        for (int l = 0; l < {lanes}; l++) row[l][i] += from[i][l];
}}"""
