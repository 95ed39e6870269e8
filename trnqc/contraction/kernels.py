"""The kernels that a run calls: products of matrices, and the fused kernel of pair energies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.types import PairEnergies

# A stacked product of matrices: (a_t[Z, K, M], b[Z, K, N]) -> [Z, M, N].
Gemm = Callable[[Any, Any], Any]
# A kernel of pair energies: (B[occ, vir, aux], eps_occ, eps_vir, bytes of memory or None) -> energies by pair. B is
# fp64 in C order.
PairKernel = Callable[[np.ndarray, np.ndarray, np.ndarray, int | None], PairEnergies]


@dataclass(frozen=True)
class Kernels:
    """The kernels of one plan: one for products of matrices, one for pair energies.

    Attributes
    ----------
    name : str
        Description of the matrix product for the printed plan.
    gemm : Gemm or None
        None for the matrix product of the library that the arrays belong to.
    pairs : PairKernel or None
        None if pair energies are computed step by step.
    pairs_name : str
        Description of the pair kernel for the printed plan.
    """

    name: str = "the library of the arrays"
    gemm: Gemm | None = None
    pairs: PairKernel | None = None
    pairs_name: str = ""


# The products of the library that the arrays belong to.
LIBRARY = Kernels()


def backend_kernels(name: str, precision: str, operands: Iterable[Any] = ()) -> Kernels:
    """Return the kernels of a backend ("cpu", "simulator" or "neuron") for these operands.

    Raises InputError for other backends or operands that are no NumPy arrays, BackendUnavailable and
    UnsupportedPrecision if the backend cannot run here, or not in this precision.
    """
    # Backends bring compilers and the simulator, which most contractions do not need.
    from trnqc import backends
    from trnqc.backends.base import check_precision

    backend = backends.get(name)
    check_precision(backend, precision)
    numpy_types = (np.ndarray, np.generic, list, tuple, int, float)
    if foreign := [x for x in operands if not isinstance(x, numpy_types) and not callable(x)]:
        raise InputError(f"backend {name!r} takes NumPy arrays; found {type(foreign[0]).__name__}")

    def pairs(B: np.ndarray, eps_occ: np.ndarray, eps_vir: np.ndarray, memory: int | None) -> PairEnergies:
        return backend.pair_step(precision).triangle(B, eps_occ, eps_vir, max_memory=memory)

    def gemm(a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
        if a_t.dtype.kind not in "fiu" or b.dtype.kind not in "fiu":
            raise InputError(f"backend {name!r} multiplies real numbers; found {a_t.dtype} and {b.dtype}")
        return backend.batched_contraction(a_t, b, precision=precision)

    words = f"backend {name} in {precision}"
    return Kernels(words, gemm, pairs, words)


def fused_pair_kernels() -> Kernels:
    """Return the kernels of a plan without a backend: the CPU's pair kernel, if it can be compiled."""
    from trnqc import backends

    if backends.get("cpu").status().reason:
        return LIBRARY
    cpu = backend_kernels("cpu", "fp64")
    return Kernels(pairs=cpu.pairs, pairs_name=cpu.pairs_name)
