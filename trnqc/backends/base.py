"""What every backend offers, and how one says that it cannot do something.

A backend is a folder, ``cpu``, ``simulator``, ``neuron`` or ``cuda``, with the same files in each:

    backend.py   the class, with its name and precisions
    status.py    whether it can run on this machine, and what it runs on
    device.py    its devices, to which programs are sent; the CPU has none, and those of ``cuda`` are `trnqc.jit.device`
    pairs.py     the MP2 pair step; in ``nki`` for both backends of NKI kernels; ``cuda`` has none

`Backend` here refuses what a backend does not have.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trnqc.arrays import host_array
from trnqc.errors import InputError, UnsupportedError, UnsupportedPrecision
from trnqc.types import PairEnergies

Progress = Callable[[int, int], None]


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run on this machine.

    Parameters
    ----------
    usable
        Whether it can.
    reason
        Why not, or what is limited; empty when there is nothing to say.
    hint
        What to install or set.
    versions
        The software that it uses.
    devices
        What it computes on, in words.
    """

    usable: bool
    reason: str = ""
    hint: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


@dataclass(frozen=True)
class PairOptions:
    """How a pair step runs; the options of `Backend.mp2_pairs` of these names."""

    precision: str
    fused: bool = True
    threads: int | None = None
    progress: Progress | None = None


class PairStep(Protocol):
    """The MP2 pair step of a backend with its options."""

    def triangle(self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None) -> PairEnergies:
        """See `Backend.mp2_pairs`."""
        ...

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        """See `Backend.mp2_pair_block`."""
        ...

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """See `Backend.pair_block_bytes`."""
        ...


class FactorSet(Protocol):
    """Orbitals of one spin: factors B[nocc, nvir, naux] in memory or on disk, and orbital energies in Hartree."""

    @property
    def B(self) -> Any: ...

    @property
    def eps_occ(self) -> np.ndarray: ...

    @property
    def eps_vir(self) -> np.ndarray: ...


AddRows = Callable[[int, slice, np.ndarray], None]
"""Takes a part of Γ as add(side, rows, values): side 0 is the left set, 1 the right one; values [n, nvir, naux]."""


@dataclass(frozen=True)
class GammaOptions:
    """Which Γ, and how; the options of `Backend.mp2_gamma` of these names."""

    direct: float
    exchange: float
    precision: str
    max_memory: float | None = None
    progress: Progress | None = None


