"""The MP2 energy of the caller's own factors.

B, orbital energies -> checked_factors -> run_pairs -> MP2Result
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.host.memory import memory_limit
from trnqc.host.threads import thread_count
from trnqc.mp2.assembly import assemble, sizes_of
from trnqc.mp2.checkpoint import Checkpoint, job_of_factors
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.factors import Factors, SpinFactors, checked_factors
from trnqc.mp2.pairs.pairs import run_pairs, warn
from trnqc.mp2.result import SCS, SOS, MP2Result, check_scaling
from trnqc.mp2.store import JobStore


def mp2_energy(
    B: Any,
    eps_occ: Any,
    eps_vir: Any,
    precision: str | None = "fp64",
    backend: str = "auto",
    *,
    fused: bool = True,
    threads: int | None = None,
    max_memory: float | None = None,
    scs: tuple[float, float] = SCS,
    sos: float = SOS,
    progress: Callable[[int, int], None] | None = None,
    checkpoint: str | Path | None = None,
) -> MP2Result:
    """Compute the MP2 correlation energy from factors of (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q].

    Parameters
    ----------
    B
        [nocc, nvir, naux] in Hartree^1/2, float64 or float32: a NumPy array, a PyTorch tensor, a memory map or an HDF5
        dataset. For an open shell, a tuple of these for alpha and beta spin, with the same auxiliary functions.
    eps_occ, eps_vir
        Orbital energies [nocc] and [nvir], Hartree; for an open shell a tuple for alpha and beta spin.
    threads
        Number of threads; by default OMP_NUM_THREADS, else the number of CPUs that this process may use.
    max_memory
        MB (10^6 bytes) for B, if it is in memory, and for everything that is allocated here; None for no limit.
    progress
        Called as progress(done_pairs, total_pairs).
    checkpoint
        A directory in which the energies of finished pairs are kept.
    precision, backend, fused, scs, sos
        As in `DFMP2`.

    Returns
    -------
    MP2Result
        The result. Its Hartree-Fock energy and its description of the molecule are None.

    Raises
    ------
    InputError
        If an array has the wrong shape or dtype, or a number is not finite.
    MemoryLimit, BackendUnavailable, UnsupportedPrecision, CheckpointError, StorageError
        As in `DFMP2`.

    Examples
    --------
    >>> import numpy as np, trnqc
    >>> result = trnqc.mp2_energy(np.ones((1, 1, 1)), [-0.5], [0.5])
    >>> result.e_corr                       # (ia|ia)^2 / (2 eps_i - 2 eps_a) = 1 / -2
    -0.5
    """
    execution = Execution(
        choose(backend, precision),
        threads=thread_count(threads),
        memory=memory_limit(max_memory),
        fused=fused,
        progress=progress and (lambda stage, done, total: progress(done, total)),
    )
    check_scaling(scs, sos)
    start = time.perf_counter()
    factors = _checked(B, eps_occ, eps_vir)
    checked = time.perf_counter() - start
    with _store_of_pairs(checkpoint, factors, execution) as store:
        step = run_pairs(factors, execution, store)
    warn(step.warnings)
    timings = {"checks": checked} | step.timings
    return assemble(step, factors, sizes=sizes_of(factors), timings=timings, scs=scs, sos=sos, warnings=step.warnings)


def _checked(B: Any, eps_occ: Any, eps_vir: Any) -> Factors | SpinFactors:
    """The factors of a closed shell, or of both spins if B is a tuple or a list of two arrays."""
    if not (isinstance(B, tuple | list) and len(B) == 2 and all(np.ndim(part) == 3 for part in B)):
        return checked_factors(B, eps_occ, eps_vir)
    if len(eps_occ) != 2 or len(eps_vir) != 2:
        raise InputError("B of two spins needs the orbital energies of two spins: eps_occ and eps_vir are not pairs")
    alpha, beta = (checked_factors(*spin) for spin in zip(B, eps_occ, eps_vir))
    if alpha.shape[2] != beta.shape[2]:
        raise InputError(f"B of two spins must have the same naux, got {alpha.shape[2]} and {beta.shape[2]}")
    return SpinFactors(alpha, beta)


def _store_of_pairs(
    directory: str | Path | None, factors: Factors | SpinFactors, execution: Execution
) -> AbstractContextManager[JobStore | None]:
    return nullcontext() if directory is None else Checkpoint(directory, job_of_factors(factors, execution))
