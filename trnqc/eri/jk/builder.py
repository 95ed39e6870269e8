"""Coulomb and exchange matrices of a molecule from integrals that are never kept.

molecule -> shell pairs -> Schwarz bounds, tables (screening.py) -> drivers by class (batch.py)
density -> symmetric and antisymmetric parts (densities.py) -> blocks (layout.py)
        -> groups of tasks (tasks.py) on threads of all ranks (run.py) -> exact sums (exact_sums.py) -> J, K
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.arrays import host_array
from trnqc.eri.classes import QuartetClass
from trnqc.eri.jk import densities
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.exact_sums import ExactSum
from trnqc.eri.jk.layout import Layout, block_maxima, layout_of, pair_orbitals
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.screening import Table, tables
from trnqc.eri.jk.tasks import Task, groups_of
from trnqc.eri.library import programs
from trnqc.eri.shells.pairs import ShellPairs, pairs_of
from trnqc.errors import BackendUnavailable, InputError, MemoryLimit
from trnqc.jit import Library
from trnqc.ranks import ALONE, Ranks, dealt

# Products of an integral and a density element below this are left out by default.
CUTOFF = 1e-13
# Name -> module with a class JKBuilder of the same methods.
BACKENDS = {"cpu": "trnqc.eri.jk.builder", "cuda": "trnqc.eri.cuda.builder"}

Matrices = tuple[np.ndarray | None, np.ndarray | None]


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
    """J and K of density matrices, as PySCF's `scf.hf.get_jk` returns them.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    dm : array_like [..., nao, nao]
        Density matrices, real or complex, with or without symmetry.
    hermi : int
        0 for K as it is; 1 (2) for the lower triangle of K and the same (the negative) above it, which is K itself if
        `dm` is symmetric (antisymmetric). J does not depend on it. Of complex densities K is returned as it is.
    with_j, with_k : bool
        What is wanted.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(|omega| r)/r, 0 for 1/r; None for the molecule's own.
    backend : str
        "cpu", "cuda" or "auto", which is the CPU.
    cutoff : float
        Products of an integral and a density element below this are left out.
    threads : int, optional
        PySCF's `lib.num_threads()` by default.
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
        Where J and K cannot be made.
    """
    made = builder(backend)(mol, omega=omega, cutoff=cutoff, threads=threads, ranks=ranks, schedule=schedule)
    return made.get_jk(dm, hermi, with_j, with_k)


def builder(backend: str = "auto") -> type[JKBuilder]:
    """The class that builds J and K on a backend; auto is the CPU."""
    name = "cpu" if backend == "auto" else backend
    if name not in BACKENDS:
        raise InputError(f"backend is auto or one of {', '.join(BACKENDS)}, found {backend!r}")
    try:
        return importlib.import_module(BACKENDS[name]).JKBuilder  # type: ignore[no-any-return]
    except ImportError as error:
        raise BackendUnavailable(f"the {name} backend cannot be imported: {error}; use backend='cpu'") from error


class JKBuilder:
    """J and K of one molecule, any number of times; keeps pairs, bounds and compiled functions.

    Raises CompilerError, UnsupportedClass or MoleculeError for what cannot be built.
    """

    def __init__(
        self, mol: gto.Mole, omega: float | None = None, cutoff: float = CUTOFF, threads: int | None = None,
        ranks: Ranks = ALONE, schedule: str = "dynamic",
    ) -> None:  # fmt: skip
        self.mol, self.cutoff = mol, cutoff
        self.ranks, self.schedule, self._builds = ranks, schedule, 0
        self.threads = threads or lib.num_threads()
        signed = float(mol.omega if omega is None else omega)
        self.operator = "erf" if signed > 0 else "erfc" if signed < 0 else "coulomb"
        self.omega = abs(signed)
        self.layout: Layout = layout_of(mol)
        self._pairs = pairs_of(mol)
        self._tables: tuple[Table, ...] | None = None
        self._grouped: list[list[Task]] = []
        self._libraries: dict[tuple[bool, bool], dict[QuartetClass, Library]] = {}

    @property
    def ran_on(self) -> str:
        among = f" on each of {self.ranks.size} ranks" if self.ranks.size > 1 else ""
        return f"{programs.words()}, {self.threads} thread{'s' * (self.threads > 1)}{among}"

    def classes(self) -> tuple[QuartetClass, ...]:
        """Of all quartets of the molecule."""
        found = [self._class(a, b) for n, a in enumerate(self._pairs) for b in self._pairs[: n + 1]]
        return tuple(dict.fromkeys(found))

    def build(self, with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Library]:
        """Compile what the molecule needs, where that is not done yet."""
        if (with_j, with_k) not in self._libraries:
            batches = [Batch(cls, with_j, with_k) for cls in self.classes()]
            made = programs.build([batch.program for batch in batches])
            self._libraries[with_j, with_k] = {batch.cls: made[batch.name] for batch in batches}
        return self._libraries[with_j, with_k]

    def get_jk(self, dm: Any, hermi: int = 1, with_j: bool = True, with_k: bool = True) -> Matrices:
        """J and K of density matrices [..., nao, nao]; see the function of this name."""
        given = self._checked(dm, hermi)
        if np.iscomplexobj(given):
            return self._of_complex(given, with_j, with_k)
        dms = given.reshape(-1, *given.shape[-2:]).astype(np.float64, copy=False)
        vj, vk = (np.zeros(dms.shape) if wanted else None for wanted in (with_j, with_k))
        self._add(dms, vj, vk)
        if vk is not None:
            vk = densities.mirrored(vk, hermi).reshape(given.shape)
        return (None if vj is None else vj.reshape(given.shape)), vk

    def _of_complex(self, dm: np.ndarray, with_j: bool, with_k: bool) -> Matrices:
        parts = self.get_jk(np.stack([dm.real, dm.imag]), 0, with_j, with_k)
        vj, vk = (None if v is None else v[0] + 1j * v[1] for v in parts)
        return vj, vk

    def _add(self, dms: np.ndarray, vj: np.ndarray | None, vk: np.ndarray | None) -> None:
        """Add J and K of real densities to the matrices that are there, in as many passes as memory asks for."""
        at_once = self._at_once()
        if not dms.any() or (vj is None and vk is None):
            return
        libraries = self.build(vj is not None, vk is not None)
        reach = np.repeat(self._schwarz(self._table(libraries)).max(axis=0), np.diff(self.mol.ao_loc_nr()))
        parts = densities.split(dms, vk is not None, reach, self.cutoff)
        maxima = block_maxima(self.mol, parts.matrices) if len(parts) else None
        for begin in range(0, len(parts), at_once):
            some = parts[begin : begin + at_once]
            j, half = self._halves(some.matrices, vj is not None, vk is not None, maxima)
            if vj is not None:
                some.add_coulomb(vj, j)
            if vk is not None:
                some.add_exchange(vk, half)

    def _checked(self, dm: Any, hermi: int) -> np.ndarray:
        nao = self.mol.nao_nr()
        given = host_array(dm, "dm", "J and K are NumPy arrays; take .detach()")
        if hermi not in (0, 1, 2):
            raise InputError(f"hermi is 0, 1 or 2, found {hermi!r}")
        if given.ndim < 2 or given.shape[-2:] != (nao, nao):
            raise InputError(f"dm is [{nao}, {nao}] or [..., {nao}, {nao}] for this molecule, found {given.shape}")
        if given.dtype.kind not in "bfiuc":
            raise InputError(f"dm holds real or complex numbers, found {given.dtype}")
        if not np.isfinite(given).all():
            raise InputError("dm has elements that are not finite: the step that made it has failed")
        return given

    def _at_once(self) -> int:
        """How many densities one pass over the integrals may treat, by memory."""
        nao, allowed = self.mol.nao_nr(), self.mol.max_memory
        one = (4 * self.threads + 8) * 8e-6 * nao**2
        if one > allowed:
            raise MemoryLimit(
                f"J and K of one density of {nao} orbitals on {self.threads} threads take {one:.0f} MB, allowed are "
                f"mol.max_memory = {allowed:.0f} MB: allow more, or use fewer threads"
            )
        return int(min(allowed / max(one, 1e-6), 1e9))

    def _class(self, bra: ShellPairs, ket: ShellPairs) -> QuartetClass:
        general = bra.general or ket.general
        l = (bra.la, bra.lb, ket.la, ket.lb)
        # Of s and p functions there is one kind.
        return QuartetClass(*l, self.mol.cart and max(l) > 1, general, self.operator)

    def _table(self, libraries: dict[QuartetClass, Library]) -> tuple[Table, ...]:
        if self._tables is None:
            own = {p: (c := self._class(p, p), libraries[c]) for p in self._pairs}
            self._tables = tables(self._pairs, self.layout, own, self.omega, self.cutoff)
        return self._tables

    def _schwarz(self, found: tuple[Table, ...]) -> np.ndarray:
        """The largest sqrt((ab|ab)) of every two shells, [shells, shells]; 0 for pairs that are left out."""
        q = np.zeros((self.mol.nbas, self.mol.nbas))
        for table in found:
            a, b = table.pairs.first, table.pairs.second
            q[a, b] = q[b, a] = np.maximum(q[a, b], table.pairs.bound)
        return q

    def _halves(
        self, dm: np.ndarray, with_j: bool, with_k: bool, maxima: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """J, and the half of K, of densities each of which is symmetric or antisymmetric."""
        libraries = self.build(with_j, with_k)
        found = self._table(libraries)
        orbitals = [pair_orbitals(table.pairs) for table in found]
        flat = [dm[:, i, j].reshape(len(dm), -1) for i, j in orbitals] or [np.zeros((len(dm), 0))]
        options: dict[str, Any] = {"with_j": with_j, "with_k": with_k, "cutoff": self.cutoff, "omega": self.omega}
        run = Run.of(self.mol, self.layout, dm, np.concatenate(flat, axis=1), maxima=maxima, **options)
        pairs, blocks = self._summed(run, found, libraries)
        half = np.zeros_like(dm)
        for table, (i, j) in zip(found, orbitals):
            half[:, i, j] = pairs[:, table.at : table.at + table.elements].reshape(-1, *i.shape)
        # Twice, since only one of (ab|cd) and (ab|dc) was met.
        return 2 * (half + half.transpose(0, 2, 1)), self.layout.matrices(blocks)

    def _summed(
        self, run: Run, found: tuple[Table, ...], libraries: dict[QuartetClass, Library]
    ) -> tuple[np.ndarray, np.ndarray]:
        """What all quartets add to `run.pairs` and `run.blocks`, on threads of all ranks."""
        groups = self._groups(found)
        mine = self._share([sum(task.cost for task in group) for group in groups])
        bounds = run.bounds(self._schwarz(found), np.diff(self.mol.ao_loc_nr()))
        sums = ExactSum(run.pairs.shape, bounds[0]), ExactSum(run.blocks.shape, bounds[1])
        lock = Lock()

        def groups_of_thread() -> Iterator[list[Task]]:
            while True:
                with lock:
                    n = next(mine, None)
                if n is None:
                    return
                yield groups[n]

        with ThreadPoolExecutor(self.threads) as pool:
            workers = [pool.submit(run.work, groups_of_thread(), libraries, sums) for _ in range(self.threads)]
            for worker in workers:
                worker.result()
        for part, wanted in zip(sums, (run.with_j, run.with_k)):
            part.total = self.ranks.sum(part.total) if wanted else part.total
        return sums[0].value(), sums[1].value()

    def _share(self, costs: Sequence[float]) -> Iterator[int]:
        self._builds += 1
        return dealt(costs, self.ranks, self.schedule, f"jk {self._builds}")

    def _groups(self, found: tuple[Table, ...]) -> list[list[Task]]:
        if not self._grouped:
            self._grouped = groups_of(found, self._class, self.mol.nao_nr())
        return self._grouped
