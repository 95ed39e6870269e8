"""Three-index factors B[i, a, Q] with (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q], in fp64 throughout.

    aux shells -> blocks of P -> (mu nu|P) packed -> (i nu|P) -> (ia|P) into B[:, :, block] -> metric divided out by
    row i

Transform first, then fit: the metric is solved for nocc * nvir right-hand sides instead of nao^2 / 2. Blocks of P,
and then rows i, are tasks for a pool of threads, each with one-thread BLAS and integrals of one thread: no barriers
inside a task. Where there are so many integrals that it shows, they come from our kernels, else from PySCF; fitting
shells of one l then stand together, so that vectors are full.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

import numpy as np
from pyscf import gto, lib

from trnqc.chem.memory import FactorMemory
from trnqc.chem.metric import factorise
from trnqc.eri.integrals import ThreeCentre
from trnqc.eri.library import lanes, words
from trnqc.eri.workers import workers
from trnqc.errors import CompilerError, UnsupportedClass

# Integrals (mu nu|P) from which on kernels are worth compiling: a second or two of PySCF's.
MANY = 1e8

Progress = Callable[[str, int, int], None]
"""Called as progress(stage, done, total) from the calling thread."""


@dataclass(frozen=True, eq=False)
class Factors:
    """B: float64 [nocc, nvir, naux], C-contiguous, Hartree^1/2.

    naux is below the number of auxiliary functions where linearly dependent ones were dropped; ``metric`` says so in
    words.
    timings: wall seconds by stage; the integrals' and the transformation's share of their common pool is by thread
    time. integrals: in words, what made (mu nu|P).
    """

    B: np.ndarray
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    metric: str
    integrals: str
    timings: dict[str, float] = field(default_factory=dict)


def build_factors(
    mol: gto.Mole,
    auxmol: gto.Mole,
    c_occ: np.ndarray,
    c_vir: np.ndarray,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    *,
    max_bytes: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
) -> Factors:
    """Factors for the active orbitals c_occ[nao, nocc], c_vir[nao, nvir] with energies in Hartree.

    max_bytes bounds everything allocated here; MemoryLimit if B, the metric and the smallest buffers do not fit.
    threads: of the machine, default PySCF's (OMP_NUM_THREADS).
    """
    threads = threads or lib.num_threads()
    width = check_memory(auxmol, len(c_occ), c_occ.shape[1], c_vir.shape[1], max_bytes, threads)
    auxmol = by_angular_momentum(auxmol)
    integrals, made_by = _integrals(mol, auxmol)
    multiple = lanes() if isinstance(integrals, ThreeCentre) else 1
    blocks = list(shell_blocks(auxmol.ao_loc_nr(), width, multiple))

    B = np.empty((c_occ.shape[1], c_vir.shape[1], auxmol.nao_nr()))
    task = _BlockTask(integrals, auxmol, c_occ, c_vir, B)
    timings = {}
    with workers(threads) as pool:
        start = time.perf_counter()
        shares = np.sum(_run(pool, task, blocks, "integrals", progress), axis=0)
        wall = time.perf_counter() - start
        timings["integrals"], timings["transformation"] = (wall * shares / shares.sum()).tolist()

        start = time.perf_counter()
        metric = factorise(auxmol.intor("int2c2e", hermi=1))
        timings["metric"] = time.perf_counter() - start

        start = time.perf_counter()
        _run(pool, metric.fit, list(B), "fitting", progress)
        B = _compacted(B, metric.naux)
        timings["fitting"] = time.perf_counter() - start
    return Factors(B, np.array(eps_occ), np.array(eps_vir), metric.note, made_by, timings)


def check_memory(
    auxmol: gto.Mole, nao: int, nocc: int, nvir: int, max_bytes: float | None, threads: int | None = None
) -> int:
    """Auxiliary functions a block that `build_factors` will take within max_bytes, or MemoryLimit."""
    memory = FactorMemory(nao, nocc, nvir, auxmol.nao_nr(), threads or lib.num_threads())
    return memory.block_width(max_bytes, smallest=int(np.diff(auxmol.ao_loc_nr()).max()))


def by_angular_momentum(auxmol: gto.Mole) -> gto.Mole:
    """The same shells, those of one l together; B in terms of them gives the same integrals."""
    copy = auxmol.copy(deep=False)
    copy._bas = auxmol._bas[np.argsort(auxmol._bas[:, gto.ANG_OF], kind="stable")]
    return copy


def shell_blocks(ao_loc: Sequence[int], width: int, multiple: int = 1) -> Iterator[tuple[int, int]]:
    """Ranges of shells [k0, k1) of at most ``width`` functions each (one shell where a single one is wider).

    Where a block has as many as ``multiple`` shells and others follow, it is cut to a multiple of that.
    """
    k0, last = 0, len(ao_loc) - 1
    while k0 < last:
        k1 = max(k0 + 1, bisect_right(ao_loc, ao_loc[k0] + width, lo=k0) - 1)
        if k1 < last and k1 - k0 >= multiple:
            k1 -= (k1 - k0) % multiple
        yield k0, k1
        k0 = k1


def _integrals(mol: gto.Mole, auxmol: gto.Mole) -> tuple[Callable[[tuple[int, int]], np.ndarray], str]:
    """(mu nu|P) packed [P, mu >= nu] of a range of shells, as a function, and in words whose it is."""
    nao = mol.nao_nr()
    if nao * (nao + 1) / 2 * auxmol.nao_nr() < MANY:
        return _PySCF(mol, auxmol), "PySCF"
    try:
        return ThreeCentre(mol, auxmol), words()
    except (UnsupportedClass, CompilerError) as error:
        return _PySCF(mol, auxmol), f"PySCF: {error}"


class _PySCF:
    """PySCF's integrals of a range of fitting shells."""

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole) -> None:
        self.nbas = mol.nbas
        self.int3c = gto.moleintor.ascint3(mol._add_suffix("int3c2e"))
        self.env = gto.mole.conc_env(mol._atm, mol._bas, mol._env, auxmol._atm, auxmol._bas, auxmol._env)
        self.ao_loc = gto.moleintor.make_loc(self.env[1], self.int3c)
        self.optimiser = gto.moleintor.make_cintopt(*self.env, self.int3c)

    def __call__(self, shells: tuple[int, int]) -> np.ndarray:
        k0, k1 = (self.nbas + k for k in shells)
        wanted = (0, self.nbas, 0, self.nbas, k0, k1)
        packed = gto.moleintor.getints3c(self.int3c, *self.env, wanted, 1, "s2ij", self.ao_loc, self.optimiser)
        return np.ascontiguousarray(packed.T)


