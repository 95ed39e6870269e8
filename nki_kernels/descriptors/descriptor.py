"""The class of descriptors, and constants and functions that several descriptors use.

A *shape* consists of the extents of a problem by name. A *point* has a value for each knob, in a form that also applies
to other shapes, such as a number of blocks. ``realise`` converts it to the compile-time *constants* of a kernel for one
shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.precision.splits import PRECISIONS
from trnqc.sim.machine.targets import TARGETS

P = 128
"""The number of partitions: rows of the contraction index in one product of the tensor engine."""
MOST_UNROLLED = 4096
"""The largest number of products in a loop body. It is an assumption about which programs compile and load."""
ITEMSIZE = {name: form.itemsize for name, form in PRECISIONS.items()}
"""For each precision, the size of an element in bytes, summed over the parts of a split operand."""
PARTS = {name: form.parts for name, form in PRECISIONS.items()}
"""For each precision, the number of parts into which an operand is split."""
ROUNDED = tuple(name for name, form in PRECISIONS.items() if form.bits != 4)
"""The precisions of kernels that split their own results: rounding to bf16 gives no parts of four bits."""
GATE = 1e-4
"""The allowed error relative to the largest entry. Correct kernels are within 1e-5, wrong ones off by about 1."""

Values = Mapping[str, int]
Fill = Callable[[tuple[int, ...], Any], Any]
"""Creates a floating-point operand of a shape and a dtype: an array, or ``trnqc.sim.Spec`` for its shape alone."""


class Infeasible(Exception):
    """A point breaks a rule of the kernel or the chip. The message is the rule, preceded by its name if it has one."""


@dataclass(frozen=True, eq=False)
class Launch:
    """The operands of one launch, its compile-time constants by name, and the number of flops of its result."""

    args: tuple[Any, ...]
    constants: dict[str, Any]
    flops: float


@dataclass(frozen=True)
class KernelOperator:
    """A PyTorch operator ``trnqc::name``.

    The first `tensors` arguments of the kernel are tensors, and the others are integers. `result_shape` computes the
    shape of the result from the shapes of the tensors.
    """

    name: str
    tensors: int
    result_shape: Callable[..., tuple[Any, ...]]


def _no_constants(*_: Any) -> dict[str, Any]:
    """The knobs, point and constants of a kernel without knobs."""
    return {}


@dataclass(frozen=True, eq=False)
class NkiKernel:
    """The descriptor of a kernel. One without knobs leaves out the parameters that concern them.

    Parameters
    ----------
    name
        The name of the function, and in its records.
    function
        The kernel itself, decorated with ``nki.jit``.
    reference
        The NumPy function with the same signature.
    small
        A shape with which tests launch the kernel: a remainder in every extent, and as small as that allows.
    contracted
        The extent that is reduced to measure a fraction of the work. If the kernel has a constant ``kchunk``, this is
        the number of blocks of 128 of this extent that are on the chip at the same time.
    workload
        What `example` launches, in words.
    example
        example(shape, precision, constants, cores, fill) returns the launch that is timed. fill(shape, dtype) creates
        its floating-point operands.
    gate
        Returns a small launch with the same constants that reaches all parts of the program. It takes the arguments of
        `example`. Its result is compared with the reference before a time is accepted.
    knobs
        knobs(shape) returns the values of each knob before any rule is applied.
    default
        default(shape, precision) returns the constants that the planner of the kernel chooses.
    default_point
        default_point(shape, precision) returns the same as a point, or a similar one if the default is not a point.
    realise
        realise(point, shape, precision, target) returns the constants of a point, or raises Infeasible.
    operator
        The PyTorch operator with the arguments of the kernel. None if there is none, or `trnqc.torch_ops` defines one
        with other arguments.
    precisions
        The precisions of its operands, by default all of them.
    """

    name: str
    function: Any
    reference: Callable[..., np.ndarray | tuple[np.ndarray, ...]]
    small: Values
    contracted: str
    workload: str
    example: Callable[[Values, str, Values, int, Fill], Launch]
    gate: Callable[[Values, str, Values, int, Fill], Launch]
    knobs: Callable[[Values], dict[str, list[int]]] = _no_constants
    default: Callable[[Values, str], dict[str, int]] = _no_constants
    default_point: Callable[[Values, str], dict[str, int]] = _no_constants
    realise: Callable[[Values, Values, str, str], dict[str, int]] = _no_constants
    operator: KernelOperator | None = None
    precisions: tuple[str, ...] = tuple(ITEMSIZE)

    @property
    def dims(self) -> tuple[str, ...]:
        """The names of the extents of a shape."""
        return tuple(self.small)

    @property
    def module(self) -> str:
        """The name of the module that defines the kernel."""
        return self.reference.__module__

    def error(self, launch: Launch, out: np.ndarray | tuple[np.ndarray, ...]) -> float:
        """The largest deviation from the reference over its largest entry. Infinite for a wrong shape or NaN.

        Of several results, each is compared with its own largest entry.
        """
        reference = self.reference(*launch.args, **launch.constants)
        expected = reference if isinstance(reference, tuple) else (reference,)
        results = out if isinstance(out, tuple) else (out,)
        if len(results) != len(expected):
            return float("inf")
        return max(map(_deviation, results, expected))


def _deviation(out: np.ndarray, expected: np.ndarray) -> float:
    if out.shape != expected.shape:
        return float("inf")
    defined = ~np.isnan(expected)
    gap = np.abs(out[defined].astype(np.float64) - expected[defined])
    return float(gap.max() / np.abs(expected[defined]).max()) if np.isfinite(gap).all() else float("inf")


def random_fill(seed: int) -> Fill:
    """A `Fill` with normally distributed numbers, rounded to the dtype. They depend only on the seed."""
    rng = np.random.default_rng(seed)
    return lambda shape, dtype: rng.standard_normal(shape, np.float32).astype(dtype)


def operand_dtype(precision: str) -> np.dtype:
    """The dtype of each part of an operand."""
    return PRECISIONS[precision].dtype


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def ladder(n: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to n, and n itself."""
    steps = {1, *(2**k for k in range(1, 16)), *(3 * 2**k for k in range(15))}
    return sorted({*(value for value in steps if value < n), n})


def require(rule: bool, message: str) -> None:
    """Raise Infeasible if a rule is broken."""
    if not rule:
        raise Infeasible(message)


def require_unrolled(products: int, default: int = 0) -> None:
    """Raise Infeasible if a loop body has more products than allowed, unless the default has as many."""
    most = max(MOST_UNROLLED, default)
    require(products <= most, f"program: {products} products in one body, {most} are allowed")


def require_sbuf(needed: int, target: str) -> None:
    """Raise Infeasible if the tiles need more bytes per partition than the target has."""
    usable = TARGETS[target].sbuf_usable
    require(needed <= usable, f"SBUF: {needed} bytes per partition are needed, {target} has {usable}")
