"""A program that splits fp32 numbers in the memory of a GPU into two bf16 numbers, as tensor cores take them."""

from __future__ import annotations

from trnqc.gen.arrays import Array
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import Value, Var, bits, const, from_bits, lane, le, lt, minimum, select
from trnqc.jit import Recipe, Signature

NAME = "split"
WORDS, GROUP = Var("words", "i64"), Var("group", "i64")
X, HIGH, LOW = Array("x", "f32"), Array("high", "i32"), Array("low", "i32")
PARAMETERS = (WORDS, X, HIGH, LOW)
# A bf16 number is the upper half of the bits of an fp32 number.
HALF = 1 << 16


def recipe(lanes: int) -> Recipe:
    """The recipe of the program.

    It takes ``x`` of 2 ``words`` numbers and writes ``high`` and ``low``, two bf16 numbers in each of their words, with
    x = high + low up to 2^-17. Group g has the words from g * lanes on.
    """
    signature = Signature.declared(NAME, PARAMETERS, ("high", "low"))
    return Recipe(NAME, (signature,), lambda: (program(lanes),), __name__, str(lanes))


def program(lanes: int) -> Function:
    """The function of the recipe."""
    b = Builder()
    # Lanes beyond the end write the last word again.
    word = b.let("word", minimum(GROUP * lanes + lane(), WORDS - 1))
    numbers = [b.let("x", X[word * 2 + n]) for n in (0, 1)]
    high = [_rounded(b, x) for x in numbers]
    low = [_rounded(b, x - from_bits(half * HALF)) for x, half in zip(numbers, high)]
    b.store(HIGH[word], _word(*high))
    b.store(LOW[word], _word(*low))
    return b.function(NAME, PARAMETERS, group=GROUP)


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


def _word(first: Value, second: Value) -> Value:
    """Both halves as one integer, the first one in its lower bits."""
    return second * HALF + select(lt(first, 0), first + HALF, first)
