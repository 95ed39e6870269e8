"""The pair step: pair energies from factors on the chosen backend, with an estimate of their error.

factors, execution -> all at once | block by block | on ranks -> finite? -> estimate_error -> PairResult
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.errors import CheckpointError, TrnqcError
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors, SpinFactors, by_spin
from trnqc.mp2.pairs.accuracy import ErrorEstimate, estimate_error, require_promise
from trnqc.mp2.pairs.block_energies import widest
from trnqc.mp2.pairs.block_loop import pairs_by_blocks
from trnqc.mp2.pairs.denominators import denominator_warnings
from trnqc.mp2.pairs.ranks import exact_on_ranks, pairs_on_ranks
from trnqc.mp2.pairs.sectors import PairSector, joined, sectors_of
from trnqc.mp2.partition.distribution import set_width
from trnqc.mp2.store import JobStore
from trnqc.types import PairEnergies, SpinPairEnergies

# Estimated error in Hartree above which a result has a warning. Programs agree to 1e-6, and the estimate can be four
# times the error (`accuracy.SAMPLE`).
WORTH_A_WARNING = 4e-6


class ResultWarning(UserWarning):
    """A doubt about a result, which ``MP2Result.warnings`` also contains."""


@dataclass(frozen=True, eq=False)
class PairResult:
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
    energies: PairEnergies | SpinPairEnergies
    error: ErrorEstimate
    timings: dict[str, float]
    warnings: tuple[str, ...]

    @property
    def e_os(self) -> float:
        """Opposite-spin energy, Hartree."""
        return self.energies.e_os

    @property
    def e_ss(self) -> float:
        """Same-spin energy, Hartree."""
        return self.energies.e_ss


def run_pairs(factors: Factors | SpinFactors, execution: Execution, store: JobStore | None = None) -> PairResult:
    """Compute the pair energies of checked factors.

    All pairs of a spin case are computed at once if B is in memory and the backend's copy of it fits too, else block by
    block. Several ranks divide the pairs among them. The rows are either spread over the ranks or read from disk by all
    of them.

    Parameters
    ----------
    factors
        The factors of a closed shell, or of both spins.
    execution
        Backend, precision, threads, memory limit and ranks.
    store
        Records of finished blocks, which are not computed again.

    Raises
    ------
    TrnqcError
        If an energy is not finite.
    PrecisionError
        If the estimated error exceeds what the precision promises.
    MemoryLimit, CheckpointError, StorageError, CommunicationError
    """
    ranks, precision, sectors = execution.ranks, execution.choice.precision, sectors_of(factors)
    start = time.perf_counter()
    parts = [_pair_energies(sector, factors, execution, store) for sector in sectors]
    middle = time.perf_counter()
    doubts = denominator_warnings(sectors)
    for part in parts:
        if not (np.isfinite(part.os).all() and np.isfinite(part.ss).all()):
            raise TrnqcError(
                f"{part.ran_on} returned pair energies that are not finite at precision {precision}: "
                + ("; ".join(doubts) or "a product overflows")
            )
    error = estimate_error(parts, sectors, exact_on_ranks(sectors, ranks) if ranks.size > 1 else None)
    timings = {"pairs": middle - start, "error estimate": time.perf_counter() - middle}
    energies = joined(factors, sectors, parts)
    require_promise(error, energies.e_os + energies.e_ss, precision, energies.ran_on)
    warnings_ = (*doubts, *_precision_warnings(execution, error))
    return PairResult(execution, energies, error, timings, warnings_)


def pair_step_bytes(spins: Sequence[tuple[int, int]], naux: int, execution: Execution) -> int:
    """Smallest number of bytes that the pair step needs in addition to B; `spins` are (nocc, nvir) of each spin."""
    several = execution.ranks.size > 1
    with_pairs = [(m, a) for m, a in spins if m and a]
    widths = [set_width(m, a, naux) if several else 1 for m, a in with_pairs]
    step = execution.pair_step()
    needed = [step.block_bytes(w, w, a, naux) for w, (_, a) in zip(widths, with_pairs)]
    if len(with_pairs) == 2:
        w, (nvir_alpha, nvir_beta) = min(widths), (a for _, a in with_pairs)
        needed.append(step.opposite_spin_bytes(w, w, (nvir_alpha, nvir_beta), naux))
    return max(needed, default=0)


def warn(messages: tuple[str, ...]) -> None:
    """Issue each message as a ResultWarning that points to the caller of the public function."""
    for message in messages:
        warnings.warn(message, ResultWarning, stacklevel=3)


def _pair_energies(
    sector: PairSector, factors: Factors | SpinFactors, execution: Execution, store: JobStore | None
) -> PairEnergies:
    in_memory = sum(part.bytes_in_memory for part in by_spin(factors))
    if execution.ranks.size > 1:
        return pairs_on_ranks(sector, execution, lambda: _width(sector, execution, store, in_memory), store)
    if store is None and in_memory and in_memory + _bytes_at_once(sector, execution) <= execution.memory:
        return _at_once(sector, execution, in_memory)
    return pairs_by_blocks(sector, execution, _width(sector, execution, store, in_memory), store)


def _bytes_at_once(sector: PairSector, execution: Execution) -> int:
    m, n = sector.shape
    if sector.right is None:
        return execution.pair_step().block_bytes(m, 1, sector.nvir[0], sector.naux)
    return execution.pair_step().opposite_spin_bytes(m, n, sector.nvir, sector.naux)


def _at_once(sector: PairSector, execution: Execution, in_memory: int) -> PairEnergies:
    left, right = sector.left, sector.sides[-1]

    def progress(done: int, total: int) -> None:
        execution.report("pairs", done, total)

    step = execution.pair_step(progress)
    with np.errstate(all="ignore"):  # `run_pairs` reports energies that are not finite.
        if sector.right is not None:
            energies = (left.eps_occ, right.eps_occ), (left.eps_vir, right.eps_vir)
            return step.opposite_spin(left.B, right.B, *energies)
        others = in_memory - left.bytes_in_memory
        limit = execution.memory - others if np.isfinite(execution.memory) else None
        return step.triangle(left.B, left.eps_occ, left.eps_vir, limit)


def _width(sector: PairSector, execution: Execution, store: JobStore | None, in_memory: int) -> int:
    """Number of orbitals in a set: the number of an interrupted run, or the largest that memory and ranks allow."""
    fits = widest(sector, execution, in_memory)
    wanted = min(fits, sector.rank_width) if execution.ranks.size > 1 else fits
    width = wanted if store is None else store.decide(f"orbitals a set {sector.name}".rstrip(), lambda: wanted)
    if width > fits:
        raise CheckpointError(
            f"the interrupted run had blocks of {width} orbitals, but the memory limit now allows {fits}: use the "
            "earlier limit"
        )
    return width


def _precision_warnings(execution: Execution, error: ErrorEstimate) -> list[str]:
    messages, precision = [], execution.choice.precision
    if precision == "bf16":
        messages.append(
            "bf16 keeps 8 bits of B and has errors of up to 1e-3 Hartree, so that it is for screening only; those of "
            "bf16x3 are below 1e-6"
        )
    if error.corr > WORTH_A_WARNING:
        messages.append(f"the estimated error of precision {precision} is {error.corr:.1e} Hartree")
    return messages
