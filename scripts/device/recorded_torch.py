"""PyTorch tensors that pretend to be on a GPU, for programs that run on a `RecordingDriver`.

`DeviceTensor` reports the device cuda:0 and has its data in host memory. Operators that would wait for a GPU or copy
its data to the host raise `HostWaits`. While the driver captures a CUDA graph, all other operators become part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.utils._pytree import tree_map

from scripts.device.recording_driver import Call, Graph, RecordedDevice, RecordingDriver
from trnqc.cg.torch.contraction_operators import CONTRACTION
from trnqc.cg.torch.engines import cuda_contraction_engine, cuda_engine
from trnqc.cg.torch.family import Family
from trnqc.cg.torch.operators import BATCH, CONVOLUTION

# Address of PyTorch's current stream.
STREAM = 7
# ATen operators that copy data to the host on a GPU, most of them because the size of their result depends on it.
WAITS = frozenset(
    (
        "_local_scalar_dense",
        "bincount",
        "equal",
        "histc",
        "is_nonzero",
        "item",
        "masked_select",
        "nonzero",
        "repeat_interleave",
        "unique_dim",
        "_unique",
        "_unique2",
        "unique_consecutive",
    )
)


def _run(family: Family, prefix: str) -> dict[str, Callable[..., Any]]:
    return {f"{prefix}_{name}": lambda *args, name=name: family.real(name, args) for name in family.operators}


# Our own operators by name, which run as they do on a GPU.
OURS = _run(BATCH, "cg") | _run(CONVOLUTION, "cg_conv") | _run(CONTRACTION, "cg_contraction")


class HostWaits(RuntimeError):
    """An operator for which the host waits until the GPU has finished all work."""


def _refuse(*_: Any) -> None:
    raise HostWaits("the host waits for the device")


class DeviceTensor(torch.Tensor):
    """A tensor with its data in host memory, which says that it is on cuda:0.

    For autograd it is on the CPU, because a PyTorch without CUDA has no streams for its nodes.
    """

    driver: RecordingDriver
    host: torch.Tensor
    device = property(lambda self: torch.device("cuda", 0))
    is_cuda = property(lambda self: True)

    @staticmethod
    def __new__(cls, host: torch.Tensor, driver: RecordingDriver) -> DeviceTensor:
        wrapper: Any = torch.Tensor._make_wrapper_subclass
        form = {"strides": host.stride(), "storage_offset": host.storage_offset(), "dtype": host.dtype}
        tensor = wrapper(cls, host.size(), device="cpu", **form)
        tensor.host, tensor.driver = host, driver
        return tensor

    def __init__(self, host: torch.Tensor, driver: RecordingDriver) -> None:
        pass

    def data_ptr(self) -> int:
        """Return the address of the data."""
        return int(self.host.data_ptr())

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = func.name().partition("::")[2].partition(".")[0]
        if name in OURS:
            return OURS[name](*args)
        return _on_host(func, name, args, kwargs or {})


for _method in ("cpu", "numpy", "tolist", "__array__"):
    setattr(DeviceTensor, _method, _refuse)


def _on_host(func: Any, name: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """Run an ATen operator on the data of its arguments."""
    tensors: list[DeviceTensor] = []
    tree_map(lambda a: tensors.append(a) if isinstance(a, DeviceTensor) else None, (args, kwargs))
    driver, place = tensors[0].driver, tensors[0].host.device
    if name in WAITS:
        raise HostWaits(f"aten::{name} waits for the device")

    def run() -> Any:
        others = {name: value for name, value in kwargs.items() if name != "device"}
        host_args, host_kwargs = tree_map(lambda a: a.host if isinstance(a, DeviceTensor) else a, (args, others))
        return func(*host_args, **host_kwargs, **({"device": place} if "device" in kwargs else {}))

    results = run()
    known = {id(t.host): t for t in tensors}
    if driver.graph is not None and not name.startswith("new_empty"):
        driver.graph.actions.append(lambda: _overwrite(results, run()))
    driver.calls.append(Call("torch", name, STREAM))

    def there(result: Any) -> Any:
        if not isinstance(result, torch.Tensor):
            return result
        return known[id(result)] if id(result) in known else DeviceTensor(result, driver)

    return tree_map(there, results)


def _overwrite(old: Any, new: Any) -> None:
    pairs = zip(old, new) if isinstance(old, (tuple, list)) else [(old, new)]
    for before, after in pairs:
        if isinstance(before, torch.Tensor) and before is not after:
            before.copy_(after)


@contextmanager
def torch_on(
    driver: RecordingDriver, lanes: int = 4, device: RecordedDevice | None = None
) -> Iterator[Callable[[torch.Tensor], DeviceTensor]]:
    """Let PyTorch's device cuda:0 be the driver's; yields the function that moves a tensor there.

    Parameters
    ----------
    driver : RecordingDriver
    lanes : int
        The number of lanes of a group.
    device : RecordedDevice, optional
        A device of the driver, by default one with so many lanes.
    """
    device = RecordedDevice(driver, lanes) if device is None else device
    stream = SimpleNamespace(cuda_stream=STREAM, synchronize=_refuse)
    arange = torch.arange
    changes = (
        mock.patch("trnqc.backends.devices", lambda name: [device]),
        mock.patch("torch.cuda.current_stream", lambda *_: stream),
        mock.patch("torch.cuda.synchronize", _refuse),
        mock.patch("torch.cuda.device", _nothing),
        mock.patch("torch.cuda.is_current_stream_capturing", lambda: driver.graph is not None),
        # Creation is not dispatched to the type of a tensor.
        mock.patch("torch.arange", lambda *args, **kw: _created(driver, arange, *args, **kw)),
    )
    _forget_engines()
    try:
        for change in changes:
            change.start()
        yield lambda tensor: DeviceTensor(tensor.detach().clone(), driver)
    finally:
        mock.patch.stopall()
        _forget_engines()


def _forget_engines() -> None:
    cuda_engine.cache_clear()
    cuda_contraction_engine.cache_clear()


@contextmanager
def captured(driver: RecordingDriver) -> Iterator[Graph]:
    """Capture what is launched on PyTorch's current stream."""
    with driver.capture(STREAM) as graph:
        yield graph


def _created(driver: RecordingDriver, create: Callable[..., torch.Tensor], *args: Any, device: Any = None) -> Any:
    driver.calls.append(Call("torch", create.__name__, STREAM))
    return DeviceTensor(create(*args), driver)


@contextmanager
def _nothing(*_: Any) -> Iterator[None]:
    yield
