"""What users ask for: a kernel, its shape, a precision and a target, found sound or refused with InputError."""

from __future__ import annotations

import re

from nki_kernels.descriptors import NkiKernel, kernels
from nki_kernels.descriptors.descriptor import ITEMSIZE, Values
from trnqc.errors import InputError
from trnqc.sim.launch.targets import TARGETS


def kernel_named(name: str) -> NkiKernel:
    """The descriptor of the kernel of that name. Raises InputError."""
    if name not in kernels():
        raise InputError(f"kernels that can be tuned are {', '.join(kernels())}; {name!r} was asked for")
    return kernels()[name]


def parse_shape(kernel: str, text: str) -> dict[str, int]:
    """The shape of a kernel from text, by name or in order.

    >>> parse_shape("gemm", "M=448,N=900,K=1536") == parse_shape("gemm", "448x900x1536")
    True

    Raises
    ------
    InputError
        For extents that are missing, unknown or below 1.
    """
    dims = kernel_named(kernel).dims
    words = [word for word in re.split(r"[,\s]+|(?<=\d)x(?=\d)", text) if word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    values = named if len(named) == len(words) else dict(zip(dims, words))
    if set(values) != set(dims) or len(words) != len(dims) or not all(n.isdigit() and int(n) for n in values.values()):
        raise InputError(f"a shape of {kernel} is {','.join(f'{dim}=N' for dim in dims)} with N >= 1; found {text!r}")
    return {dim: int(values[dim]) for dim in dims}


def check(name: str, shape: Values, precision: str, target: str) -> NkiKernel:
    """Return the kernel. Raises InputError unless its shape, the precision and the target are known and sound."""
    kernel = kernel_named(name)
    if tuple(shape) != kernel.dims or any(n < 1 for n in shape.values()):
        raise InputError(f"a shape of {name} gives {', '.join(kernel.dims)}, each at least 1; found {dict(shape)}")
    if precision not in ITEMSIZE:
        raise InputError(f"precisions of the kernels are {', '.join(ITEMSIZE)}; {precision!r} was asked for")
    if target not in TARGETS:
        raise InputError(f"targets are {', '.join(TARGETS)}; {target!r} was asked for")
    return kernel
