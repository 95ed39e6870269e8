"""Page-locked memory of the host, and copies between it and a GPU, by the driver."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from trnqc.jit.device import DeviceArray

# CU_MEMHOSTALLOC_PORTABLE of cuda.h: page-locked for all GPUs.
PORTABLE = 1


class CudaCopies:
    """See `trnqc.jit.staging.Copier`. Copies have streams of their own, so that they do not wait for kernels.

    Parameters
    ----------
    name
        The name of the GPU.
    driver
        Calls a function of the driver, with its arguments, in the context of the GPU. Raises BackendUnavailable.
    free
        The function of the driver that frees page-locked memory. It must not refer to the GPU, which would then live as
        long as the process.
    new_stream
        Creates a stream of the GPU.
    """

    def __init__(
        self,
        name: str,
        driver: Callable[..., tuple[Any, ...]],
        free: Callable[[int], Any],
        new_stream: Callable[[], Any],
    ) -> None:
        self.name, self._driver, self._free, self._new_stream = name, driver, free, new_stream
        self._streams: dict[int, Any] = {}

    def lock(self, nbytes: int) -> np.ndarray:
        (found,) = self._driver("cuMemHostAlloc", nbytes, PORTABLE)
        block = (ctypes.c_ubyte * nbytes).from_address(int(found))
        # At the end of the process the driver frees what is left, and may be gone before us.
        weakref.finalize(block, self._free, int(found)).atexit = False
        return np.ctypeslib.as_array(block)

    def to_device(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        place = int(memory.handle.handle) + begin
        self._driver("cuMemcpyHtoDAsync", place, piece.ctypes.data, piece.nbytes, self._stream(buffer))

    def to_host(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        place = int(memory.handle.handle) + begin
        self._driver("cuMemcpyDtoHAsync", piece.ctypes.data, place, piece.nbytes, self._stream(buffer))

    def wait(self, buffer: int) -> None:
        self._driver("cuStreamSynchronize", self._stream(buffer))

    def _stream(self, buffer: int) -> int:
        if buffer not in self._streams:
            self._streams[buffer] = self._new_stream()
        return int(self._streams[buffer].handle)
