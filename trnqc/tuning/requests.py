"""Validate requests of users: a kernel, its shape, a precision and a target."""

from __future__ import annotations

import re

from nki_kernels.descriptors import NkiKernel, kernels
from nki_kernels.descriptors.descriptor import Values
from trnqc.errors import InputError
from trnqc.sim.machine.targets import TARGETS


def kernel_named(name: str) -> NkiKernel:
    """The descriptor of the kernel with this name. Raises InputError if there is none."""
    if name not in kernels():
        raise InputError(f"a kernel is one of {', '.join(kernels())}; found {name!r}")
    return kernels()[name]


def parse_shape(kernel: str, text: str) -> dict[str, int]:
    """Parse the shape of a kernel, whose extents are written with their names or in order.

    >>> parse_shape("gemm", "M=448,N=900,K=1536") == parse_shape("gemm", "448x900x1536")
    True

    Raises
    ------
    InputError
        If an extent is missing, unknown or less than 1.
    """
    dims = kernel_named(kernel).dims
    parts = [part for part in re.split(r"[,\s]+|(?<=\d)x(?=\d)", text) if part]
    named = dict(part.split("=", 1) for part in parts if "=" in part)
    values = named if len(named) == len(parts) else dict(zip(dims, parts))
    if set(values) != set(dims) or len(parts) != len(dims) or not all(n.isdigit() and int(n) for n in values.values()):
        raise InputError(f"a shape of {kernel} is {','.join(f'{dim}=N' for dim in dims)} with N >= 1; found {text!r}")
    return {dim: int(values[dim]) for dim in dims}


def check(name: str, shape: Values, precision: str, target: str) -> NkiKernel:
    """The kernel of a valid request. Raises InputError if the kernel, shape, precision or target is not valid."""
    kernel = kernel_named(name)
    if tuple(shape) != kernel.dims or any(n < 1 for n in shape.values()):
        raise InputError(f"a shape of {name} needs {', '.join(kernel.dims)}, each at least 1; found {dict(shape)}")
    if precision not in kernel.precisions:
        raise InputError(f"the precision of {name} is one of {', '.join(kernel.precisions)}; found {precision!r}")
    if target not in TARGETS:
        raise InputError(f"a target is one of {', '.join(TARGETS)}; found {target!r}")
    return kernel