class _BlockTask:
    """(ia|P) for one range of auxiliary shells, written to its columns of B."""

    def __init__(
        self, integrals: Callable, auxmol: gto.Mole, c_occ: np.ndarray, c_vir: np.ndarray, B: np.ndarray
    ) -> None:
        self.integrals, self.ao_loc, self.nao, self.B = integrals, auxmol.ao_loc_nr(), len(c_occ), B
        self.c_occ_t, self.c_vir_t = np.ascontiguousarray(c_occ.T), np.ascontiguousarray(c_vir.T)

    def __call__(self, block: tuple[int, int]) -> tuple[float, float]:
        """Fill B[:, :, P] for the shells [k0, k1); returns seconds of integrals and of transformation."""
        p0, p1 = (int(self.ao_loc[k]) for k in block)
        start = time.perf_counter()
        packed = self.integrals(block)
        middle = time.perf_counter()
        # One square after the other in the same place: all of them at once are far more than a cache holds.
        square, half = np.empty((self.nao, self.nao)), np.empty((len(self.c_occ_t), p1 - p0, self.nao))
        for n, row in enumerate(packed):
            np.matmul(self.c_occ_t, lib.unpack_tril(row, out=square), out=half[:, n])
        for i, rows in enumerate(half):
            np.matmul(self.c_vir_t, rows.T, out=self.B[i, :, p0:p1])
        return middle - start, time.perf_counter() - middle


def _run(pool: ThreadPoolExecutor, task: Callable, items: Iterable, stage: str, progress: Progress | None) -> list:
    futures = [pool.submit(task, item) for item in items]
    try:
        for done, future in enumerate(as_completed(futures), start=1):
            future.result()
            if progress:
                progress(stage, done, len(futures))
    finally:
        for future in futures:
            future.cancel()
    return [future.result() for future in futures]


def _compacted(B: np.ndarray, naux: int) -> np.ndarray:
    """B[:, :, :naux] as a contiguous array in B's own memory: rows move up, none over one still to be moved."""
    nocc, nvir, _ = B.shape
    if naux == B.shape[2]:
        return B
    front = B.reshape(-1)[: nocc * nvir * naux].reshape(nocc, nvir, naux)
    for i in range(nocc):
        front[i] = B[i, :, :naux]
    return front
