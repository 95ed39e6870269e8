"""Programs that convert numbers in the memory of a GPU to the formats of matrix products.

pack    rows of B in fp64 -> rows in the format of a precision (formats.py)
split   amplitudes in fp32 -> two bf16 numbers

A bf16 number is the upper half of the bits of an fp32 number. Programs have no such type, so they write words of two
bf16 numbers as integers.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.backends.cpu.formats import FORMATS
from trnqc.backends.cuda.formats import DeviceFormat
from trnqc.gen.arrays import Array
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import Value, Var, bits, cast, const, from_bits, lane, le, lt, minimum, select
from trnqc.jit import Recipe, Signature
from trnqc.jit.device import Device, DeviceArray

GROUP = Var("group", "i64")
WORDS, X, HIGH, LOW = Var("words", "i64"), Array("x", "f32"), Array("high", "i32"), Array("low", "i32")
ELEMENTS, WIDTH, PLACE = (Var(name, "i64") for name in ("elements", "width", "place"))
ROWS = Array("rows", "f64")
# The number of values of 16 bits.
HALF = 1 << 16


def split_recipe(lanes: int) -> Recipe:
    """The recipe of ``split``.

    It takes ``x`` of 2 ``words`` numbers and writes ``high`` and ``low``, two bf16 numbers in each of their words, with
    x = high + low up to 2^-17. Group g has the words from g * lanes on.
    """
    signature = Signature.declared("split", (WORDS, X, HIGH, LOW), ("high", "low"))
    return Recipe("split", (signature,), lambda: (split(lanes),), __name__, str(lanes))


def split(lanes: int) -> Function:
    """The function of `split_recipe`."""
    b = Builder()
    # Lanes beyond the end write the last word again.
    word = b.let("word", minimum(GROUP * lanes + lane(), WORDS - 1))
    high, low = _parts(b, [X[word * 2], X[word * 2 + 1]], 2)
    b.store(HIGH[word], high)
    b.store(LOW[word], low)
    return b.function("split", (WORDS, X, HIGH, LOW), group=GROUP)


def pack_recipe(form: DeviceFormat, lanes: int) -> Recipe:
    """The recipe of ``pack``.

    It takes ``rows`` of ``elements`` numbers in fp64 and writes them to ``packed``, from the element ``place`` on, with
    all copies of a row one after the other. Each copy is padded with zeros to ``width`` elements. Group g has row g.
    Elements and their places are counted in words of two numbers where these are bf16.
    """
    signature = Signature.declared("pack", _pack_parameters(form), ("packed",))
    return Recipe("pack", (signature,), lambda: (pack(form, lanes),), __name__, f"{form.precision} {lanes}")


def _pack_parameters(form: DeviceFormat) -> tuple[Value | Array, ...]:
    kind = "i32" if form.halves else form.kind
    return (ELEMENTS, WIDTH, PLACE, ROWS, Array("packed", kind))


def pack(form: DeviceFormat, lanes: int) -> Function:
    """The function of `pack_recipe`."""
    b, packed, copies = Builder(), Array("packed", "i32" if form.halves else form.kind), FORMATS[form.precision].copies
    place = b.let("first", PLACE + GROUP * WIDTH * copies)
    with b.loop("chunk", WIDTH, step=lanes) as chunk:
        # Lanes beyond the end write the last word or number again.
        n = b.let("n", minimum(chunk + lane(), WIDTH - 1))
        for copy, value in enumerate(_copies(b, form, n)):
            b.store(packed[place + WIDTH * copy + n], value)
    return b.function("pack", _pack_parameters(form), group=GROUP)


def _copies(b: Builder, form: DeviceFormat, n: Value) -> list[Value]:
    """What the copies of a row have at place n."""
    if not form.halves:
        return [cast(_element(n), form.kind)]
    numbers = [b.let("x", cast(_element(n * 2 + k), "f32")) for k in (0, 1)]
    parts = _parts(b, numbers, len(form.parts))
    if len(parts) == 1:
        return parts
    high, low = parts
    return [low, high, high, low]


def _element(n: Value) -> Value:
    """An element of the row of a group, or zero beyond its end."""
    return select(lt(n, ELEMENTS), ROWS[GROUP * ELEMENTS + minimum(n, ELEMENTS - 1)], const(0.0))


def _parts(b: Builder, numbers: list[Value], count: int) -> list[Value]:
    """The parts of two numbers, the largest one first, as words of two bf16 numbers."""
    words = []
    for part in range(count):
        halves = [_rounded(b, x) for x in numbers]
        words.append(b.let("word", halves[1] * HALF + select(lt(halves[0], 0), halves[0] + HALF, halves[0])))
        if part + 1 < count:
            numbers = [x - from_bits(half * HALF) for x, half in zip(numbers, halves)]
    return words


def _rounded(b: Builder, x: Value) -> Value:
    """The upper half of the bits of x, rounded to the nearest, as an integer from -2^15 to 2^15 - 1."""
    whole = b.let("whole", bits(x))
    negative = lt(whole, 0)
    # The bits of |x|: without the sign, which is the highest bit. 2^31 is no i32, and the sums below do not overflow.
    size = b.let("size", select(negative, whole + (2**31 - 1) + 1, whole))
    up = select(le(const(HALF // 2, "i32"), size % HALF), const(1, "i32"), const(0, "i32"))
    # The largest one is NaN, which stays one.
    half = b.let("half", minimum(size // HALF + up, HALF // 2 - 1))
    return b.let("half", select(negative, half - HALF // 2, half))


class Packer:
    """Rows of B on their way to the memory of a GPU: fp64 rows of one orbital at a time, converted there.

    Parameters
    ----------
    device, form, lanes
        The GPU, the format, and the lanes of a group.
    staging
        Memory for the fp64 rows of one orbital.
    """

    def __init__(self, device: Device, form: DeviceFormat, lanes: int, staging: DeviceArray) -> None:
        self.device, self.form, self.staging = device, form, staging
        self._program = device.build(pack_recipe(form, lanes), lanes)

    def load(self, B: Any, orbitals: slice, memory: DeviceArray) -> None:
        """Convert rows B[orbitals] [.., nvir, naux], which may be on disk, to the beginning of `memory`."""
        _, nvir, naux = B.shape
        numbers_a_word = 2 if self.form.halves else 1
        for n, i in enumerate(range(orbitals.start, orbitals.stop)):
            self.device.synchronize(0)
            self.device.write(self.staging, np.ascontiguousarray(B[i], np.float64).reshape(-1))
            place = n * nvir * self.form.row(naux) // numbers_a_word
            numbers = {"elements": naux, "width": self.form.padded(naux) // numbers_a_word, "place": place}
            self.device.launch(self._program, nvir, numbers | {"rows": self.staging, "packed": memory})
        self.device.synchronize(0)
