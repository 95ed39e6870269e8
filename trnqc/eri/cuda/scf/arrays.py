"""The matrices of an SCF by name in the memory of a device, and products of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.jit.device import DeviceArray


class Arrays:
    """Arrays of matrices [n, n], most of them one for each spin, which follow each other. All are released together.

    Parameters
    ----------
    gpu
        The device with its libraries.
    n, spins
        Functions, and matrices of an array.
    """

    def __init__(self, gpu: Gpu, n: int, spins: int) -> None:
        self.gpu, self.device, self.n, self.spins = gpu, gpu.device, n, spins
        self._memories: dict[str, DeviceArray] = {}

    def __getitem__(self, name: str) -> DeviceArray:
        return self._memories[name]

    @property
    def whole(self) -> int:
        """The elements of the matrices of all spins."""
        return self.spins * self.n**2

    def upload(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Copy arrays to the device."""
        contiguous = [np.ascontiguousarray(array, np.float64) for array in arrays.values()]
        self._memories |= zip(arrays, self.device.upload_all(contiguous))

    def zeros(self, shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Allocate arrays of zeros."""
        for name, shape in shapes.items():
            self._memories[name] = self.device.zeros(*shape)

    def swap(self, one: str, other: str) -> None:
        """Exchange the names of two arrays."""
        self._memories[one], self._memories[other] = self._memories[other], self._memories[one]

    def release(self) -> None:
        self.device.release(*self._memories.values())
        self._memories = {}

    def square(self, name: str, spin: int = 0, slot: int = 0) -> DeviceMatrix:
        """Return the matrix of a spin. slot: which of several arrays for all spins."""
        return DeviceMatrix(self[name], self.n, self.n, self.n, slot * self.whole + spin * self.n**2)

    def block(self, name: str, rows: int, columns: int) -> DeviceMatrix:
        """Return a matrix of another shape in the memory of an array."""
        return DeviceMatrix(self[name], rows, columns, columns)

    def rows(self, name: str, count: int, elements: int, start: int = 0) -> DeviceMatrix:
        """Return an array as so many rows of so many elements."""
        return DeviceMatrix(self[name], count, elements, elements, start)

    def columns(self, name: str, spin: int, begin: int, end: int) -> DeviceMatrix:
        """Return some columns of the matrix of a spin."""
        return DeviceMatrix(self[name], self.n, end - begin, self.n, spin * self.n**2 + begin)

    def multiply(self, left: DeviceMatrix, right: DeviceMatrix, out: DeviceMatrix, **options: Any) -> None:
        """Queue a product; see `Products.multiply`."""
        self.gpu.products.multiply(left, right, out, **options)

    def dot(self, rows: DeviceMatrix, one: DeviceMatrix, out: str, place: int) -> None:
        """Queue the products of rows with another row, which go to `out` from a place on."""
        self.multiply(rows, one, DeviceMatrix(self[out], rows.rows, 1, 1, place), transpose=(False, True))
