"""The interface of backends.

The folders of the backends, ``cpu``, ``simulator``, ``neuron`` and ``cuda``, contain the same files:

    backend.py   the class: its name, its precisions, and whether it can run on this machine
    device.py    its devices, to which programs are sent; the CPU has none, and those of ``cuda`` are `trnqc.jit.device`
    pairs.py     the MP2 pair step; ``nki`` has it for both backends of NKI kernels

A method that a backend does not define raises an error that says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trnqc.arrays import host_array
from trnqc.backends.blas import BackendBlas
from trnqc.backends.fitted_jk import FittedJK
from trnqc.backends.gamma import AddRows, FactorSet, GammaOptions
from trnqc.backends.pair_step import PairOptions, PairStep, Progress
from trnqc.errors import InputError, UnsupportedError, UnsupportedPrecision


@dataclass(frozen=True)
class BackendStatus:
    """Whether a backend can run on this machine.

    Parameters
    ----------
    usable
        Whether it can run.
    reason
        Why it cannot run, or how it is limited. Empty if it is not limited.
    hint
        What to install or to set.
    versions
        The versions of the software that it uses, by name.
    devices
        The devices on which it computes, in words.
    """

    usable: bool
    reason: str = ""
    hint: str = ""
    versions: Mapping[str, str] = field(default_factory=dict)
    devices: tuple[str, ...] = ()


class Backend:
    """A kind of machine on which the expensive steps can run.

    Callers have validated shapes, dtypes and values of arrays. This class checks the precision and calls the methods
    whose names begin with an underscore, which each backend defines.

    Attributes
    ----------
    name : str
        The name, as in ``--backend``.
    precisions : tuple of str
        The precisions of matrix products and pair energies, out of `trnqc.types.PRECISIONS`. docs/conventions.md
        defines them.
    gamma_precisions : tuple of str
        The precisions of `mp2_gamma`. It is empty for a backend that does not have it.
    fitted_precisions : tuple of str
        The precisions of `fitted_jk`. It is empty for a backend that does not have it.
    """

    name: str
    precisions: tuple[str, ...] = ()
    gamma_precisions: tuple[str, ...] = ()
    fitted_precisions: tuple[str, ...] = ()

    def status(self) -> BackendStatus:
        """Whether the backend can run here, and on what. It never raises an error."""
        raise self._without("status")

    def devices(self) -> tuple[Any, ...]:
        """Return the devices of this machine, to which compiled programs are sent.

        Raises
        ------
        BackendUnavailable
            If no device can be used.
        UnsupportedError
            If the programs of the backend are functions of this process.
        """
        raise self._without("devices")

    def require_accuracy(self, precision: str) -> None:
        """Refuse a precision whose promised accuracy the device does not reach. Most backends need not measure it.

        Raises
        ------
        UnsupportedPrecision
            If the error that was measured on the device exceeds the promised one.
        """

    def accuracies(self) -> tuple[str, ...]:
        """The measured error of each precision in words, or why it cannot be measured; empty without measurements."""
        return ()

    def gemm(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """The product a_t.T @ b of a_t[K, M] and b[K, N], [M, N], in fp64 for the precision fp64, else in fp32."""
        check_precision(self, precision)
        return self._product(*product_operands(a_t, b, stacked=False), precision)

    def batched_contraction(self, a_t: np.ndarray, b: np.ndarray, *, precision: str) -> np.ndarray:
        """The products a_t[z].T @ b[z], [Z, M, N], of a_t[Z, K, M] and b[Z, K, N]; for the dtype see `gemm`."""
        check_precision(self, precision)
        return self._product(*product_operands(a_t, b, stacked=True), precision)

    def blas(self, precision: str) -> BackendBlas:
        """The dense linear algebra of `trnqc.blas` in a precision, which must be one of `precisions`."""
        check_precision(self, precision)
        return self._blas(precision)

    def pair_step(
        self, precision: str, fused: bool = True, threads: int | None = None, progress: Progress | None = None
    ) -> PairStep:
        """The MP2 pair step with these options, see `trnqc.backends.pair_step.PairOptions`.

        Raises
        ------
        UnsupportedPrecision
            If the backend does not have the precision.
        """
        check_precision(self, precision)
        return self._pair_step(PairOptions(precision, fused, threads, progress))

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
            One of `gamma_precisions`, for the products and for the amplitudes. Sums over blocks of orbitals are fp64.
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
            From a backend whose `gamma_precisions` are empty.
        MemoryLimit
            If `max_memory` is too little for one pair of orbitals.

        Notes
        -----
        With t_ij^ab = (ia|jb) / (ε_i + ε_j - ε_a - ε_b),

            Γ[i, a, Q] = Σ_jb (direct t_ij^ab - exchange t_ij^ba) B[j, b, Q]

        For two sets the right one gets the corresponding sum over i and a. The sum of Γ B over all elements of one set
        is the energy with these weights: direct Σ (ia|jb) t_ij^ab - exchange Σ (ib|ja) t_ij^ab.
        """
        if not self.gamma_precisions:
            raise self._without("mp2_gamma")
        check_precision(self, precision)
        if precision not in self.gamma_precisions:
            names = ", ".join(self.gamma_precisions)
            raise UnsupportedPrecision(f"backend {self.name!r} computes Γ in {names}; found precision {precision!r}")
        if right is not None and exchange != 0.0:
            raise InputError(f"pairs of electrons of two spins have no exchange; found the weight {exchange}")
        return self._gamma(left, right, GammaOptions(direct, exchange, precision, max_memory, progress), add)

    def fitted_jk(self, rows: np.ndarray, *, precision: str, max_memory: float | None = None) -> FittedJK:
        """Copy fitted integrals to the device, for J and K of many densities.

        Parameters
        ----------
        rows
            B of (ij|kl) = Σ_Q B[Q, ij] B[Q, kl], packed pairs i >= j, float64 [naux, nao (nao + 1) / 2].
        precision
            One of `fitted_precisions`.
        max_memory
            Bytes that this call may allocate on the host.

        Raises
        ------
        InputError
            If an integral is not finite.
        UnsupportedPrecision
            For another precision.
        UnsupportedError
            From a backend whose `fitted_precisions` are empty, and for more functions than its kernels can take.
        MemoryLimit
            If `max_memory` is too little.
        """
        if not self.fitted_precisions:
            raise self._without("fitted_jk")
        check_precision(self, precision)
        if precision not in self.fitted_precisions:
            names = ", ".join(self.fitted_precisions)
            raise UnsupportedPrecision(f"backend {self.name!r} computes J and K in {names}; found {precision!r}")
        return self._fitted_jk(rows, precision, max_memory)

    def _product(self, a_t: np.ndarray, b: np.ndarray, precision: str) -> np.ndarray:
        """The product a_t.T @ b, [M, N], of a_t[K, M] and b[K, N], or a stack of such products."""
        raise self._without("_product")

    def _blas(self, precision: str) -> BackendBlas:
        raise self._without("_blas")

    def _pair_step(self, options: PairOptions) -> PairStep:
        raise self._without("_pair_step")

    def _gamma(self, left: FactorSet, right: FactorSet | None, options: GammaOptions, add: AddRows) -> str:
        raise self._without("_gamma")

    def _fitted_jk(self, rows: np.ndarray, precision: str, max_memory: float | None) -> FittedJK:
        raise self._without("_fitted_jk")

    def _without(self, what: str) -> UnsupportedError:
        return UnsupportedError(f"backend {self.name!r} has no {what}")


