"""What a descriptor says of a kernel, and the words that descriptors share.

A *shape* gives the extents of a problem by name. A *point* gives each knob a value in terms that carry over to other
shapes, such as numbers of blocks; ``realise`` turns it into the kernel's compile-time *constants* for one shape.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from trnqc.sim.launch.targets import TARGETS

P = 128
"""Partitions: rows of the contraction index in one product of the tensor engine."""
MOST_UNROLLED = 4096
"""Products of one part in a loop body, so that programs compile and load: an assumption."""
ITEMSIZE = {"fp32": 4, "bf16x3": 4, "bf16": 2}
"""Bytes of one element by precision, summed over the parts of a split operand."""
PARTS = {"fp32": 1, "bf16x3": 2, "bf16": 1}
"""Parts into which an operand is split, by precision."""
GATE = 1e-4
"""Allowed error over the largest entry of the result: a sound kernel is within 1e-5, a wrong one off by order 1."""

Values = Mapping[str, int]
Fill = Callable[[tuple[int, ...], Any], Any]
"""Makes a floating-point operand of a shape and a dtype: numbers, or ``trnqc.sim.Spec`` for its shape alone."""


class Infeasible(Exception):
    """A point that the kernel or the chip cannot take; the message is the rule, headed by its name if it has one."""


@dataclass(frozen=True, eq=False)
class Launch:
    """The operands of one launch, its compile-time constants by name, and the flop that its result needs."""

    args: tuple[Any, ...]
    constants: dict[str, int]
    flops: float


@dataclass(frozen=True)
class KernelOperator:
    """A PyTorch operator ``trnqc::name``: the first `tensors` arguments of the kernel are tensors, the others integers.

    result_shape gives the shape of the result from those of the tensors.
    """

    name: str
    tensors: int
    result_shape: Callable[..., tuple[Any, ...]]


@dataclass(frozen=True, eq=False)
class NkiKernel:
    """What the rest of the project knows of one kernel.

    Parameters
    ----------
    name
        Of the function, of its module in `nki_kernels`, and of its records.
    function
        The kernel itself, decorated with ``nki.jit``.
    reference
        The NumPy function of the same signature.
    dims
        Names of the extents of a shape.
    contracted
        The extent that is shortened to measure a fraction of the work. A constant ``kchunk``, if there is one, is the
        number of its blocks of 128 that lie on chip.
    workload
        What `example` launches, in words.
    knobs
        Values of each knob at a shape, before any rule, as knobs(shape).
    default
        Constants that the kernel's own planner takes, as default(shape, precision).
    default_point
        The same as a point, rounded where the default is none.
    realise
        Constants of a point, as realise(point, shape, precision, target); raises Infeasible with the rule that it
        breaks.
    example
        The workload that is timed, as example(shape, precision, constants, cores, fill); fill(shape, dtype) makes the
        floating-point operands.
    gate
        A small launch with the same constants that reaches all parts of the program, with the arguments of `example`;
        its result is compared with the reference before any time is believed.
    operator
        The PyTorch operator over the kernel's own arguments; None where `trnqc.torch_ops` has one over others.
    """

    name: str
    function: Any
    reference: Callable[..., np.ndarray]
    dims: tuple[str, ...]
    contracted: str
    workload: str
    knobs: Callable[[Values], dict[str, list[int]]]
    default: Callable[[Values, str], dict[str, int]]
    default_point: Callable[[Values, str], dict[str, int]]
    realise: Callable[[Values, Values, str, str], dict[str, int]]
    example: Callable[[Values, str, Values, int, Fill], Launch]
    gate: Callable[[Values, str, Values, int, Fill], Launch]
    operator: KernelOperator | None = None

    @property
    def module(self) -> str:
        """The module in which the kernel stands."""
        return self.reference.__module__

    def error(self, launch: Launch, out: np.ndarray) -> float:
        """Largest deviation of `out` from the reference over its largest entry; infinite for a wrong shape or a NaN."""
        expected = self.reference(*launch.args, **launch.constants)
        if out.shape != expected.shape:
            return float("inf")
        defined = ~np.isnan(expected)
        gap = np.abs(out[defined].astype(np.float64) - expected[defined])
        return float(gap.max() / np.abs(expected[defined]).max()) if np.isfinite(gap).all() else float("inf")


def random_fill(seed: int) -> Fill:
    """A `Fill` of normal numbers, rounded to the dtype; the same for the same seed."""
    rng = np.random.default_rng(seed)
    return lambda shape, dtype: rng.standard_normal(shape, np.float32).astype(dtype)


def operand_dtype(precision: str) -> np.dtype:
    """The dtype of each part of an operand."""
    return np.dtype(np.float32 if precision == "fp32" else ml_dtypes.bfloat16)


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def ladder(n: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, 16, 24, ... up to n, and n itself."""
    steps = {1, *(2**k for k in range(1, 16)), *(3 * 2**k for k in range(15))}
    return sorted({*(value for value in steps if value < n), n})


def require(rule: bool, message: str) -> None:
    """Raise Infeasible unless the rule is kept."""
    if not rule:
        raise Infeasible(message)


def require_unrolled(products: int, default: int = 0) -> None:
    """Raise Infeasible if more products are unrolled in one loop body than allowed, and than the default has."""
    most = max(MOST_UNROLLED, default)
    require(products <= most, f"program: {products} products in one body, {most} are allowed")


def require_sbuf(needed: int, target: str) -> None:
    """Raise Infeasible if the tiles take more bytes per partition than the target has."""
    usable = TARGETS[target].sbuf_usable
    require(needed <= usable, f"SBUF: {needed} bytes per partition are needed, {target} has {usable}")
