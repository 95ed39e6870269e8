"""The accuracy of a device's products, measured before the first use of a precision.

    device, precision -> known operands -> one launch of the kernel `probe` -> largest errors -> cache -> use or refusal

The vendor does not document how the tensor engine rounds, and compilers may cast operands (docs/precision.md). A
precision is therefore used on a device only if the errors that were measured there are at most those that it promises.
A measurement takes milliseconds, and once for each device and compiler the compilation of a small program. It is kept
in the cache directory for the conditions under which it holds: device, versions, flags, and the source of the kernel.
"""

from __future__ import annotations

import hashlib
import json
import math
import threading
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from nki_kernels.descriptors import kernels
from nki_kernels.precision.probe import P
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc.backends.nki.device import NkiDevice
from trnqc.errors import StorageError, UnsupportedPrecision
from trnqc.host.files import cache_directory, record_line, records_in, write_aside
from trnqc.tuning.sources import kernel_hash

# Rows of the sums: eight accumulation blocks, as many terms as an auxiliary basis of a small molecule has.
ROWS = 8 * P
# Part of the name of a measurement; a change of the operands below changes it.
OPERANDS = "operands 1"

_measured: dict[str, Accuracy] = {}
_lock = threading.Lock()


@dataclass(frozen=True)
class Accuracy:
    """The largest errors of a precision that were measured on a device.

    Attributes
    ----------
    precision
        The precision.
    products
        Error of single products, relative to the product.
    sums
        Error of sums of `ROWS` products, relative to the sum of their magnitudes.
    transposes
        Error of elements that the tensor engine transposes, relative to the element.
    """

    precision: str
    products: float
    sums: float
    transposes: float

    @property
    def error(self) -> float:
        """The largest of the errors."""
        return max(self.products, self.sums, self.transposes)

    @property
    def promised(self) -> float:
        """The error that the precision promises."""
        return PRECISIONS[self.precision].error

    @property
    def kept(self) -> bool:
        """Whether the device keeps the promise."""
        return self.error <= self.promised

    def __str__(self) -> str:
        errors = f"products {self.products:.1e}, sums {self.sums:.1e}, transposes {self.transposes:.1e}"
        return f"{self.precision}: error {self.error:.1e} ({errors}), promised {self.promised:.1e}"


def require_accuracy(device: NkiDevice, precision: str) -> None:
    """Measure a precision on a device unless this is done already, and refuse it if it breaks its promise.

    Raises
    ------
    UnsupportedPrecision
        If the measured error exceeds the promised one. The message gives both, and what to use instead.
    """
    accuracy = accuracy_of(device, precision)
    if accuracy.kept:
        return
    instead = "the backend 'cpu', which computes in fp64"
    if precision != "bf16x15":
        instead = f"the precision bf16x15, whose products need no rounding, or {instead}"
    raise UnsupportedPrecision(
        f"precision {precision!r} promises a relative error of {accuracy.promised:.1e}, but {accuracy.error:.1e} was "
        f"measured on {device.label} (products {accuracy.products:.1e}, sums {accuracy.sums:.1e}, transposes "
        f"{accuracy.transposes:.1e}): use {instead} (docs/precision.md)"
    )


def accuracy_of(device: NkiDevice, precision: str) -> Accuracy:
    """The accuracy of a precision on a device: of this process, out of the cache, or measured now and then cached."""
    name = _name(device, precision)
    path = cache_directory() / "accuracy" / name
    with _lock:
        if name not in _measured:
            _measured[name] = _read(path, precision) or _measure_and_write(device, precision, path)
        return _measured[name]


def forget() -> None:
    """Forget the measurements of this process, so that the next use reads the cache."""
    with _lock:
        _measured.clear()


def measure(device: NkiDevice, precision: str) -> Accuracy:
    """Launch the kernel `probe` on known operands and compare its results with fp64."""
    a, b, square = operands()
    arrays = (split(a, precision), split(b, precision), square.astype(np.float32))
    out = device.call("probe", *(device.put(array) for array in arrays)).astype(np.float64)
    terms = np.abs(a).T @ np.abs(b)
    return Accuracy(
        precision,
        products=_largest(out[0] - np.outer(a[0], b[0]), np.abs(np.outer(a[0], b[0]))),
        sums=_largest(out[1] - a.T @ b, terms),
        transposes=_largest(out[2] - square.T, np.abs(square.T)),
    )


def operands() -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Operands a, b [ROWS, 128] and a square [128, 128] in fp64 that are hard for a device which rounds too early.

    The first rows have significands of ones, halfway cases of every format, and random bits. The other columns have, in
    turn: terms of one sign, a large first term before small ones, pairs of terms that nearly cancel, and terms of
    magnitudes over ten binary orders.
    """
    rng = np.random.default_rng(20261123)
    a, b = rng.standard_normal((2, ROWS, P))
    a[:, 0::4], b[:, 0::4] = np.abs(a[:, 0::4]), np.abs(b[:, 0::4])
    a[1:, 1::4] *= 2.0**-8
    a[1::2, 2::4], b[1::2, 2::4] = -a[0::2, 2::4] * (1 + 2.0**-10), b[0::2, 2::4]
    a[:, 3::4] *= 2.0 ** rng.integers(-10, 1, (ROWS, P // 4))
    for row in (a[0], b[0]):
        bits = 1 + np.arange(P) % 24
        ones, halfway = 2.0 - 2.0 ** (1 - bits), 1.0 + 2.0**-bits
        row[:] = np.select([np.arange(P) % 3 == 0, np.arange(P) % 3 == 1], [ones, halfway], 1.0 + rng.random(P))
        row *= rng.choice([-1.0, 1.0], P) * 2.0 ** rng.integers(-6, 7, P)
    a[0], b[0] = a[0].astype(np.float32), b[0].astype(np.float32)
    square = rng.standard_normal((P, P)).astype(np.float32).astype(np.float64)
    return a, b, square


def _largest(error: np.ndarray, scale: np.ndarray) -> float:
    """The largest relative error; infinite if a result is not a number."""
    largest = float(np.max(np.abs(error) / scale))
    return largest if math.isfinite(largest) else math.inf


def _name(device: NkiDevice, precision: str) -> str:
    """The name of the file of a measurement: the precision, and a digest of the conditions under which it holds."""
    conditions = [device.identity(), kernel_hash(kernels()["probe"]), OPERANDS, precision]
    return f"{precision}-{hashlib.sha256(json.dumps(conditions, sort_keys=True).encode()).hexdigest()[:16]}.json"


def _read(path: Path, precision: str) -> Accuracy | None:
    """The measurement in a file; None if there is none, or if its content is not what was written."""
    try:
        records = records_in(path.read_bytes())
    except OSError:
        return None
    if len(records) != 1 or records[0] is None:
        return None
    try:
        accuracy = Accuracy(**{k: v for k, v in records[0].items() if k != "device"})
    except TypeError:
        return None
    return accuracy if accuracy.precision == precision else None


def _measure_and_write(device: NkiDevice, precision: str, path: Path) -> Accuracy:
    accuracy = measure(device, precision)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_aside(path, record_line({"device": device.label, **asdict(accuracy)}))
    except (OSError, StorageError):
        pass  # A cache that cannot be written only means that the next process measures again.
    return accuracy
