"""The pair step: factors to pair energies on the chosen backend, with the error of its precision measured.

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
from trnqc.mp2.jobs.checkpoint import Store
from trnqc.mp2.pairs.accuracy import ErrorEstimate, estimate_error
from trnqc.mp2.pairs.block_loop import pairs_by_blocks
from trnqc.mp2.pairs.blocks import widest
from trnqc.mp2.pairs.distribution import set_width
from trnqc.mp2.pairs.ranks import exact_on_ranks, pairs_on_ranks
from trnqc.types import PairEnergies

# Estimated error in Hartree above which a result warns: programs agree to 1e-6, and the estimate is an upper one.
WORTH_A_WARNING = 4e-6


class ResultWarning(UserWarning):
    """Something about a result that its user has to know; it also stands in ``MP2Result.warnings``."""


@dataclass(frozen=True, eq=False)
class PairStep:
    """What came out of a pair step, and how it was run; seconds of wall time by stage."""

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

    All pairs at once where B is in memory and the backend's copy of it fits too, else block by block. Several ranks
    share the pairs of rows that are spread over them, or that all of them read from disk.

    Parameters
    ----------
    store
        Where finished blocks are recorded and taken from.

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
    return PairStep(execution, energies, error, timings, tuple(_warnings(factors, precision, error)))


def pair_step_bytes(nocc: int, nvir: int, naux: int, execution: Execution) -> int:
    """Bytes that the pair step needs beside B[nocc, nvir, naux] at least."""
    width = set_width(nocc, nvir, naux) if execution.ranks.size > 1 else 1
    return execution.pair_bytes(width, width, nvir, naux)


def warn(messages: tuple[str, ...]) -> None:
    """Issue each message as a ResultWarning of the code that called the public function."""
    for message in messages:
        warnings.warn(message, ResultWarning, stacklevel=3)


def _pair_energies(factors: Factors, execution: Execution, store: Store | None) -> PairEnergies:
    if execution.ranks.size > 1:
        return pairs_on_ranks(factors, execution, lambda: _width(factors, execution, store), store)
    if store is None and _fits_at_once(factors, execution):
        with np.errstate(all="ignore"):  # `run_pairs` looks for energies that are not finite.
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
    """Orbitals in a set: as many as fit the memory and the number of ranks, or those of the run that is taken up."""
    fits = widest(factors, execution)
    wanted = min(fits, set_width(*factors.shape)) if execution.ranks.size > 1 else fits
    width = wanted if store is None else store.decide("orbitals a set", lambda: wanted)
    if width > fits:
        raise CheckpointError(
            f"the blocks of the run that is to be taken up again have {width} orbitals a set, the memory limit now "
            f"allows {fits}: set the limit as it was"
        )
    return width


def _warnings(factors: Factors, precision: str, error: ErrorEstimate) -> list[str]:
    messages = []
    gap = factors.eps_vir.min() - factors.eps_occ.max()
    if gap <= 0:
        messages.append(
            f"the lowest virtual energy lies {-gap:.3g} Hartree below the highest occupied one: "
            "MP2 is not meaningful for this reference"
        )
    if precision == "bf16":
        messages.append(
            "bf16 keeps 8 bits of B, good for screening only: errors up to 1e-3 Hartree; bf16x3 is within 1e-6"
        )
    if error.corr > WORTH_A_WARNING:
        messages.append(f"the estimated error of precision {precision} is {error.corr:.1e} Hartree")
    return messages
