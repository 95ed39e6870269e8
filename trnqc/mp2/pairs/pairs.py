"""The pair step: factors checked, sent to a backend, and the error of its precision measured."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h5py
import numpy as np

from trnqc.arrays import host_array
from trnqc.errors import CheckpointError, InputError, TrnqcError
from trnqc.mp2.jobs.checkpoint import Store
from trnqc.mp2.jobs.choice import Choice
from trnqc.mp2.pairs.accuracy import ErrorEstimate, estimate_error
from trnqc.mp2.pairs.blocks import widest
from trnqc.mp2.pairs.distribution import set_width
from trnqc.mp2.pairs.loop import pairs_by_blocks
from trnqc.mp2.pairs.ranks import exact_on_ranks, pairs_on_ranks
from trnqc.ranks.groups import ALONE, Ranks
from trnqc.types import PairEnergies

WORTH_A_WARNING = 4e-6
"""Estimated error in Hartree above which a result warns: programs agree to 1e-6, the estimate is on the safe side."""


class ResultWarning(UserWarning):
    """Something about a result that its user has to know; it also stands in ``MP2Result.warnings``."""


@dataclass(frozen=True, eq=False)
class PairStep:
    """What came out of one pair step; seconds of wall time by stage."""

    choice: Choice
    fused: bool
    energies: PairEnergies
    error: ErrorEstimate
    timings: dict[str, float]
    warnings: tuple[str, ...]


def run_pairs(
    B: Any,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    choice: Choice,
    *,
    fused: bool = True,
    threads: int | None = None,
    max_memory: float | None = None,
    progress: Callable[[int, int], None] | None = None,
    store: Store | None = None,
    ranks: Ranks = ALONE,
    schedule: str = "dynamic",
) -> PairStep:
    """Pair energies of checked arrays on the chosen backend; max_memory in MB (10^6 bytes), with B if it is in memory.

    All at once where B is in memory and the backend's copy of it fits too, else block by block. store: where finished
    blocks are recorded and found again. ranks: several share the pairs of rows that are spread over them, or that all
    of them read from disk (rank_pairs.py). Raises MemoryLimit, StorageError, CommunicationError.
    """
    check_threads(threads)
    if max_memory is not None and not isinstance(max_memory, int | float | np.number):
        raise InputError(f"max_memory is a number of MB (10^6 bytes), or None for no limit; found {max_memory!r}")
    told = list(_gap_warning(eps_occ, eps_vir)) + list(_precision_warning(choice.precision))
    start = time.perf_counter()
    limit = None if max_memory is None else 1e6 * max_memory
    exact = None
    if ranks.size > 1:
        energies = pairs_on_ranks(
            B, eps_occ, eps_vir, choice, ranks, fused=fused, threads=threads, schedule=schedule, store=store,
            width_of=lambda: _width(B, choice, fused, threads, limit, store, most=set_width(*B.shape)),
            progress=progress,
        )  # fmt: skip
        exact = exact_on_ranks(B, eps_occ, eps_vir, ranks)
    elif store is None and _all_at_once(B, choice, fused, threads, limit):
        with np.errstate(all="ignore"):  # what is not finite is found and named below
            energies = choice.backend.mp2_pairs(
                B, eps_occ, eps_vir, precision=choice.precision, fused=fused, threads=threads, max_memory=limit,
                progress=progress,
            )  # fmt: skip
    else:
        width = _width(B, choice, fused, threads, limit, store)
        energies = pairs_by_blocks(
            B, eps_occ, eps_vir, choice, width, fused=fused, threads=threads, store=store, progress=progress
        )
    middle = time.perf_counter()
    if not (np.isfinite(energies.os).all() and np.isfinite(energies.ss).all()):
        raise TrnqcError(
            f"{energies.ran_on} returned pair energies that are not finite at precision {choice.precision}: "
            "an orbital-energy denominator vanishes or a product overflows"
        )
    error = estimate_error(energies, B, eps_occ, eps_vir, exact)
    timings = {"pairs": middle - start, "error estimate": time.perf_counter() - middle}
    if error.corr > WORTH_A_WARNING:
        told.append(f"the estimated error of precision {choice.precision} is {error.corr:.1e} Hartree")
    return PairStep(choice, fused, energies, error, timings, tuple(told))


def _all_at_once(B: Any, choice: Choice, fused: bool, threads: int | None, limit: float | None) -> bool:
    nocc, nvir, naux = B.shape
    if not _in_memory(B):
        return False
    made = choice.backend.pair_block_bytes(
        nocc, 1, nvir, naux, precision=choice.precision, fused=fused, threads=threads
    )
    return limit is None or B.nbytes + made <= limit


def _width(
    B: Any,
    choice: Choice,
    fused: bool,
    threads: int | None,
    limit: float | None,
    store: Store | None,
    most: int | None = None,
) -> int:
    """Orbitals a set: as many as fit, `most` at most, or those of the run that is taken up again."""
    held = B.nbytes if _in_memory(B) else None
    fits = widest(B.shape, choice, fused=fused, threads=threads, limit=limit, B=held)
    wanted = min(fits, most or fits)
    width = wanted if store is None else store.decide("orbitals a set", lambda: wanted)
    if width > fits:
        raise CheckpointError(
            f"the blocks of the run that is to be taken up again have {width} orbitals a set, the memory limit now "
            f"allows {fits}: set the limit as it was"
        )
    return width


def _in_memory(B: Any) -> bool:
    return isinstance(B, np.ndarray) and not isinstance(B, np.memmap)


def _stays_on_disk(B: Any) -> bool:
    return isinstance(B, h5py.Dataset) or (isinstance(B, np.memmap) and bool(B.flags.c_contiguous))


def check_threads(threads: int | None) -> None:
    """A positive number, or None for what the machine has."""
    if threads is not None and not (isinstance(threads, int | np.integer) and threads >= 1):
        raise InputError(f"threads must be a positive number, or None for all, got {threads}")


def check_factors(B: Any, eps_occ: Any, eps_vir: Any) -> tuple[Any, np.ndarray, np.ndarray]:
    """Arrays or tensors -> float64 arrays of agreeing shapes without NaN, or an InputError that names the culprit.

    B [nocc, nvir, naux] is copied only where its dtype or layout differs; an HDF5 dataset or memory map stays on disk.
    """
    eps_occ, eps_vir = _real_array("eps_occ", eps_occ, 1), _real_array("eps_vir", eps_vir, 1)
    if not (_stays_on_disk(B) and B.dtype == np.float64 and B.ndim == 3):
        B = _real_array("B", B, 3)
    if 0 in B.shape:
        raise InputError(f"B[nocc, nvir, naux] must have at least one of each, got shape {B.shape}")
    if B.shape[:2] != (len(eps_occ), len(eps_vir)):
        raise InputError(
            f"B[nocc, nvir, naux] has shape {tuple(B.shape)}, but there are {len(eps_occ)} occupied and "
            f"{len(eps_vir)} virtual energies"
        )
    for name, values in (("eps_occ", eps_occ), ("eps_vir", eps_vir)):
        _check_finite(name, values)
    for i in range(len(eps_occ)):
        _check_finite(f"B[{i}]", np.asarray(B[i]))
    return B, eps_occ, eps_vir


def _real_array(name: str, values: Any, ndim: int) -> np.ndarray:
    try:
        array = host_array(values, name, "an MP2Result holds numbers; take .detach()")
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must be an array of real numbers: {error}") from None
    if array.dtype.newbyteorder("=") not in (np.float64, np.float32):
        raise InputError(f"{name} must hold float64 or float32 numbers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    return np.asarray(array, dtype=np.float64, order="C")


def _check_finite(name: str, values: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f"{name} must be finite, found {values[tuple(bad[0])]} at index {bad[0].tolist()} "
            f"({len(bad)} such numbers in all)"
        )


def _gap_warning(eps_occ: np.ndarray, eps_vir: np.ndarray) -> tuple[str, ...]:
    gap = eps_vir.min() - eps_occ.max()
    if gap > 0:
        return ()
    return (
        f"the lowest virtual energy lies {-gap:.3g} Hartree below the highest occupied one: "
        "MP2 is not meaningful for this reference",
    )


def _precision_warning(precision: str) -> tuple[str, ...]:
    if precision != "bf16":
        return ()
    return ("bf16 keeps 8 bits of B, good for screening only: errors up to 1e-3 Hartree; bf16x3 is within 1e-6",)


def warn(messages: tuple[str, ...]) -> None:
    """Say each message as a ResultWarning, attributed to the caller of the public function."""
    for message in messages:
        warnings.warn(message, ResultWarning, stacklevel=3)