@dataclass(frozen=True)
class Selection:
    """The backend of a job, and a note that says in words why it was chosen."""

    backend: Backend
    note: str


def product_operands(a_t: Any, b: Any, stacked: bool) -> tuple[np.ndarray, np.ndarray]:
    """Convert the operands of a matrix product to NumPy arrays, and check them.

    Parameters
    ----------
    a_t, b
        The operands of `Backend.gemm` or `Backend.batched_contraction`.
    stacked
        Whether they are those of `Backend.batched_contraction`.

    Returns
    -------
    tuple of ndarray
        The operands.

    Raises
    ------
    InputError
        If they are not real arrays, or if their shapes do not fit.
    """
    advice = "backends take NumPy arrays; take .detach()"
    left, right = host_array(a_t, "a_t", advice), host_array(b, "b", advice)
    for name, x in (("a_t", left), ("b", right)):
        if x.dtype.kind not in "fiu" and x.dtype.name != "bfloat16":
            raise InputError(f"backends multiply real numbers; {name} holds {x.dtype}")
    rank = 3 if stacked else 2
    if left.ndim != rank or right.ndim != rank or left.shape[:-1] != right.shape[:-1]:
        expected = "a_t[Z, K, M] and b[Z, K, N]" if stacked else "a_t[K, M] and b[K, N]"
        raise InputError(f"a product takes {expected}; found shapes {left.shape} and {right.shape}")
    return left, right


def check_precision(backend: Backend, precision: str) -> None:
    """Raise UnsupportedPrecision if a backend does not have a precision, or if its device does not keep its promise.

    The message lists the precisions that the backend has, or gives the measured and the promised error.
    """
    if precision in backend.precisions:
        backend.require_accuracy(precision)
        return
    raise UnsupportedPrecision(
        f"backend {backend.name!r} computes in {', '.join(backend.precisions)}; precision {precision!r} was asked for"
    )
