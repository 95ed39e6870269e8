"""Text that moves rows between memory and lanes: a row a lane, so blocks of lanes x lanes elements are transposed."""

from __future__ import annotations

HEAD = "static inline void {name}({array} *{a}, {memory} *{b}, i64x{lanes} at, int64_t n) {{"


def transpose(name: str, vector: str, mask: str, lanes: int) -> str:
    """Exchange row and lane: at every power of two the off-diagonal blocks of a pair of vectors change places."""
    lines = [
        "#ifdef __clang__",
        "#define SHUFFLE(kind, a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)",
        "#else",
        "#define SHUFFLE(kind, a, b, ...) __builtin_shuffle(a, b, (kind){__VA_ARGS__})",
        "#endif",
        f"static inline void {name}({vector} *r) {{",
        f"    {vector} a, b;",
    ]
    step = lanes // 2
    while step:
        low = ", ".join(str(k if not k & step else k - step + lanes) for k in range(lanes))
        high = ", ".join(str(k + step if not k & step else k + lanes) for k in range(lanes))
        for i in (i for i in range(lanes) if not i & step):
            lines.append(
                f"    a = r[{i}]; b = r[{i + step}]; r[{i}] = SHUFFLE({mask}, a, b, {low}); "
                f"r[{i + step}] = SHUFFLE({mask}, a, b, {high});"
            )
        step //= 2
    return "\n".join([*lines, "}"])


def gather(name: str, exchange: str, vector: str, target: str, element: str, lanes: int) -> str:
    """Rows of memory into lanes; target: type of the array of lanes, exchange: name of the transposition."""
    head = HEAD.format(name=name, array=target, a="to", memory=f"const {element}", b="from", lanes=lanes)
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
    for (; i < n; i++) {{
        {vector} r;
        for (int l = 0; l < {lanes}; l++) r[l] = row[l][i];
        to[i] = r;
    }}
}}"""


def scatter(name: str, exchange: str, vector: str, source: str, element: str, lanes: int) -> str:
    """Lanes added to rows of memory, one lane after the other since two may have one row."""
    head = HEAD.format(name=name, array=f"const {source}", a="from", memory=element, b="to", lanes=lanes)
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
    for (; i < n; i++)
        for (int l = 0; l < {lanes}; l++) row[l][i] += from[i][l];
}}"""
