"""Dense linear algebra with NKI kernels: operands -> parts of the precision, work list -> one launch -> result."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.linalg import lapack

from nki_kernels.blas import factor, inverse, plan, solve_plan
from nki_kernels.blas.blocks import P
from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.blas import sizes_of
from nki_kernels.precision.splits import split
from trnqc.arrays import is_tensor
from trnqc.backends.nki.device import NkiDevice
from trnqc.errors import MemoryLimit, NotPositiveDefinite, UnsupportedPrecision
from trnqc.tuning.choice import choose
from trnqc.tuning.conditions import device_identity

MOST_ELEMENTS = 2**31 - 1
"""Elements of an array in a launch, because the offsets of a work list are 32-bit integers."""


@dataclass(frozen=True, eq=False)
class NkiBlas:
    """See `trnqc.backends.blas.BackendBlas`.

    Parameters
    ----------
    device
        Runs the kernels. Its arrays are those of this object.
    precision
        One of `nki_kernels.precision.splits.PRECISIONS`.
    parts_of
        parts_of(x, precision) splits an array into the parts of the precision, [parts, ...].
    """

    device: NkiDevice
    precision: str
    parts_of: Callable[[Any, str], Any] = split

    def product(self, a_t: Any, b: Any, c: Any, alpha: float, beta: float) -> Any:
        *batch, K, M = a_t.shape
        Z, N = (batch[0] if batch else 1), b.shape[-1]
        _check_sizes(Z * K * M, Z * K * N, Z * M * N)
        constants = self._constants("blas_gemm", {"Z": Z, "M": M, "N": N, "K": K})
        work = plan.product_list((Z, M, N, K), sizes_of(constants), (alpha, beta))
        operands = self._parts(a_t.reshape(Z, K, M)), self._parts(b.reshape(Z, K, N))
        result = self._launch("blas_gemm", operands, c, (Z, M, N), work, constants)
        return result.reshape((*batch, M, N))

    def triangle(self, a_t: Any, c: Any, alpha: float, beta: float) -> Any:
        K, n = a_t.shape
        _check_sizes(K * n, n * n)
        constants = self._constants("blas_syrk", {"n": n, "K": K})
        work = plan.triangle_list(n, K, sizes_of(constants), (alpha, beta))
        return self._launch("blas_syrk", (self._parts(a_t),), c, (n, n), work, constants)

    def solve(self, l: Any, b: Any) -> Any:
        self._require_rounding("blas_trsm")
        n, m = b.shape
        constants = self._constants("blas_trsm", {"n": n, "m": m})
        panel = constants["panel"]
        rows = solve_plan.padded(n, panel)
        _check_sizes((rows + panel) * rows, rows * m)
        whole, right = _identity_beyond(l, rows), _zeros_beyond(b, rows)
        k = np.arange(rows // panel)
        diagonal = whole.reshape(len(k), panel, len(k), panel)[k, :, k, :]
        places, items, factors = solve_plan.solve_list(rows, m, panel, constants["cols"], self.device.cores)
        arrays = (
            self.parts_of(whole.swapaxes(0, 1), self.precision),
            *(self.parts_of(x, "fp32")[0] for x in (diagonal, right)),
            *(inverse.masks(), places, items, factors),
        )
        return self.device.call("blas_trsm", *map(self.device.put, arrays), **constants)[:n]

    def cholesky(self, a: Any) -> Any:
        self._require_rounding("blas_cholesky")
        n = len(a)
        constants = self._constants("blas_cholesky", {"n": n})
        panel, cols = constants["panel"], constants["cols"]
        rows = solve_plan.padded(n, panel)
        _check_sizes(rows * rows)
        whole = _identity_beyond(a, rows)
        upper = whole.new_zeros((rows, rows)) if is_tensor(a) else np.zeros((rows, rows), np.float32)
        shared = self.device.put(factor.masks())
        for k in range(rows // panel):
            at = slice(k * panel, (k + 1) * panel)
            lists = solve_plan.panel_list(rows, k, panel, cols)
            operands = self.parts_of(whole[at], "fp32")[0], self.parts_of(whole[at], self.precision)
            result = self.device.call(
                "blas_cholesky",
                self._parts(upper),
                *map(self.device.put, operands),
                shared,
                *map(self.device.put, lists),
                **constants,
            )
            upper[at] = result[:panel]
            _require_positive(a, upper, result[panel, :panel], k * panel)
        lower = upper.swapaxes(0, 1)[:n, :n]
        return self.parts_of(lower, "fp32")[0]

    def _require_rounding(self, kernel: str) -> None:
        """Raise UnsupportedPrecision for parts of four bits, which kernels do not make of their own results."""
        if self.precision not in kernels()[kernel].precisions:
            name = kernel.removeprefix("blas_")
            raise UnsupportedPrecision(
                f"the kernel of {name} rounds its results to parts of eight bits: take fp32, bf16x6 or bf16x3"
            )

    def _constants(self, kernel: str, shape: dict[str, int]) -> dict[str, int]:
        return choose(kernel, shape, self.precision, self.device.target, device_identity()).constants

    def _parts(self, x: Any) -> Any:
        return self.device.put(self.parts_of(x, self.precision))

    def _launch(
        self,
        kernel: str,
        operands: tuple[Any, ...],
        c: Any,
        shape: tuple[int, ...],
        work: tuple[np.ndarray, np.ndarray],
        constants: dict[str, int],
    ) -> Any:
        """Launch a kernel with its work list; without c, it gets an array of one element that it does not read."""
        unread = np.zeros((1,) * len(shape), np.float32)
        previous = unread if c is None else self.parts_of(c.reshape(shape), "fp32")[0]
        arrays = [self.device.put(x) for x in (previous, *work)]
        return self.device.call(kernel, *operands, *arrays, **constants, update=int(c is not None))


def _require_positive(a: Any, upper: Any, margins: Any, before: int) -> None:
    """Raise NotPositiveDefinite if a margin of a panel is not positive; this waits for the device.

    The panel follows ``before`` rows. Of the tile of 128 rows that the kernel could not factorise, the host factorises
    what the rows before leave of it, to name the minor.
    """
    wrong = np.flatnonzero(~(_on_host(margins) > 0.0))
    if not len(wrong):
        return
    start = before + int(wrong[0]) // P * P
    tile = slice(start, min(start + P, len(a)))
    known = _on_host(upper[:start, tile]).astype(np.float64)
    rest = _on_host(a[tile, tile]).astype(np.float64) - known.T @ known
    lower, minor = lapack.dpotrf(rest, lower=1)
    if minor == 0:  # positive in fp64 only: the pivot that loses most digits to those before it
        minor = int(np.argmin(np.diag(lower) ** 2 / np.diag(rest))) + 1
    raise NotPositiveDefinite(start + minor, len(a))


def _on_host(x: Any) -> np.ndarray:
    return np.asarray(x.cpu().numpy() if is_tensor(x) else x)


def _zeros_beyond(b: Any, rows: int) -> Any:
    """b with rows of zeros after its own."""
    longer = b.new_zeros((rows, b.shape[1])) if is_tensor(b) else np.zeros((rows, b.shape[1]), b.dtype)
    longer[: len(b)] = b
    return longer


def _identity_beyond(l: Any, rows: int) -> Any:
    """l in a larger matrix that is the identity elsewhere."""
    n = len(l)
    larger = l.new_zeros((rows, rows)) if is_tensor(l) else np.zeros((rows, rows), l.dtype)
    larger[:n, :n] = l
    rest = np.arange(n, rows)
    larger[rest, rest] = 1.0
    return larger


def _check_sizes(*elements: int) -> None:
    if max(elements) > MOST_ELEMENTS:
        raise MemoryLimit(
            f"an operand or the result has {max(elements)} elements, but a launch takes at most {MOST_ELEMENTS}: "
            "divide the matrix"
        )
