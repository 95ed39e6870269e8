"""The text of exp for vectors of GCC and Clang, which the C library computes one number at a time.

x -> n = round(x / ln 2), r = x - n ln 2 -> Taylor series of exp(r), |r| < ln(2) / 2 -> times 2^n by its bits

The result differs from the exact one by at most 2 units in the last place. Results below the smallest normal number are
0. (W. J. Cody and W. Waite, Software Manual for the Elementary Functions (1980), chapter 6.)
"""

from __future__ import annotations

import math
from dataclasses import dataclass


@dataclass(frozen=True)
class ExponentialFormat:
    """What the series depends on besides the type of a number.

    Attributes
    ----------
    terms : int
        The highest power of the Taylor series. The next term is below a quarter of a unit in the last place.
    shift : float
        1.5 times 2 to the number of stored bits of a mantissa. A number to which it is added is rounded to an integer,
        whose bits are the last ones of the sum.
    bits, bias : int
        The stored bits of a mantissa, and the bias of the exponent.
    high, low : float
        ln 2 as a sum. `high` has so few bits that its product with n is exact.
    least, most : float
        Arguments below and above, for which the result is 0 and infinity.
    integer : str
        The type of integers of the same size.
    """

    terms: int
    shift: float
    bits: int
    bias: int
    high: float
    low: float
    least: float
    most: float
    integer: str


FORMATS = {
    # The parts of ln 2 are those of fdlibm's e_exp.c and of Cephes' expf.c.
    "f64": ExponentialFormat(
        13, 6755399441055744.0, 52, 1023, 6.93147180369123816490e-01, 1.90821492927058770002e-10, -708.0, 710.0, "i64"
    ),
    "f32": ExponentialFormat(7, 12582912.0, 23, 127, 0.693359375, -2.12194440e-4, -87.0, 89.0, "i32"),
}


def exponential(name: str, dtype: str, lanes: int, select: str, number: str) -> str:
    """Return the text of the function for vectors of `lanes` elements of `dtype`, a key of FORMATS.

    `select` is the function that chooses between two vectors by a mask, `number` the C type of a number.
    """
    f, vector = FORMATS[dtype], f"{dtype}x{lanes}"

    def c(value: float) -> str:
        return f"{value!r}{'f' if dtype == 'f32' else ''}"

    def spread(text: str) -> str:
        return f"(({vector}){{0}} + {text})"

    series = [f"p = p * r + {c(1 / math.factorial(k))};" for k in range(f.terms - 1, -1, -1)]
    lines = [
        f"const {vector} t = x * {c(1 / math.log(2))} + {c(f.shift)}, n = t - {c(f.shift)};",
        f"const {vector} r = (x - n * {c(f.high)}) - n * {c(f.low)};",
        f"{vector} p = {spread(c(1 / math.factorial(f.terms)))};",
        *series,
        # 2^(n - 1) and then 2, because 2^n can exceed the largest number where the result does not.
        f"p = p * ({vector})((({f.integer}x{lanes})t + {f.bias - 1}) << {f.bits}) * {c(2.0)};",
        f"p = {select}(x < {c(f.least)}, ({vector}){{0}}, p);",
        f"return {select}(x > {c(f.most)}, {spread(f'({number})INFINITY')}, p);",
    ]
    return f"static inline {vector} {name}({vector} x) {{ {' '.join(lines)} }}"
