"""Rows of operands as NumPy arrays or as tensors of a device: the few operations on them outside of the kernels."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from trnqc.backends.nki.device import NkiDevice


class RowOperations(Protocol):
    """Operations on operands that NumPy and PyTorch write differently."""

    def index(self, columns: np.ndarray) -> Any:
        """Return numbers of columns in a form that operands can be indexed with."""
        ...

    def zeros(self, like: Any, rows: int, columns: int) -> Any:
        """Return zeros [rows, columns] in float32, where `like` lies."""
        ...

    def repeated(self, row: Any, rows: int) -> Any:
        """Return a view [rows, columns] of one row."""
        ...

    def contiguous(self, rows: Any) -> Any:
        """Return the operand in row-major order; it is copied only if it is not."""
        ...

    def total(self, rows: Any) -> Any:
        """Return the sum of all rows."""
        ...

    def finite(self, rows: Any) -> Any:
        """Return a boolean for each element."""
        ...

    def to_host(self, rows: Any) -> np.ndarray:
        """Return an array of NumPy."""
        ...


class ArrayRows:
    """`RowOperations` for NumPy arrays. Sums over rows are accumulated in float64."""

    def index(self, columns: np.ndarray) -> np.ndarray:
        return columns

    def zeros(self, like: np.ndarray, rows: int, columns: int) -> np.ndarray:
        return np.zeros((rows, columns), np.float32)

    def repeated(self, row: np.ndarray, rows: int) -> np.ndarray:
        return np.broadcast_to(row, (rows, len(row)))

    def contiguous(self, rows: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(rows)

    def total(self, rows: np.ndarray) -> np.ndarray:
        return rows.sum(axis=0, dtype=np.float64).astype(np.float32)

    def finite(self, rows: np.ndarray) -> np.ndarray:
        return np.isfinite(rows)

    def to_host(self, rows: np.ndarray) -> np.ndarray:
        return rows


class TensorRows:
    """`RowOperations` for tensors of a Trainium device. Sums over rows are in float32: the chip has no float64."""

    def __init__(self, device: NkiDevice) -> None:
        self.device = device

    def index(self, columns: np.ndarray) -> Any:
        return self.device.put(np.asarray(columns, np.int64))

    def zeros(self, like: Any, rows: int, columns: int) -> Any:
        return like.new_zeros((rows, columns))

    def repeated(self, row: Any, rows: int) -> Any:
        return row.expand(rows, -1)

    def contiguous(self, rows: Any) -> Any:
        return rows.contiguous()

    def total(self, rows: Any) -> Any:
        return rows.sum(0)

    def finite(self, rows: Any) -> Any:
        return rows.isfinite()

    def to_host(self, rows: Any) -> np.ndarray:
        array: np.ndarray = rows.cpu().numpy()
        return array
