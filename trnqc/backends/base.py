"""What every backend offers, and how one says whether it can run here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trnqc.arrays import host_array
from trnqc.errors import InputError, UnsupportedPrecision
from trnqc.types import PairEnergies

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run on this machine.

    reason: why not, or what is limited; empty when there is nothing to say. hint: what to install or set.
    versions: the software it stands on. devices: what it computes on.
    """

    usable: bool
    reason: str = ""
    hint: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


class Backend(Protocol):
    """One place where the expensive steps can run. Callers have validated shapes, dtypes and values of arrays.

    name: as in ``--backend``. precisions: the part of trnqc.types.PRECISIONS that it has; any other raises
    UnsupportedPrecision. bf16x3 is the two-way split B = hi + lo with both parts bf16 and
    T = hi.hi + hi.lo + lo.hi accumulated in fp32; bf16 is hi.hi alone.
    """

    @property
    def name(self) -> str: ...

    @property
    def precisions(self) -> tuple[str, ...]: ...

    def status(self) -> BackendStatus:
        """Never raises."""
        ...

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """a_t[K, M], b[K, N] -> a_t.T @ b, [M, N]; fp64 out for fp64, else fp32."""
        ...

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """a_t[Z, K, M], b[Z, K, N] -> [Z, M, N]; fp64 out for fp64, else fp32."""
        ...

    def mp2_pairs(
        self,
        B: Any,
        eps_occ: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        max_memory: float | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        """Closed-shell MP2 pair energies from the factors of (ia|jb) = sum_P B[i,a,P] B[j,b,P].

        B: float64 [nocc, nvir, naux], C-contiguous, Hartree^1/2; also np.memmap, or rows on disk that B[i0:i1] reads
        (an HDF5 dataset). eps_occ [nocc], eps_vir [nvir]: orbital energies in Hartree.
        fused=False runs GEMM and energy expression apart: the same numbers to the precision, for comparison.
        max_memory: bytes, for B when it is in memory and all that this call allocates; raises MemoryLimit with both
        figures when that is too little. progress(done_pairs, total_pairs) is called in the caller's thread.
        """
        ...

    def mp2_pair_block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
        *,
        precision: str,
        fused: bool = True,
        threads: int | None = None,
        progress: Progress | None = None,
    ) -> PairEnergies:
        """Energies of all pairs of an orbital of `left` with one of `right`, none of which is in both.

        left [m, nvir, naux], right [n, nvir, naux]: rows of B, eps_left [m], eps_right [n]: their energies; the rest as
        in `mp2_pairs`. The result is [m, n], not triangular. The same arguments give the same bits, whatever the number
        of threads; on the CPU also those of `mp2_pairs`. With `mp2_pairs` over the blocks of the diagonal it makes up
        all pairs for whoever holds only some rows at a time.
        """
        ...

    def pair_block_bytes(
        self, m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool = True, threads: int | None = None
    ) -> int:
        """Bytes that `mp2_pair_block` allocates beside its arguments; no less than `mp2_pairs` of m or n rows does."""
        ...


@dataclass(frozen=True)
class Selection:
    """The backend that a request came to, and a note that says why in words."""

    backend: Backend
    note: str


def product_operands(a_t: Any, b: Any, stacked: bool) -> tuple[np.ndarray, np.ndarray]:
    """The operands of `gemm`, or of `batched_contraction` (stacked), as plain real arrays whose shapes agree.

    Raises InputError.
    """
    instead = "backends take NumPy arrays; take .detach()"
    left, right = host_array(a_t, "a_t", instead), host_array(b, "b", instead)
    for name, x in (("a_t", left), ("b", right)):
        if x.dtype.kind not in "fiu" and x.dtype.name != "bfloat16":
            raise InputError(f"backends multiply real numbers; {name} holds {x.dtype}")
    rank = 3 if stacked else 2
    if left.ndim != rank or right.ndim != rank or left.shape[:-1] != right.shape[:-1]:
        expected = "a_t[Z, K, M] and b[Z, K, N]" if stacked else "a_t[K, M] and b[K, N]"
        raise InputError(f"a product takes {expected}; found shapes {left.shape} and {right.shape}")
    return left, right


def check_precision(backend: Backend, precision: str) -> None:
    """Raises UnsupportedPrecision naming what `backend` has."""
    if precision not in backend.precisions:
        raise UnsupportedPrecision(
            f"backend {backend.name!r} computes in {', '.join(backend.precisions)}; "
            f"precision {precision!r} was asked for"
        )
