"""The speed of this machine in what contractions consist of: matrix products, copies, and the start of each.

    ~0.3 s of small NumPy calls, once on each machine ─► OperationRates, kept in the user's cache directory ─► estimates

Times are those of the threads that NumPy's BLAS uses in this process. No measured shape is taken from a contraction, so
estimates from these rates are predictions.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from itertools import product

import numpy as np

from trnqc.contraction.products.product_plan import MULTIPLY_ADD, START
from trnqc.contraction.products.slices import Slice, multiply
from trnqc.host.memory import data_caches
from trnqc.host.rates import kept_rates

# Extents m, n and k of the measured matrix products.
SIZES = (2, 8, 32, 128, 512)
# Largest number of multiply-adds of a measured product.
LARGEST = 2**25
# Elements of the measured copies: one within the caches, one in memory.
NEAR, FAR = 2**15, 2**23


@dataclass(frozen=True)
class OperationRates:
    """Seconds of elementary operations.

    A product [m, k] [k, n] takes call + m n k multiply_add + (m k + k n) panel + m n result. Copying an element takes
    `near` within the caches (up to `cached` elements), else `far`; turned_near and turned_far if axes are exchanged.
    `step` is Python's overhead of one product of slices.
    """

    call: float
    multiply_add: float
    panel: float
    result: float
    near: float
    far: float
    turned_near: float
    turned_far: float
    step: float
    cached: int = 2**21

    def product(self, m: int, n: int, k: int) -> float:
        """Return the time of a product of matrices [m, k] [k, n]."""
        return self.call + m * n * k * self.multiply_add + (m + n) * k * self.panel + m * n * self.result

    def copy(self, elements: int, among: int, turned: bool = True) -> float:
        """Return the seconds to copy `elements`; `turned` copies change the fastest axis.

        All `among` elements that are in use at the time decide whether the caches hold them.
        """
        near, far = (self.turned_near, self.turned_far) if turned else (self.near, self.far)
        return elements * (near if among <= self.cached else far)


# Relative rates in units of moving one element, which are the same on every machine, so that plans are too.
RELATIVE_RATES = OperationRates(
    call=START,
    multiply_add=MULTIPLY_ADD,
    panel=25 * MULTIPLY_ADD,
    result=8 * MULTIPLY_ADD,
    near=0.3,
    far=1.0,
    turned_near=0.5,
    turned_far=3.0,
    step=START,
)


@cache
def machine_rates() -> OperationRates:
    """Return the rates of this machine, measured now unless the user's cache has them."""
    return kept_rates("contraction", OperationRates, measured_rates)


@cache
def cache_levels() -> tuple[tuple[str, int], ...]:
    """Return (name, fp64 elements) of the two largest caches, the larger first; 32 MB and 1 MB if unknown."""
    sizes = {level: size // 8 for level, size in data_caches().items()}
    largest = sorted(sizes.items(), key=lambda pair: -pair[1])[:2]
    return tuple(largest) if len(largest) == 2 else (("L3", 2**22), ("L2", 2**17))


def measured_rates() -> OperationRates:
    """Return the rates, measured now."""
    near, turned_near = (_copy(NEAR, turned) for turned in (False, True))
    far, turned_far = (_copy(FAR, turned) for turned in (False, True))
    return OperationRates(*_products(), near, far, turned_near, turned_far, _step())


def _least(work: Callable[[], object], times: int = 3) -> float:
    """Return the shortest time of several runs, after one that is not counted."""
    work()
    times_taken = []
    for _ in range(times):
        start = time.perf_counter()
        work()
        times_taken.append(time.perf_counter() - start)
    return min(times_taken)


def _products() -> tuple[float, float, float, float]:
    """Return (call, multiply_add, panel, result) of least squared relative error, with no negative rate."""
    rows, seconds = [], []
    for m, n, k in product(SIZES, repeat=3):
        work = m * n * k
        if work <= LARGEST:
            stack = max(1, 200_000 // work)
            a, b, out = np.ones((stack, m, k)), np.ones((stack, k, n)), np.empty((stack, m, n))
            rows.append((1.0, float(work), float(m * k + k * n), float(m * n)))
            seconds.append(_least(partial(np.matmul, a, b, out=out)) / stack)
    scaled = np.array(rows) / np.array(seconds)[:, None]
    call, multiply_add, panel, result = _not_negative(scaled, np.ones(len(rows)))
    return call, multiply_add, panel, result


def _not_negative(matrix: np.ndarray, target: np.ndarray) -> list[float]:
    """Return non-negative factors of least squares, from the best subset of columns."""
    best: tuple[float, list[float]] | None = None
    columns = matrix.shape[1]
    for chosen in range(1, 2**columns):
        used = [k for k in range(columns) if chosen >> k & 1]
        factors = np.linalg.lstsq(matrix[:, used], target, rcond=None)[0]
        error = float(np.square(matrix[:, used] @ factors - target).sum())
        if (factors >= 0).all() and (best is None or error < best[0]):
            spread = np.zeros(columns)
            spread[used] = factors
            best = error, spread.tolist()
    assert best is not None
    return best[1]


def _copy(elements: int, turned: bool) -> float:
    """Return the time to copy one element."""
    # Not a power of two, for which a column would occupy few lines of a cache.
    side = 2 ** (elements.bit_length() // 2) + 1
    source = np.ones((side, elements // side))
    target = np.empty(source.shape[::-1]).T if turned else np.empty_like(source)
    return _least(lambda: np.copyto(target, source)) / elements


def _step() -> float:
    """Return the time of one product of tiny slices with its overhead."""
    result, left, right = (Slice(np.ones((2, 2)), labels) for labels in (("a", "c"), ("a", "b"), ("b", "c")))
    scratch = np.empty(64)

    def work() -> None:
        for k in range(50):
            parts = [x.part("a", k % 2, k % 2 + 1) for x in (result, left, right)]
            multiply(parts[0], parts[1:], k % 2 == 0, scratch)

    return _least(work) / 50
