"""The pair step: pair energies from factors on the chosen backend, with an estimate of their error.

factors, execution -> all at once | block by block | on ranks -> finite? -> estimate_error -> PairStep
"""

from __future__ import annotations

import time
import warnings
from dataclasses import dataclass

import numpy as np

from trnqc.errors import CheckpointError, TrnqcError
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.jobs.store import Store
from trnqc.mp2.pairs.accuracy import ErrorEstimate, estimate_error
from trnqc.mp2.pairs.block_loop import pairs_by_blocks
from trnqc.mp2.pairs.blocks import widest
from trnqc.mp2.pairs.distribution import set_width
from trnqc.mp2.pairs.ranks import exact_on_ranks, pairs_on_ranks
from trnqc.types import PairEnergies

# Estimated error in Hartree above which a result has a warning. Programs agree to 1e-6, and the estimate can be four
# times the error (`accuracy.SAMPLE`).
WORTH_A_WARNING = 4e-6


class ResultWarning(UserWarning):
    """A doubt about a result, which ``MP2Result.warnings`` also contains."""


@dataclass(frozen=True, eq=False)
class PairStep:
    """The pair energies, and how they were computed.

    Attributes
    ----------
    execution
        Backend, precision, threads and ranks.
    energies, error
        The pair energies, and the estimated error of their precision.
    timings
        Wall time in seconds, by stage.
    warnings
        Messages about doubts in the energies.
    """

    execution: Execution
    energies: PairEnergies
    error: ErrorEstimate
    timings: dict[str, float]
    warnings: tuple[str, ...]

    @property
    def e_os(self) -> float:
        """Opposite-spin energy, Hartree."""
        return float(self.energies.os.sum())

    @property
    def e_ss(self) -> float:
        """Same-spin energy, Hartree."""
        return float(self.energies.ss.sum())


def run_pairs(factors: Factors, execution: Execution, store: Store | None = None) -> PairStep:
    """Compute the pair energies of checked factors.

    All pairs are computed at once if B is in memory and the backend's copy of it fits too, else block by block. Several
    ranks divide the pairs among them. The rows are either spread over the ranks or read from disk by all of them.

    Parameters
    ----------
    factors
        The factors.
    execution
        Backend, precision, threads, memory limit and ranks.
    store
        Records of finished blocks, which are not computed again.

    Raises
    ------
    TrnqcError
        If an energy is not finite.
    MemoryLimit, CheckpointError, StorageError, CommunicationError
    """
    ranks, precision = execution.ranks, execution.choice.precision
    start = time.perf_counter()
    energies = _pair_energies(factors, execution, store)
    middle = time.perf_counter()
    if not (np.isfinite(energies.os).all() and np.isfinite(energies.ss).all()):
        raise TrnqcError(
            f"{energies.ran_on} returned pair energies that are not finite at precision {precision}: "
            "an orbital-energy denominator vanishes or a product overflows"
        )
    error = estimate_error(energies, factors, exact_on_ranks(factors, ranks) if ranks.size > 1 else None)
    timings = {"pairs": middle - start, "error estimate": time.perf_counter() - middle}
    return PairStep(execution, energies, error, timings, tuple(_warnings(factors, execution, error)))


def pair_step_bytes(nocc: int, nvir: int, naux: int, execution: Execution) -> int:
    """Smallest number of bytes that the pair step needs in addition to B[nocc, nvir, naux]."""
    width = set_width(nocc, nvir, naux) if execution.ranks.size > 1 else 1
    return execution.pair_bytes(width, width, nvir, naux)


def warn(messages: tuple[str, ...]) -> None:
    """Issue each message as a ResultWarning that points to the caller of the public function."""
    for message in messages:
        warnings.warn(message, ResultWarning, stacklevel=3)


def _pair_energies(factors: Factors, execution: Execution, store: Store | None) -> PairEnergies:
    if execution.ranks.size > 1:
        return pairs_on_ranks(factors, execution, lambda: _width(factors, execution, store), store)
    if store is None and _fits_at_once(factors, execution):
        with np.errstate(all="ignore"):  # `run_pairs` reports energies that are not finite.
            return execution.all_pairs(
                factors.B,
                factors.eps_occ,
                factors.eps_vir,
                max_memory=execution.memory if np.isfinite(execution.memory) else None,
                progress=lambda done, total: execution.report("pairs", done, total),
            )
    return pairs_by_blocks(factors, execution, _width(factors, execution, store), store)


def _fits_at_once(factors: Factors, execution: Execution) -> bool:
    nocc, nvir, naux = factors.shape
    in_memory = factors.bytes_in_memory
    return bool(in_memory) and in_memory + execution.pair_bytes(nocc, 1, nvir, naux) <= execution.memory


def _width(factors: Factors, execution: Execution, store: Store | None) -> int:
    """Number of orbitals in a set: that of an interrupted run, or the largest that memory and `set_width` allow."""
    fits = widest(factors, execution)
    wanted = min(fits, set_width(*factors.shape)) if execution.ranks.size > 1 else fits
    width = wanted if store is None else store.decide("orbitals a set", lambda: wanted)
    if width > fits:
        raise CheckpointError(
            f"the interrupted run had blocks of {width} orbitals, but the memory limit now allows {fits}: use the "
            "earlier limit"
        )
    return width


def _warnings(factors: Factors, execution: Execution, error: ErrorEstimate) -> list[str]:
    messages, precision = [], execution.choice.precision
    gap = factors.eps_vir.min() - factors.eps_occ.max()
    if gap <= 0:
        messages.append(
            f"the lowest virtual energy lies {-gap:.3g} Hartree below the highest occupied one: "
            "MP2 is not meaningful for this reference"
        )
    if precision == "bf16":
        messages.append(
            "bf16 keeps 8 bits of B and has errors of up to 1e-3 Hartree, so that it is for screening only; those of "
            "bf16x3 are below 1e-6"
        )
    if error.corr > WORTH_A_WARNING:
        messages.append(f"the estimated error of precision {precision} is {error.corr:.1e} Hartree")
    return messages