class Backend:
    """A kind of machine on which the expensive steps can run.

    Callers have validated shapes, dtypes and values of arrays. This class checks the precision and calls the methods
    with an underscore, which each backend defines.

    Attributes
    ----------
    name : str
        As in ``--backend``.
    precisions : tuple of str
        Those of `trnqc.types.PRECISIONS` in which it multiplies matrices and computes pair energies; every other raises
        UnsupportedPrecision, and without any it does neither. bf16x3 is the split B = hi + lo with both parts in bf16
        and T = hi.hi + hi.lo + lo.hi accumulated in fp32; bf16 is hi.hi alone.
    has_gamma : bool
        Whether it has `mp2_gamma`.
    """

    name: str
    precisions: tuple[str, ...] = ()
    has_gamma: bool = False

    def status(self) -> BackendStatus:
        """Whether and on what it runs. Never raises."""
        raise self._without("status")

    def devices(self) -> tuple[Any, ...]:
        """Return the devices of this machine, to which compiled programs are sent.

        Raises
        ------
        BackendUnavailable
            If there is none that can be used.
        UnsupportedError
            From a backend whose programs are functions of this process.
        """
        raise self._without("devices")

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """Multiply a_t[K, M] and b[K, N] to a_t.T @ b, [M, N], in fp64 for fp64, else in fp32."""
        check_precision(self, precision)
        return self._product(*product_operands(a_t, b, stacked=False), precision)

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """Multiply a_t[Z, K, M] and b[Z, K, N] to [Z, M, N], in fp64 for fp64, else in fp32."""
        check_precision(self, precision)
        return self._product(*product_operands(a_t, b, stacked=True), precision)

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
        """Compute closed-shell MP2 pair energies from the factors of (ia|jb) = sum_P B[i,a,P] B[j,b,P].

        Parameters
        ----------
        B
            float64 [nocc, nvir, naux] in Hartree^1/2, C-contiguous; also np.memmap, or rows on disk that B[i0:i1] reads
            (an HDF5 dataset).
        eps_occ, eps_vir
            Orbital energies [nocc] and [nvir] in Hartree.
        precision
            One of `precisions`.
        fused
            If False, GEMM and energy expression run one after the other; the numbers agree within the precision.
        threads
            Threads of the host; None for `trnqc.host.threads.default_threads`.
        max_memory
            Bytes for B when it is in memory and for all that this call allocates.
        progress
            Called as progress(done_pairs, total_pairs) in the caller's thread.

        Returns
        -------
        PairEnergies
            Lower triangles of the energies, [nocc, nocc].

        Raises
        ------
        UnsupportedPrecision
            For another precision.
        MemoryLimit
            If `max_memory` is too little; the message gives what is needed and what is allowed.
        CompilerError
            From the CPU's fused step where there is no C compiler.
        """
        check_precision(self, precision)
        step = self._pair_step(PairOptions(precision, fused, threads, progress))
        return step.triangle(B, eps_occ, eps_vir, max_memory)

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
        """Compute the energies of all pairs of an orbital of `left` with one of `right`, none of which is in both.

        With `mp2_pairs` over the diagonal blocks it makes up all pairs for a caller who holds only some rows of B at a
        time.

        Parameters
        ----------
        left, right
            Rows of B, [m, nvir, naux] and [n, nvir, naux].
        eps_left, eps_right
            Their orbital energies, [m] and [n].
        eps_vir, precision, fused, threads, progress
            As in `mp2_pairs`.

        Returns
        -------
        PairEnergies
            [m, n], not triangular. Equal arguments give equal bits for any number of threads; on the CPU they are also
            those of `mp2_pairs`.
        """
        check_precision(self, precision)
        step = self._pair_step(PairOptions(precision, fused, threads, progress))
        return step.block(left, right, eps_left, eps_right, eps_vir)

    def pair_block_bytes(
        self, m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool = True, threads: int | None = None
    ) -> int:
        """Bytes that `mp2_pair_block` allocates beside its arguments; no less than `mp2_pairs` of m or n rows does."""
        check_precision(self, precision)
        return self._pair_step(PairOptions(precision, fused, threads)).block_bytes(m, n, nvir, naux)

    def mp2_gamma(
        self,
        left: FactorSet,
        right: FactorSet | None,
        add: AddRows,
        *,
        direct: float,
        exchange: float,
        precision: str,
        max_memory: float | None = None,
        progress: Progress | None = None,
    ) -> str:
        """Compute the three-index density Γ of MP2 from weighted amplitudes.

        Parameters
        ----------
        left
            Factors of the orbitals i.
        right
            Factors of the orbitals j, which are of the other spin; None for all pairs i, j of the orbitals of `left`.
        add
            Is called with parts of Γ in fp64, which it has to add up: several of them have the same rows.
        direct, exchange
            Weights of the amplitudes; `exchange` must be 0 where `right` is given.
        precision
            One of `precisions`, for the products and for the amplitudes. Sums over blocks of orbitals are fp64.
        max_memory
            Bytes that this call may allocate on the host, besides what `add` does.
        progress
            Called as progress(done_pairs, total_pairs), ordered pairs, in the caller's thread.

        Returns
        -------
        str
            What ran.

        Raises
        ------
        InputError
            If there is an exchange between two spins.
        UnsupportedPrecision
            For another precision.
        UnsupportedError
            From a backend for which `has_gamma` is False.
        MemoryLimit
            If `max_memory` is too little for one pair of orbitals.

        Notes
        -----
        With t_ij^ab = (ia|jb) / (ε_i + ε_j - ε_a - ε_b),

            Γ[i, a, Q] = Σ_jb (direct t_ij^ab - exchange t_ij^ba) B[j, b, Q]

        For two sets the right one gets the corresponding sum over i and a. The sum of Γ B over all elements of one set
        is the energy with these weights: direct Σ (ia|jb) t_ij^ab - exchange Σ (ib|ja) t_ij^ab.
        """
        if not self.has_gamma:
            raise self._without("mp2_gamma")
        check_precision(self, precision)
        if right is not None and exchange != 0.0:
            raise InputError(f"pairs of electrons of two spins have no exchange; found the weight {exchange}")
        return self._gamma(left, right, GammaOptions(direct, exchange, precision, max_memory, progress), add)

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        """a_t[..., K, M], b[..., K, N] -> [..., M, N], for one product or a stack of them."""
        raise self._without("_product")

    def _pair_step(self, options: PairOptions) -> PairStep:
        raise self._without("_pair_step")

    def _gamma(self, left: FactorSet, right: FactorSet | None, options: GammaOptions, add: AddRows) -> str:
        raise self._without("_gamma")

    def _without(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"backend {self.name!r} has no {what}")


@dataclass(frozen=True)
class Selection:
    """The backend chosen for a request, and a note that says why in words."""

    backend: Backend
    note: str


def product_operands(a_t: Any, b: Any, stacked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the operands of `gemm`, or of `batched_contraction` (stacked), as plain real arrays of agreeing shapes.

    Raises
    ------
    InputError
        For anything else.
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
    """Raise UnsupportedPrecision, naming what `backend` has, unless it has `precision`."""
    if precision in backend.precisions:
        return
    if not backend.precisions:
        raise UnsupportedPrecision(
            f"backend {backend.name!r} runs generated programs (integrals, tensor products) only: "
            "it has neither matrix products nor pair energies"
        )
    raise UnsupportedPrecision(
        f"backend {backend.name!r} computes in {', '.join(backend.precisions)}; precision {precision!r} was asked for"
    )
