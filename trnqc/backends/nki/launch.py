"""Every launch of an NKI kernel, by its descriptor. What runs the kernel depends on where its operands are.

    arrays of NumPy      the simulator: the vendor's if its package is installed, else `trnqc.sim`
    device "neuron"      native torch-neuronx (`trnqc.backends.nki.vendor`)
    device "xla"         PyTorch/XLA, likewise
    device "cpu"         the simulator or the NumPy reference of the kernel, as `host_kernels` selects, for tests and
                         for development without a device

A launch on CPU tensors outside `host_kernels` raises an error.
"""

from __future__ import annotations

import contextlib
import contextvars
from collections.abc import Iterator
from typing import Any

import numpy as np

from nki_kernels.descriptors import NkiKernel
from nki_kernels.lang import nki
from trnqc.backends.nki.vendor import native, to_numpy, to_tensor, xla
from trnqc.errors import BackendUnavailable, InputError
from trnqc.sim.machine.arithmetic import arithmetic_from_environment

HOST_KERNELS = ("simulator", "reference")
_host: contextvars.ContextVar[str | None] = contextvars.ContextVar("host_kernels", default=None)


@contextlib.contextmanager
def host_kernels(how: str) -> Iterator[None]:
    """A context in which kernels that are called on CPU tensors run on the host instead of a device.

    Parameters
    ----------
    how
        "simulator", or "reference" for the NumPy reference of the kernel.

    Raises
    ------
    InputError
        If it is neither of them.
    """
    if how not in HOST_KERNELS:
        raise InputError(f"host_kernels takes one of {', '.join(HOST_KERNELS)}; found {how!r}")
    token = _host.set(how)
    try:
        yield
    finally:
        _host.reset(token)


def launched_on_host() -> str:
    """What runs kernels on CPU tensors, the simulator with its rounding of products; empty outside `host_kernels`."""
    how = _host.get() or ""
    return f"simulator {arithmetic_from_environment()}" if how == "simulator" else how


def _simulated(kernel: NkiKernel, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    return nki.simulate(kernel.function)(*args, **constants)


def _on_host(kernel: NkiKernel, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    how = _host.get()
    if how is None:
        raise BackendUnavailable(
            "an NKI kernel was called on CPU tensors. Move them to a Trainium device ('neuron', or torch_xla's), or "
            'choose what runs on the host instead: with trnqc.torch_ops.host_kernels("simulator") or ("reference")'
        )
    arrays = tuple(to_numpy(arg) if hasattr(arg, "detach") else arg for arg in args)
    results = _simulated(kernel, arrays, constants) if how == "simulator" else kernel.reference(*arrays, **constants)
    return tuple(map(to_tensor, results)) if isinstance(results, tuple) else to_tensor(results)


_PATHS = {"numpy": _simulated, "neuron": native, "xla": xla, "cpu": _on_host}


def launch(kernel: NkiKernel, *args: Any, **constants: Any) -> Any:
    """Launch a kernel on arrays, or on tensors of one device.

    Parameters
    ----------
    kernel
        The descriptor of the kernel.
    *args
        The arguments: arrays or tensors, and integers.
    **constants
        Compile-time integers, or tuples of them, by name.

    Returns
    -------
    array, tensor or tuple
        The result, or a tuple of them, where the operands are.

    Raises
    ------
    InputError
        If the operands are in several places, or on a device on which kernels cannot be launched.
    BackendUnavailable
        If the tensors are on the CPU and no `host_kernels` context is active.
    """
    places = sorted({place for place in map(_place, args) if place})
    if len(places) != 1 or places[0] not in _PATHS:
        raise InputError(f"NKI kernels take operands of one device: {', '.join(_PATHS)}; found {', '.join(places)}")
    return _PATHS[places[0]](kernel, args, constants)


def _place(argument: Any) -> str:
    """Where an operand is; "" for an integer."""
    if hasattr(argument, "detach"):
        return str(argument.device.type)
    return "numpy" if isinstance(argument, np.ndarray) else ""
