"""Perturbative triples of closed-shell coupled cluster: the energy (T).

    E = 1/3 sum_{i >= j >= k} g_ijk sum_abc V^abc (4 W^abc + W^bca + W^cab - 2 W^acb - 2 W^bac - 2 W^cba) / D

with g = 6 for three different orbitals and 3 for two, D = f_i + f_j + f_k - f_a - f_b - f_c, and

    W_ijk^abc = P [sum_f (ia|bf) t_kj^cf - sum_m (ia|jm) t_mk^bc]
    V_ijk^abc = W_ijk^abc + t_i^a (jb|kc) + t_j^b (ia|kc) + t_k^c (ia|jb) + f_ia t_jk^bc + f_jb t_ik^ac + f_kc t_ij^ab

where P sums over the six permutations of (ia), (jb) and (kc): A. P. Rendell, T. J. Lee, A. Komornicki, Chem. Phys.
Lett. 178, 462 (1991).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations_with_replacement
from math import comb, fsum, isfinite
from threading import Event, Lock
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.host.arrays import zeros
from trnqc.host.blas import single_threaded
from trnqc.host.progress import StageBars
from trnqc.host.threads import thread_count
from trnqc.interfaces.triples import programs
from trnqc.interfaces.triples.amplitudes import Operands, Padded, of_pyscf, tiles
from trnqc.interfaces.triples.memory import block_size
from trnqc.interfaces.triples.products import ConnectedTriples, Orbital
from trnqc.interfaces.triples.programs import PAIRS, TILE
from trnqc.jit import library

Triple = tuple[int, int, int]


def rccsd_triples(
    mycc: Any,
    t1: np.ndarray | None = None,
    t2: np.ndarray | None = None,
    eris: Any = None,
    *,
    memory_limit: int | None = None,
    threads: int | None = None,
) -> float:
    """The energy (T) of a closed shell from PySCF's CCSD object.

    Parameters
    ----------
    mycc : pyscf.cc.ccsd.CCSD
        A converged calculation with real orbitals. Orbitals may be frozen.
    t1, t2 : ndarray, optional
        Amplitudes [o, v] and [o, o, v, v] in place of those of `mycc`, converged or not.
    eris : optional
        The integrals of `mycc.ao2mo()`, in memory or in PySCF's file. By default they are computed.
    memory_limit : int, optional
        The largest number of bytes that is used beside amplitudes and integrals. Integrals (ia|bc) are read in blocks
        of occupied orbitals, if necessary several times. None reads them once.
    threads : int, optional
        The number of threads; by default OMP_NUM_THREADS or all CPUs.

    Returns
    -------
    float
        The energy in Hartree. The total energy is ``mycc.e_tot`` plus this energy.

    Raises
    ------
    InputError
        If the object, the amplitudes or the integrals are not those of a real closed shell.
    NotConverged
        If `mycc` has not converged and no amplitudes are passed.
    MemoryLimit
        If the limit is too small; the error states one that would do.
    CompilerError
        If the programs have to be compiled and cannot be.

    Examples
    --------
    >>> from pyscf import cc, gto, scf
    >>> mf = scf.RHF(gto.M(atom="Be 0 0 0; H 0 0 1.33; H 0 0 -1.33", basis="sto-3g", verbose=0)).run()
    >>> energy = rccsd_triples(cc.CCSD(mf).run())
    """
    return triples_energy(of_pyscf(mycc, t1, t2, eris), memory_limit=memory_limit, threads=threads)


def triples_energy(operands: Operands, *, memory_limit: int | None = None, threads: int | None = None) -> float:
    """The energy (T) in Hartree from amplitudes and integrals. See `rccsd_triples`, also for the errors."""
    o, v = operands.t1.shape
    # Three electrons of one orbital, and three in one virtual orbital, are not excited together.
    if o < 2 or v < 2:
        return 0.0
    count = thread_count(threads)
    size = block_size(o, v, count, memory_limit)
    with single_threaded(), StageBars() as bars:
        energy = _Run(operands, count, bars.of("triples")).energy(size)
    if not isfinite(energy):
        raise InputError(
            f"the energy (T) is {energy}: expected finite amplitudes and integrals, and occupied orbitals below the "
            "virtual ones; check what CCSD has found"
        )
    return energy


class _Run:
    """One calculation: its operands, the buffers of its threads and its progress."""

    def __init__(self, operands: Operands, threads: int, progress: Callable[[int, int, str], None]) -> None:
        compiled = library(programs.recipe())
        self._ovvv, self._padded = operands.ovvv, Padded.of(operands)
        self._workers = [Worker(self._padded, compiled) for _ in range(threads)]
        self._progress, self._lock, self._stopped = progress, Lock(), Event()
        self._total, self._done = comb(self._padded.o + 2, 3) - self._padded.o, 0

    def energy(self, size: int) -> float:
        o = self._padded.o
        blocks = [range(begin, min(begin + size, o)) for begin in range(0, o, size)]
        orbitals: dict[int, Orbital] = {}
        energies: list[float] = []
        with ThreadPoolExecutor(len(self._workers)) as pool:
            try:
                for block_triple in combinations_with_replacement(reversed(blocks), 3):
                    self._hold(orbitals, {i for block in block_triple for i in block}, pool)
                    energies += self._of_blocks(orbitals, triples_of(block_triple), pool)
            except BaseException:
                self._stopped.set()  # the threads end after the triple at which they are
                raise
        # The sum does not depend on the order in which threads finish, and neither on the blocks.
        return fsum(energies)

    def _hold(self, orbitals: dict[int, Orbital], wanted: set[int], pool: ThreadPoolExecutor) -> None:
        """Read the orbitals that are wanted, after the others have been forgotten."""
        for i in orbitals.keys() - wanted:
            del orbitals[i]
        new = sorted(wanted - orbitals.keys())
        for i in new:
            orbitals[i] = Orbital.of(self._padded, i, self._ovvv(i))
        for _ in pool.map(Orbital.square, [orbitals[i] for i in new]):
            pass

    def _of_blocks(
        self, orbitals: dict[int, Orbital], triples: Sequence[Triple], pool: ThreadPoolExecutor
    ) -> list[float]:
        energies = [0.0] * len(triples)
        numbered = iter(enumerate(triples))

        def work(worker: Worker) -> None:
            try:
                while not self._stopped.is_set() and (task := self._next(numbered)) is not None:
                    number, triple = task
                    energies[number] = worker.energy(triple, orbitals)
            except BaseException:
                self._stopped.set()  # the other threads need not finish the work
                raise

        for future in [pool.submit(work, worker) for worker in self._workers]:
            future.result()
        return energies

    def _next(self, numbered: Iterator[tuple[int, Triple]]) -> tuple[int, Triple] | None:
        with self._lock:
            task = next(numbered, None)
            if task is not None:
                self._progress(self._done, self._total, "")
                self._done += 1
            return task


def triples_of(blocks: Sequence[range]) -> list[Triple]:
    """The triples i >= j >= k, not all equal, of orbitals of three blocks, which begin in descending order."""
    first, second, third = blocks
    return [(i, j, k) for i in first for j in second if i >= j for k in third if j >= k and i > k]


class Worker:
    """Energies of triples, in buffers of one thread."""

    def __init__(self, padded: Padded, compiled: Any) -> None:
        n = tiles(padded.v)
        side = n * TILE
        self._padded, self._products = padded, ConnectedTriples(padded, compiled)
        self._u, self._z = (zeros((n, n, n, TILE, TILE, TILE)) for _ in range(2))
        self._matrices, self._vectors = zeros((2 * len(PAIRS), side, side)), zeros((7, side))
        self._vectors[6] = padded.virtual
        self._sum = np.zeros(1)
        self._add_energy = compiled.energy.bind(
            tiles=n,
            energy=self._sum,
            u=self._u,
            u_flat=self._u,
            z=self._z,
            z_flat=self._z,
            matrices=self._matrices,
            flat_matrices=self._matrices,
            vectors=self._vectors,
            flat_vectors=self._vectors,
        )

    def energy(self, triple: Triple, orbitals: dict[int, Orbital]) -> float:
        """The energy of three occupied orbitals i >= j >= k that are not all equal, Hartree."""
        i, j, k = triple
        self._multiply(i, j, k, orbitals)
        p = self._padded
        for n, (x, y) in enumerate(PAIRS):
            self._matrices[n] = p.integrals[triple[x], triple[y]]
            self._matrices[n + len(PAIRS)] = p.doubles[triple[x], triple[y]]
        for n, x in enumerate(triple):
            self._vectors[n], self._vectors[n + 3] = p.singles[x], p.fock[x]
        self._sum[0] = 0.0
        self._add_energy(occupied_energy=float(p.occupied[i] + p.occupied[j] + p.occupied[k]))
        return float(self._sum[0]) * (2.0 if i > j > k else 1.0)

    def _multiply(self, i: int, j: int, k: int, orbitals: dict[int, Orbital]) -> None:
        """U[a, b, c] + Z[c, a, b] = W. Equal orbitals have the same products, added with a, b and c exchanged."""
        u, z = self._u, self._z
        if i == j:
            u.fill(0.0)
            self._products(i, j, k, orbitals[i], [("add_first", u), ("add_second", u)])
        else:
            self._products(i, j, k, orbitals[i], [("first", u)])
            self._products(j, i, k, orbitals[j], [("add_second", u), *[("first", z)] * (j == k)])
        if j != k:
            self._products(k, i, j, orbitals[k], [("first", z)])
