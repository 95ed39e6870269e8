"""The interface of the MP2 pair step, which `Backend.pair_step` returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from trnqc.types import PairEnergies

Progress = Callable[[int, int], None]
"""Called as progress(done_pairs, total_pairs) in the thread of the caller."""


@dataclass(frozen=True)
class PairOptions:
    """How a pair step runs.

    Parameters
    ----------
    precision
        One of the backend's `precisions`.
    fused
        Whether the energy expression is evaluated together with the product. If not, it runs after the GEMM; the
        results agree within the precision.
    threads
        The number of threads of the host; by default, `trnqc.host.threads.default_threads`.
    progress
        Called as progress(done_pairs, total_pairs).
    """

    precision: str
    fused: bool = True
    threads: int | None = None
    progress: Progress | None = None


class PairStep(Protocol):
    """The MP2 pair step of a backend with certain options.

    Factors are those of (ia|jb) = sum_P B[i, a, P] B[j, b, P], float64 [nocc, nvir, naux] in Hartree^1/2, C-contiguous;
    energies are in Hartree. Methods raise CompilerError if compiled code of the CPU cannot be built, although there is
    a C compiler.

    Attributes
    ----------
    fused
        Whether the energy expression is evaluated together with the products, which may be wanted and not be possible.
    """

    @property
    def fused(self) -> bool: ...

    def triangle(
        self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None = None
    ) -> PairEnergies:
        """Compute the energies of all pairs i >= j of a closed shell.

        Parameters
        ----------
        B
            The factors. They may be a memory map, or an object such as an HDF5 dataset whose rows B[i0:i1] are read
            from disk.
        eps_occ, eps_vir
            The orbital energies [nocc] and [nvir].
        max_memory
            The limit in bytes of B, if it is in memory, and everything that this call allocates.

        Returns
        -------
        PairEnergies
            The lower triangles, [nocc, nocc].

        Raises
        ------
        MemoryLimit
            If `max_memory` is too small. The message contains the necessary and the allowed size.
        """
        ...

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        """Compute the energies of all pairs of one orbital of `left` and one of `right`, [m, n]; none is in both.

        Together with `triangle` for the diagonal blocks, this gives all pairs to a caller that has only some rows of B
        in memory. The bits do not depend on the number of threads; on the CPU they are those of `triangle`.

        Parameters
        ----------
        left, right
            Rows of B, [m, nvir, naux] and [n, nvir, naux].
        eps_left, eps_right, eps_vir
            The orbital energies of these rows, [m] and [n], and of the virtual orbitals.
        """
        ...

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """The bytes that `block` allocates, which are at least those of `triangle` with m or n rows."""
        ...

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
    ) -> PairEnergies:
        """Compute the energies of all pairs of an alpha and a beta orbital, sum_ab (ia|jb)^2 / D.

        Parameters
        ----------
        left, right
            B of alpha orbitals [m, nvir_alpha, naux] and of beta orbitals [n, nvir_beta, naux].
        eps_occ, eps_vir
            Energies of the occupied orbitals ([m], [n]) and of the virtual orbitals of both spins.

        Returns
        -------
        PairEnergies
            ``os`` [m, n], not triangular; ``ss`` is zero. Equal arguments give equal bits for any number of threads.
        """
        ...

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        """Bytes that `opposite_spin` allocates in addition to its arguments."""
        ...
