"""PyTorch's two ways to launch a kernel on Trainium, and copies between its tensors and arrays of NumPy.

`trnqc.backends.nki.launch` chooses the way by the device of the tensors. PyTorch is imported when a function here is
called.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from nki_kernels.descriptors import NkiKernel
from trnqc.tuning.conditions import logical_cores


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


def fetched(results: Any) -> Any:
    """The result of a launch as an array, or several as a tuple of them."""
    return tuple(map(fetched, results)) if isinstance(results, tuple) else to_numpy(results.cpu())


@functools.cache
def _wrapped(function: Callable[..., Any]) -> Any:
    from torch_neuronx import wrap_nki

    return wrap_nki(function)


def native(kernel: NkiKernel, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    """Launch by native torch-neuronx: the kernel is wrapped by ``wrap_nki``."""
    return _wrapped(kernel.function)[(logical_cores(),)](*args, **constants)


def xla(kernel: NkiKernel, args: tuple[Any, ...], constants: dict[str, Any]) -> Any:
    """Launch by PyTorch/XLA: the kernel is called on XLA tensors and becomes a custom call of the graph."""
    return kernel.function[logical_cores()](*args, **constants)


def synchronize(device: str) -> None:
    """Wait until all launches on the device ("neuron", "xla" or "cpu") have finished, for timing."""
    import torch

    if device == "neuron":
        torch.neuron.synchronize()  # type: ignore[attr-defined]
    elif device == "xla":
        import torch_xla

        torch_xla.sync(wait=True)
