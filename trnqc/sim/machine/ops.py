"""Operators of the engines, which are both ``nl`` functions and values of the ``op`` arguments of instructions.

An operator holds one NumPy function for each engine that has it: ``alu`` for fp32 arithmetic on the VectorE and GpSimd,
``bits`` for integer bit patterns there, and ``act`` for the ScalarE. None means that the engine lacks the operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

Fn = Callable[..., np.ndarray]


class Op:
    """One operator of ``nki.language``.

    `alu`, `bits` and `act` are the operator in fp32, on integer bit patterns, and as a function of the ScalarE with the
    documented input range `valid`; `fold` reduces over an axis. `unary` tells whether ``alu`` or ``bits`` takes one
    argument, and `generation` is the first NeuronCore generation with the operator: 2 is trn1, 3 is trn2, 4 is trn3.
    `doc` is the docstring of the ``nl`` function.
    """

    evaluate: ClassVar[Callable[..., Any]]  # evaluates calls as nl functions; set by `trnqc.sim.functions.evaluate`

    def __init__(
        self,
        name: str,
        alu: Fn | None = None,
        bits: Fn | None = None,
        act: Fn | None = None,
        fold: Fn | None = None,
        valid: tuple[float, float] | None = None,
        unary: bool = False,
        generation: int = 2,
        doc: str = "",
    ):
        self.name = self.__name__ = self.__qualname__ = name
        # Typed Any, because instructions check that the function exists before they call it.
        self.alu: Any = alu
        self.bits, self.act, self.fold, self.valid = bits, act, fold, valid
        self.unary, self.generation = unary, generation
        self.__doc__ = doc or f"{name}, element by element."

    def __repr__(self) -> str:
        return f"nl.{self.name}"


class UnaryOp(Op):
    """Operator that is called as ``op(x, dtype=None)``."""

    def __call__(self, x: Any, dtype: Any = None) -> Any:
        return Op.evaluate(self, (x,), dtype)


class BinaryOp(Op):
    """Operator that is called as ``op(x, y, dtype=None)``."""

    def __call__(self, x: Any, y: Any, dtype: Any = None) -> Any:
        return Op.evaluate(self, (x, y), dtype)


class ReduceOp(Op):
    """Reduction over the last free axes, called as ``op(x, axis, dtype=None, keepdims=False)``."""

    def __call__(self, x: Any, axis: Any, dtype: Any = None, keepdims: bool = False) -> Any:
        return Op.evaluate(self, (x, axis, keepdims), dtype)


class Marker(Op):
    """Operator that can only be passed to instructions."""


def _truth(compare: Fn) -> Fn:
    """Make a comparison return 1.0 or 0.0."""
    return lambda a, b: compare(a, b).astype(np.float32)


def _logical(combine: Fn) -> Fn:
    """Make a logical operator take numbers, of which only 0 is false, and return 1.0 or 0.0."""
    return lambda a, b: combine(a != 0, b != 0).astype(np.float32)


def _shift(direction: Fn) -> Fn:
    """Shift without sign extension; counts of the word size or more give 0."""

    def shift(a: np.ndarray, b: np.ndarray) -> np.ndarray:
        unsigned = a.astype(a.dtype.str.replace("i", "u"))
        count = np.asarray(b).astype(unsigned.dtype)
        moved = direction(unsigned, np.minimum(count, unsigned.dtype.itemsize * 8 - 1))
        return np.where(count < unsigned.dtype.itemsize * 8, moved, 0).astype(unsigned.dtype).view(a.dtype)

    return shift


def _erf(x: np.ndarray) -> np.ndarray:
    return np.asarray(np.frompyfunc(math.erf, 1, 1)(x.astype(np.float64))).astype(np.float64)


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 0.5 * (np.tanh(0.5 * x.astype(np.float64)) + 1)


def _normal_pdf(x: np.ndarray) -> np.ndarray:
    return np.exp(-0.5 * x.astype(np.float64) ** 2) / math.sqrt(2 * math.pi)


def _gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + _erf(x / math.sqrt(2)))


def _gelu_dx(x: np.ndarray) -> np.ndarray:
    return 0.5 * (1 + _erf(x / math.sqrt(2))) + x * _normal_pdf(x)


def _gelu_tanh(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x.astype(np.float64) ** 3)))


def _gelu_sigmoid(x: np.ndarray) -> np.ndarray:
    return x * _sigmoid(1.702 * x)


def _gelu_sigmoid_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(1.702 * x)
    return s + 1.702 * x * s * (1 - s)


def _silu(x: np.ndarray) -> np.ndarray:
    return x * _sigmoid(x)


def _silu_dx(x: np.ndarray) -> np.ndarray:
    s = _sigmoid(x)
    return s * (1 + x * (1 - s))


def _softplus(x: np.ndarray) -> np.ndarray:
    return np.logaddexp(0.0, x.astype(np.float64))


def _erf_dx(x: np.ndarray) -> np.ndarray:
    return 2 / math.sqrt(math.pi) * np.exp(-(x.astype(np.float64) ** 2))


def _rsqrt(x: np.ndarray) -> np.ndarray:
    return np.float32(1) / np.sqrt(x)


def _relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, np.float32(0))


def _same(x: np.ndarray) -> np.ndarray:
    return x


def _larger(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the element of larger magnitude of each pair."""
    return np.where(np.abs(a) > np.abs(b), a, b)


