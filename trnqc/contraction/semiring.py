"""Semirings: what takes the place of sums and products in a contraction of NumPy arrays.

Orders of contractions hold in each of them, since they rest on the distributive law and on the freedom to exchange
operands alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from trnqc.errors import ArgumentError, InputError, UnsupportedError

# Elements of a block of products that is formed before it is summed, so that it stays in the second cache.
BLOCK = 2**15
# Length of rows and of sums of a block at first; both grow where the block has room.
ROW, SUM = 2**10, 16


@dataclass(frozen=True)
class Semiring:
    """A commutative semiring over numbers or truth values.

    Attributes
    ----------
    name : str
        Its name in messages.
    add, multiply : numpy.ufunc
        The sum and the product of two arrays; both are associative and commutative, and products distribute over sums.
    zero, one : float or bool
        add(zero, x) = x, multiply(zero, x) = zero and multiply(one, x) = x for every x.

    Raises
    ------
    InputError
        If an operation is no ufunc of two arrays, or a law fails for `zero`, `one` and sums of these.

    Examples
    --------
    >>> import numpy as np
    >>> from trnqc import einsum
    >>> bottleneck = Semiring("max-min", np.maximum, np.minimum, -np.inf, np.inf)
    >>> einsum("ij,jk->ik", np.array([[3.0, 1.0]]), np.array([[2.0], [5.0]]), semiring=bottleneck)
    array([[2.]])
    """

    name: str
    add: np.ufunc
    multiply: np.ufunc
    zero: float | bool
    one: float | bool

    def __post_init__(self) -> None:
        for role, operation in (("add", self.add), ("multiply", self.multiply)):
            if not isinstance(operation, np.ufunc) or (operation.nin, operation.nout) != (2, 1):
                raise InputError(f"{role} of a semiring is a ufunc of two arrays; found {operation!r} in {self.name}")
        for role, value in (("zero", self.zero), ("one", self.one)):
            if not isinstance(value, bool | int | float | np.bool_ | np.number) or value != value:
                raise InputError(f"the {role} of a semiring is a number or truth value; found {value!r} in {self.name}")
        if self.zero == self.one:
            raise InputError(
                f"zero and one of a semiring differ, as multiply(zero, x) is zero and multiply(one, x) is x; found "
                f"{self.zero} for both in {self.name}"
            )
        with np.errstate(all="ignore"):
            samples = [self.zero, self.one, self.add(self.one, self.one), self.multiply(self.one, self.one)]
            for x in samples:
                self._require(self.add(self.zero, x) == x, f"add(zero, x) is x; found {self.add(self.zero, x)}", x)
                absorbed = self.multiply(self.zero, x)
                self._require(absorbed == self.zero, f"multiply(zero, x) is zero, {self.zero}; found {absorbed}", x)
                self._require(self.multiply(self.one, x) == x, f"multiply(one, x) is x; found {x}", x)
            for x, y, z in product(samples, repeat=3):
                whole = self.multiply(x, self.add(y, z))
                parts = self.add(self.multiply(x, y), self.multiply(x, z))
                self._require(whole == parts, f"products distribute over sums; found {whole} and {parts}", x)

    def _require(self, holds: Any, law: str, x: Any) -> None:
        if not holds:
            raise InputError(f"in a semiring {law} for x = {x} in {self.name}")

    def operands(self, arrays: Sequence[Any], check: bool) -> list[np.ndarray]:
        """Return NumPy arrays of one type: truth values, or floating-point numbers.

        Raises
        ------
        UnsupportedError
            If an array is not one of NumPy.
        InputError
            If an array has elements of another type, or, where `check` is set, elements outside of the semiring.
        """
        wanted = "b" if isinstance(self.zero, bool | np.bool_) else "iuf"
        for number, x in enumerate(arrays):
            if not isinstance(x, np.ndarray):
                raise UnsupportedError(f"semirings go with NumPy arrays; operand {number} is {type(x).__name__}")
            if x.dtype.kind not in wanted:
                expected = "truth values" if wanted == "b" else "real numbers"
                raise InputError(f"{self.name} takes arrays of {expected}; operand {number} has the type {x.dtype}")
        common = np.result_type(*arrays)
        same = [x.astype(common if common.kind in "bf" else np.float64, copy=False) for x in arrays]
        for number, x in enumerate(same if check else ()):
            with np.errstate(all="ignore"):
                inside = (self.add(self.zero, x) == x) & (self.multiply(self.zero, x) == self.zero)
            if not inside.all():
                place = tuple(int(k) for k in np.argwhere(~inside)[0])
                raise InputError(
                    f"elements of {self.name} are those x with add({self.zero}, x) = x and multiply({self.zero}, x) = "
                    f"{self.zero}; operand {number} has {x[place]} at {place}"
                )
        return same

    def sum(self, array: np.ndarray, axes: tuple[int, ...]) -> np.ndarray:
        """Return the sum over axes, which is zero where there is nothing to sum."""
        for axis in sorted(axes, reverse=True):
            array = self.add.reduce(array, axis=axis, initial=self.zero)
        return array

    def matmul(self, a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        """Return the product of stacked matrices, a_t[Z, K, M] and b[Z, K, N] -> [Z, M, N], in blocks of products."""
        (z, k, m), n = a_t.shape, b.shape[2]
        result = np.full((z, m, n), self.zero, np.result_type(a_t, b))
        columns = max(1, min(n, ROW))
        inner = max(1, min(k, SUM))
        rows = max(1, min(m, BLOCK // (columns * inner)))
        inner = max(inner, min(k, BLOCK // (columns * rows)))
        stack = max(1, min(z, BLOCK // (columns * rows * inner)))
        starts = (range(0, extent, size) for extent, size in ((z, stack), (m, rows), (n, columns), (k, inner)))
        for at_z, at_m, at_n, at_k in product(*starts):
            left = a_t[at_z : at_z + stack, at_k : at_k + inner, at_m : at_m + rows, None]
            right = b[at_z : at_z + stack, at_k : at_k + inner, None, at_n : at_n + columns]
            total = result[at_z : at_z + stack, at_m : at_m + rows, at_n : at_n + columns]
            self.add(total, self.add.reduce(self.multiply(left, right), axis=1), out=total)
        return result


# Name -> semiring. That of max-times holds for numbers that are not negative.
SEMIRINGS = {
    semiring.name: semiring
    for semiring in (
        Semiring("min-plus", np.minimum, np.add, np.inf, 0.0),
        Semiring("max-plus", np.maximum, np.add, -np.inf, 0.0),
        Semiring("max-times", np.maximum, np.multiply, 0.0, 1.0),
        Semiring("or-and", np.logical_or, np.logical_and, False, True),
    )
}


def semiring_of(semiring: str | Semiring) -> Semiring:
    """Return the semiring of a name, or the semiring itself. Raises an ArgumentError for anything else."""
    if isinstance(semiring, Semiring):
        return semiring
    if not isinstance(semiring, str) or semiring not in SEMIRINGS:
        raise ArgumentError(f"semiring is one of {', '.join(SEMIRINGS)}, or a Semiring; found {semiring!r}")
    return SEMIRINGS[semiring]
