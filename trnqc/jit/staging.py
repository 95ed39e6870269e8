"""Copies between the host and a device through page-locked memory, which is kept.

array -> buffer in page-locked memory -> copy on the stream of this buffer, while the host fills the other one

A driver can copy page-locked memory while the host goes on, and does not have to copy it to such memory itself first.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from trnqc.errors import BackendUnavailable

if TYPE_CHECKING:
    from trnqc.jit.device import DeviceArray

# Bytes of a buffer. Copies of this size reach the rate of larger ones, and locking so much takes some milliseconds.
BUFFER_BYTES = 1 << 23
# One is filled while the other is copied.
BUFFERS = 2
# Bytes to which the place of an array in a buffer is aligned, as device memory is (CUDA C++ Programming Guide).
ALIGNMENT = 256


class Copier(Protocol):
    """What a device does for its copies. Buffers are numbered, and each of them has a stream."""

    name: str

    def lock(self, nbytes: int) -> np.ndarray:
        """Return page-locked memory of so many bytes. Raises BackendUnavailable if there is none."""

    def to_device(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        """Queue a copy of a piece of a buffer to an array, from the byte `begin` of the array on."""

    def to_host(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        """Queue a copy of bytes of an array, from `begin` on, to a piece of a buffer."""

    def wait(self, buffer: int) -> None:
        """Wait for the copies of a buffer."""


@dataclass
class Copies:
    """Copies so far: their numbers, pieces of large arrays counted each, and their bytes."""

    uploads: int = 0
    uploaded_bytes: int = 0
    downloads: int = 0
    downloaded_bytes: int = 0


@dataclass(eq=False)
class _Buffer:
    """A buffer, the bytes that are in use, and where its pieces go on the host once they have arrived."""

    memory: np.ndarray
    used: int = 0
    expected: list[tuple[np.ndarray, np.ndarray]] = field(default_factory=list)


class Staging:
    """The page-locked buffers of a device. Threads take turns.

    Attributes
    ----------
    counts : Copies
        Copies so far.
    locked : bool or None
        Whether the buffers are page-locked; None before the first copy.
    """

    def __init__(self, copier: Copier) -> None:
        self._copier, self._turns = copier, threading.Lock()
        self._buffers: list[_Buffer] = []
        self._current = 0
        self.counts = Copies()
        self.locked: bool | None = None

    def upload(self, copies: Iterable[tuple[DeviceArray, np.ndarray]]) -> None:
        """Copy contiguous arrays to the beginnings of arrays of the device, and wait once for all of them."""
        with self._turns:
            for memory, array in copies:
                flat = _bytes(array)
                for begin, number, piece in self._pieces(flat.size):
                    piece[...] = flat[begin : begin + piece.size]
                    self._copier.to_device(number, piece, memory, begin)
                    self.counts.uploads += 1
                    self.counts.uploaded_bytes += piece.size
            self._finish()

    def download(self, copies: Iterable[tuple[DeviceArray, np.ndarray]]) -> None:
        """Copy arrays of the device to contiguous arrays of the same size, and wait once for all of them."""
        with self._turns:
            for memory, array in copies:
                flat = _bytes(array)
                for begin, number, piece in self._pieces(flat.size):
                    self._copier.to_host(number, piece, memory, begin)
                    self._buffers[number].expected.append((piece, flat[begin : begin + piece.size]))
                    self.counts.downloads += 1
                    self.counts.downloaded_bytes += piece.size
            self._finish()

    def _pieces(self, nbytes: int) -> Iterator[tuple[int, int, np.ndarray]]:
        """Yield where each piece of an array begins, the number of its buffer, and its memory there."""
        for begin in range(0, nbytes, BUFFER_BYTES):
            size = min(BUFFER_BYTES, nbytes - begin)
            buffer = self._buffer()
            if buffer.used + size > BUFFER_BYTES:
                self._current = (self._current + 1) % BUFFERS
                buffer = self._buffer()
                self._arrive(self._current)
            piece = buffer.memory[buffer.used : buffer.used + size]
            buffer.used += -(-size // ALIGNMENT) * ALIGNMENT
            yield begin, self._current, piece

    def _finish(self) -> None:
        for number, buffer in enumerate(self._buffers):
            if buffer.used:
                self._arrive(number)

    def _arrive(self, number: int) -> None:
        """Wait for the copies of a buffer, after which it is empty."""
        buffer = self._buffers[number]
        if buffer.used:
            self._copier.wait(number)
        for piece, target in buffer.expected:
            target[...] = piece
        buffer.used, buffer.expected = 0, []

    def _buffer(self) -> _Buffer:
        while len(self._buffers) <= self._current:
            self._buffers.append(_Buffer(self._allocated()))
        return self._buffers[self._current]

    def _allocated(self) -> np.ndarray:
        """Return page-locked memory, or pageable memory with one warning for all buffers."""
        if self.locked is not False:
            try:
                memory, self.locked = self._copier.lock(BUFFER_BYTES), True
                return memory
            except BackendUnavailable as error:
                self.locked = False
                warnings.warn(
                    f"{self._copier.name}: {BUFFER_BYTES >> 20} MiB of the host's memory cannot be page-locked "
                    f"({error}); copies go through pageable memory, which is slower: raise the limit of locked memory "
                    "(ulimit -l), or let other programs of this machine end",
                    RuntimeWarning,
                    stacklevel=2,
                )
        return np.empty(BUFFER_BYTES, np.uint8)


def _bytes(array: np.ndarray) -> Any:
    return array.reshape(-1).view(np.uint8)