def _smaller(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the element of smaller magnitude of each pair."""
    return np.where(np.abs(a) < np.abs(b), a, b)


add = BinaryOp("add", np.add, fold=np.add.reduce)
subtract = BinaryOp("subtract", np.subtract, fold=np.subtract.reduce)
multiply = BinaryOp("multiply", np.multiply, fold=np.multiply.reduce)
maximum = BinaryOp("maximum", np.maximum, fold=np.maximum.reduce)
minimum = BinaryOp("minimum", np.minimum, fold=np.minimum.reduce)
power = BinaryOp("power", np.power)
abs_max = BinaryOp("abs_max", _larger, generation=4)
abs_min = BinaryOp("abs_min", _smaller, generation=4)
equal = BinaryOp("equal", _truth(np.equal))
not_equal = BinaryOp("not_equal", _truth(np.not_equal))
less = BinaryOp("less", _truth(np.less))
less_equal = BinaryOp("less_equal", _truth(np.less_equal))
greater = BinaryOp("greater", _truth(np.greater))
greater_equal = BinaryOp("greater_equal", _truth(np.greater_equal))
logical_and = BinaryOp("logical_and", _logical(np.logical_and), fold=np.logical_and.reduce)
logical_or = BinaryOp("logical_or", _logical(np.logical_or), fold=np.logical_or.reduce)
logical_xor = BinaryOp("logical_xor", _logical(np.logical_xor), fold=np.logical_xor.reduce)
bitwise_and = BinaryOp("bitwise_and", bits=np.bitwise_and, fold=np.bitwise_and.reduce)
bitwise_or = BinaryOp("bitwise_or", bits=np.bitwise_or, fold=np.bitwise_or.reduce)
bitwise_xor = BinaryOp("bitwise_xor", bits=np.bitwise_xor, fold=np.bitwise_xor.reduce)
left_shift = BinaryOp("left_shift", bits=_shift(np.left_shift))
right_shift = BinaryOp("right_shift", bits=_shift(np.right_shift))
divide = BinaryOp("divide")
fmod = BinaryOp("fmod")
mod = BinaryOp("mod")

invert = UnaryOp("invert", bits=np.invert, unary=True)
logical_not = UnaryOp("logical_not")
abs = UnaryOp("abs", np.abs, act=np.abs, unary=True)
square = UnaryOp("square", np.square, act=np.square, unary=True)
relu = UnaryOp("relu", _relu, act=_relu, unary=True)
rsqrt = UnaryOp("rsqrt", _rsqrt, act=_rsqrt, unary=True, valid=(2.0**-87, 2.0**97))
reciprocal = UnaryOp("reciprocal", np.reciprocal, act=np.reciprocal, unary=True, valid=(2.0**-42, 2.0**42))
copy = UnaryOp("copy", act=_same)
exp = UnaryOp("exp", act=np.exp)
log = UnaryOp("log", act=np.log, valid=(2.0**-64, 2.0**64))
sqrt = UnaryOp("sqrt", act=np.sqrt, valid=(2.0**-116, 2.0**118))
tanh = UnaryOp("tanh", act=np.tanh)
sigmoid = UnaryOp("sigmoid", act=_sigmoid)
gelu = UnaryOp("gelu", act=_gelu)
gelu_dx = UnaryOp("gelu_dx", act=_gelu_dx)
gelu_apprx_tanh = UnaryOp("gelu_apprx_tanh", act=_gelu_tanh)
gelu_apprx_sigmoid = UnaryOp("gelu_apprx_sigmoid", act=_gelu_sigmoid)
gelu_apprx_sigmoid_dx = UnaryOp("gelu_apprx_sigmoid_dx", act=_gelu_sigmoid_dx)
silu = UnaryOp("silu", act=_silu)
silu_dx = UnaryOp("silu_dx", act=_silu_dx)
softplus = UnaryOp("softplus", act=_softplus)
mish = UnaryOp("mish", act=lambda x: x * np.tanh(_softplus(x)))
erf = UnaryOp("erf", act=_erf)
erf_dx = UnaryOp("erf_dx", act=_erf_dx)
sin = UnaryOp("sin", act=np.sin, valid=(-math.pi, math.pi))
arctan = UnaryOp("arctan", act=np.arctan, valid=(-math.pi / 2, math.pi / 2))
sign = UnaryOp("sign", act=np.sign)
cos, tan, ceil, floor, trunc, negative = (UnaryOp(n) for n in ("cos", "tan", "ceil", "floor", "trunc", "negative"))

sum = ReduceOp("sum")
prod = ReduceOp("prod")
mean = ReduceOp("mean")
var = ReduceOp("var")
max = ReduceOp("max", np.maximum, fold=np.maximum.reduce)
min = ReduceOp("min", np.minimum, fold=np.minimum.reduce)

bypass = Marker("bypass", alu=lambda a, b: a, bits=lambda a, b: a)
average = Marker("average")
prelu = Marker("prelu")
