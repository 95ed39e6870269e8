"""J and K on the backend that is asked for."""

from __future__ import annotations

import numpy as np
from pyscf import gto

from trnqc.backends import program_backend
from trnqc.eri.jk.builder import CUTOFF, JKBuilder, Matrices
from trnqc.ranks import ALONE, Ranks


def get_jk(
    mol: gto.Mole,
    dm: np.ndarray,
    hermi: int = 1,
    with_j: bool = True,
    with_k: bool = True,
    omega: float | None = None,
    backend: str = "auto",
    cutoff: float = CUTOFF,
    threads: int | None = None,
    ranks: Ranks = ALONE,
    schedule: str = "dynamic",
) -> Matrices:
    """Compute J and K of density matrices, as PySCF's `scf.hf.get_jk` does.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    dm : array_like [..., nao, nao]
        Density matrices, real or complex, with or without symmetry.
    hermi : int
        0 for K itself. 1 for a symmetric and 2 for an antisymmetric matrix with the lower triangle of K; that is K
        itself if `dm` has the same symmetry. J does not depend on `hermi`, nor does K of complex densities.
    with_j, with_k : bool
        What is wanted.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    backend : str
        "cpu", "cuda" or "auto", which is the CPU.
    cutoff : float
        Products of an integral and a density element below this are left out.
    threads : int, optional
        Threads of the CPU, by default PySCF's `lib.num_threads()`. An error for GPUs.
    ranks : Ranks
        Processes of one job, all of which call this function with the same arguments and get the whole J and K.
    schedule : str
        How ranks share the work, see `trnqc.ranks.dealt`.

    Returns
    -------
    vj, vk : ndarray [..., nao, nao] or None
        J_ij = sum_kl (ij|kl) D_lk and K_il = sum_jk (ij|kl) D_jk in Hartree; None for what is not wanted. On the CPU
        the bits depend on neither the ranks nor the threads.

    Raises
    ------
    InputError
        For arrays that cannot be densities of this molecule.
    MemoryLimit
        If J and K of one density do not fit into `mol.max_memory`.
    BackendUnavailable, CompilerError, CommunicationError
        If J and K cannot be computed.
    """
    jk = builder(backend)(mol, omega=omega, cutoff=cutoff, threads=threads, ranks=ranks, schedule=schedule)
    return jk.get_jk(dm, hermi, with_j, with_k)


def builder(backend: str = "auto") -> type[JKBuilder]:
    """Return the class that computes J and K on a backend; "auto" is the CPU."""
    if program_backend(backend) == "cpu":
        return JKBuilder
    from trnqc.eri.cuda.builder import CudaJKBuilder as OnDevices  # Few jobs need it.

    return OnDevices
