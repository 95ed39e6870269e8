"""Launch a kernel on PyTorch tensors. How it is launched depends on their device.

    device "neuron"   native torch-neuronx: the kernel is wrapped by ``wrap_nki``
    device "xla"      PyTorch/XLA: the kernel is called on XLA tensors and becomes a custom call of the graph
    device "cpu"      the simulator or the NumPy reference of the kernel, as `host_kernels` selects, for tests and for
                      development without a device

A launch on CPU tensors outside `host_kernels` raises an error. PyTorch is imported when a function here is called.
"""

from __future__ import annotations

import contextlib
import contextvars
import functools
from collections.abc import Callable, Iterator
from typing import Any

import ml_dtypes
import numpy as np

from nki_kernels.descriptors.descriptor import KernelFunction
from nki_kernels.lang import nki
from trnqc.backends.neuron.packages import logical_cores
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


def to_numpy(tensor: Any) -> np.ndarray:
    """Convert a CPU tensor to an array that shares its memory. bfloat16 becomes ml_dtypes.bfloat16."""
    import torch

    tensor = tensor.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def to_tensor(array: np.ndarray) -> Any:
    """Convert an array to a CPU tensor. ml_dtypes.bfloat16 becomes bfloat16."""
    import torch

    array = np.ascontiguousarray(array)
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@functools.cache
def _wrapped(function: Callable[..., Any]) -> Any:
    from torch_neuronx import wrap_nki

    return wrap_nki(function)


def _native(kernel: KernelFunction, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    return _wrapped(kernel.function)[(logical_cores(),)](*args, **constants)


def _xla(kernel: KernelFunction, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    return kernel.function[logical_cores()](*args, **constants)


def _cpu(kernel: KernelFunction, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    how = _host.get()
    if how is None:
        raise BackendUnavailable(
            "an NKI kernel was called on CPU tensors. Move them to a Trainium device ('neuron', or torch_xla's), or "
            'choose what runs on the host instead: with trnqc.torch_ops.host_kernels("simulator") or ("reference")'
        )
    arrays = tuple(to_numpy(arg) if hasattr(arg, "detach") else arg for arg in args)
    run = nki.simulate(kernel.function) if how == "simulator" else kernel.reference
    results = run(*arrays, **constants)
    return tuple(map(to_tensor, results)) if isinstance(results, tuple) else to_tensor(results)


_PATHS = {"neuron": _native, "xla": _xla, "cpu": _cpu}


def launch(kernel: KernelFunction, *args: Any, **constants: Any) -> Any:
    """Launch a kernel on tensors of one device.

    Parameters
    ----------
    kernel
        The kernel and its reference, as descriptors have them.
    *args
        The arguments: tensors and integers.
    **constants
        Compile-time integers, or tuples of them, by name.

    Returns
    -------
    Tensor or tuple
        The result, or a tuple of them, on the same device.

    Raises
    ------
    InputError
        If the tensors are on several devices, or on a device on which kernels cannot be launched.
    BackendUnavailable
        If the tensors are on the CPU and no `host_kernels` context is active.
    """
    devices = sorted({arg.device.type for arg in args if hasattr(arg, "detach")})
    if len(devices) != 1 or devices[0] not in _PATHS:
        raise InputError(f"NKI kernels take tensors of one device: {', '.join(_PATHS)}; found {', '.join(devices)}")
    return _PATHS[devices[0]](kernel, args, constants)


def synchronize(device: str) -> None:
    """Wait until all launches on the device ("neuron", "xla" or "cpu") have finished, for timing."""
    import torch

    if device == "neuron":
        torch.neuron.synchronize()  # type: ignore[attr-defined]
    elif device == "xla":
        import torch_xla

        torch_xla.sync(wait=True)
