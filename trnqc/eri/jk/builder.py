"""Coulomb and exchange matrices of a molecule from integrals that are never stored.

molecule -> shell pairs -> Schwarz bounds, tables (screening.py) -> drivers by class (batch.py)
density -> symmetric and antisymmetric parts (densities.py) -> blocks (layout.py)
        -> groups of tasks (tasks.py) on threads of all ranks (run.py) -> exact sums (exact_sums.py) -> J, K
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.classes import QuartetClass
from trnqc.eri.compiled import programs
from trnqc.eri.jk import densities, quick
from trnqc.eri.jk.exact_sums import ExactSum, add_all
from trnqc.eri.jk.layout import MatrixLayout, block_maxima, layout_of
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.screening import Table, tables
from trnqc.eri.jk.tasks import QuartetTask, groups_of
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import pair_orbitals, pairs_of, quartet_class
from trnqc.errors import MemoryLimit
from trnqc.jit import Library
from trnqc.ranks import ALONE, Ranks, dealt

# The default cutoff, in Hartree, for products of an integral and a density element.
CUTOFF = 1e-13

Matrices = tuple[np.ndarray | None, np.ndarray | None]


class JKBuilder:
    """J and K of one molecule for any number of densities. It keeps pairs, bounds and compiled functions.

    Parameters
    ----------
    mol, omega, cutoff, threads, ranks, schedule
        As in `trnqc.eri.get_jk`.
    quick
        Whether kernels that are not compiled yet may have their quick form, if that is compiled.

    Raises
    ------
    CompilerError, UnsupportedClass, MoleculeError
        If there are no kernels for the molecule's shells.

    Examples
    --------
    >>> from pyscf import gto
    >>> builder = JKBuilder(gto.M(atom="He", basis="sto-3g"))
    >>> vj, vk = builder.get_jk([[1.0]])
    >>> float(vj[0, 0].round(6))
    1.055713
    """

    def __init__(
        self,
        mol: gto.Mole,
        omega: float | None = None,
        cutoff: float = CUTOFF,
        threads: int | None = None,
        ranks: Ranks = ALONE,
        schedule: str = "dynamic",
        quick: bool = False,
    ) -> None:
        self.mol, self.cutoff = mol, cutoff
        self.ranks, self.schedule, self._builds = ranks, schedule, 0
        self.quick = quick
        self.threads = threads or lib.num_threads()
        self.operator = Operator.of(mol, omega)
        self.layout: MatrixLayout = layout_of(mol)
        self._pairs = pairs_of(mol)
        self._tables: tuple[Table, ...] | None = None
        # The bounds of orbitals, and the elements of all pairs, once they are asked for.
        self._reaches: np.ndarray | None = None
        self._elements: np.ndarray | None = None
        self._grouped: list[list[QuartetTask]] = []
        self._libraries: dict[tuple[bool, bool], dict[QuartetClass, Library]] = {}
        self._quick: dict[tuple[bool, bool], int] = {}
        self._used = True, True

    @property
    def ran_on(self) -> str:
        """Description of the code that computes J and K."""
        among = f" on each of {self.ranks.size} ranks" if self.ranks.size > 1 else ""
        some, total = self.quick_kernels, len(self.classes())
        form = f", {some} of {total} kernels in their quick form" if some else ""
        return f"{programs.words()}{form}, {self.threads} thread{'s' * (self.threads > 1)}{among}"

    @property
    def quick_kernels(self) -> int:
        """The number of kernels of the last J and K that had their quick form."""
        return self._quick.get(self._used, 0)

    def classes(self) -> tuple[QuartetClass, ...]:
        """Return the classes of all quartets of the molecule."""
        pairs = [(a, b) for n, a in enumerate(self._pairs) for b in self._pairs[: n + 1]]
        return tuple(dict.fromkeys(quartet_class(a, b, self.operator.name) for a, b in pairs))

    def build(self, with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Library]:
        """Compile the kernels of the molecule that are not compiled yet.

        Kernels that had their quick form are replaced by those that have been compiled in the meantime.
        """
        key = self._used = with_j, with_k
        if key not in self._libraries or self._quick[key]:
            wanted = quick.programs(self.classes(), with_j, with_k)
            recipes = programs.or_quick(wanted.values()) if self.quick else list(wanted.values())
            libraries = programs.build(recipes)
            self._libraries[key] = {cls: libraries[recipe.name] for cls, recipe in zip(wanted, recipes)}
            self._quick[key] = sum(recipe.quick is None for recipe in recipes)
        return self._libraries[key]

    def get_jk(
        self, dm: Any, hermi: int = 1, with_j: bool = True, with_k: bool = True, cutoff: float | None = None
    ) -> Matrices:
        """Compute J and K of density matrices [..., nao, nao]; see the function `get_jk`.

        cutoff: in place of the builder's own, and not below it.
        """
        cutoff = max(self.cutoff, cutoff or 0.0)
        dm = densities.checked(dm, self.mol.nao_nr(), hermi)
        if np.iscomplexobj(dm):
            return self._of_complex(dm, with_j, with_k, cutoff)
        dms = dm.reshape(-1, *dm.shape[-2:]).astype(np.float64, copy=False)
        vj, vk = (np.zeros(dms.shape) if wanted else None for wanted in (with_j, with_k))
        self._add(dms, vj, vk, cutoff)
        if vk is not None:
            vk = densities.mirrored(vk, hermi).reshape(dm.shape)
        return (None if vj is None else vj.reshape(dm.shape)), vk

    def _of_complex(self, dm: np.ndarray, with_j: bool, with_k: bool, cutoff: float) -> Matrices:
        parts = self.get_jk(np.stack([dm.real, dm.imag]), 0, with_j, with_k, cutoff)
        vj, vk = (None if v is None else v[0] + 1j * v[1] for v in parts)
        return vj, vk

    def _add(self, dms: np.ndarray, vj: np.ndarray | None, vk: np.ndarray | None, cutoff: float) -> None:
        """Add J and K of real densities to matrices, in as many passes over the integrals as memory requires."""
        at_once = self._densities_of_a_pass()
        if not dms.any() or (vj is None and vk is None):
            return
        libraries = self.build(vj is not None, vk is not None)
        reach = self._reach(self._table(libraries))
        parts = densities.split(dms, vk is not None, reach, cutoff)
        maxima = block_maxima(self.mol, parts.matrices) if len(parts) else None
        for begin in range(0, len(parts), at_once):
            some = parts[begin : begin + at_once]
            j, half = self._halves(some.matrices, vj is not None, vk is not None, cutoff, maxima)
            if vj is not None:
                some.add_coulomb(vj, j)
            if vk is not None:
                some.add_exchange(vk, half)

    def _densities_of_a_pass(self) -> int:
        """Return how many densities one pass over the integrals may treat within mol.max_memory."""
        nao, allowed = self.mol.nao_nr(), 1e6 * self.mol.max_memory
        # f64 and i64 terms of J and of K for each thread, and eight matrices of the whole pass.
        each = 8.0 * (4 * self.threads + 8) * nao**2
        if each > allowed:
            raise MemoryLimit(
                f"J and K of one density of {nao} orbitals on {self.threads} threads take {each / 1e6:.0f} MB, allowed "
                f"are mol.max_memory = {allowed / 1e6:.0f} MB: allow more, or use fewer threads"
            )
        return int(min(allowed / max(each, 1.0), 1e9))

    def _table(self, libraries: dict[QuartetClass, Library]) -> tuple[Table, ...]:
        if self._tables is None:
            classes = {pairs: quartet_class(pairs, pairs, self.operator.name) for pairs in self._pairs}
            own = {pairs: (cls, libraries[cls]) for pairs, cls in classes.items()}
            self._tables = tables(self._pairs, self.layout, own, self.operator.omega, self.cutoff)
        return self._tables

    def _schwarz(self, tables: tuple[Table, ...]) -> np.ndarray:
        """Return the largest sqrt((ab|ab)) of every two shells, [shells, shells]; 0 for pairs that are left out."""
        q = np.zeros((self.mol.nbas, self.mol.nbas))
        for table in tables:
            a, b = table.pairs.first, table.pairs.second
            q[a, b] = q[b, a] = np.maximum(q[a, b], table.pairs.bound)
        return q

    def _reach(self, tables: tuple[Table, ...]) -> np.ndarray:
        """Return the largest sqrt((ab|ab)) of each orbital's shell a with any shell b."""
        if self._reaches is None:
            self._reaches = np.repeat(self._schwarz(tables).max(axis=0), np.diff(self.mol.ao_loc_nr()))
        return self._reaches

    def _pair_elements(self, tables: tuple[Table, ...]) -> np.ndarray:
        """Return the element of a matrix at each position among the elements of all pairs."""
        if self._elements is None:
            orbitals = [pair_orbitals(table.pairs) for table in tables]
            flat = [(i * self.mol.nao_nr() + j).ravel() for i, j in orbitals]
            self._elements = np.concatenate([np.zeros(0, np.int64), *flat])
        return self._elements

    def _halves(
        self, dm: np.ndarray, with_j: bool, with_k: bool, cutoff: float, maxima: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return J, and half of K, of densities that are each symmetric or antisymmetric."""
        libraries = self.build(with_j, with_k)
        tables = self._table(libraries)
        elements = self._pair_elements(tables)
        of_pairs = dm.reshape(len(dm), -1).take(elements, axis=1)
        options: dict[str, Any] = {"with_j": with_j, "with_k": with_k, "cutoff": cutoff, "maxima": maxima}
        run = JKPass.of(self.mol, self.layout, dm, of_pairs, omega=self.operator.omega, **options)
        pairs, blocks = self._summed(run, tables, libraries)
        half = np.zeros(dm.shape)
        half.reshape(len(dm), -1)[:, elements] = pairs
        # Twice, because only one of (ab|cd) and (ab|dc) was computed.
        return 2 * (half + half.transpose(0, 2, 1)), self.layout.matrices(blocks)

    def _summed(
        self, run: JKPass, tables: tuple[Table, ...], libraries: dict[QuartetClass, Library]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return the contributions of all quartets to J by pairs and to K by blocks, from the threads of all ranks."""
        groups = self._groups(tables)
        own = (groups[n] for n in self._share([sum(task.cost for task in group) for group in groups]))
        j_bound, k_bound = run.bounds(self._schwarz(tables), np.diff(self.mol.ao_loc_nr()))
        j, k = ExactSum(run.pairs.shape, j_bound), ExactSum(run.blocks.shape, k_bound)
        sums = [total for total, wanted in ((j, run.with_j), (k, run.with_k)) if wanted]
        with ThreadPoolExecutor(self.threads) as pool:
            add_all(sums, own, lambda: run.worker(libraries), pool, self.threads, self.ranks)
        return j.value(), k.value()

    def _share(self, costs: Sequence[float]) -> Iterator[int]:
        """Yield the numbers of this rank's groups."""
        self._builds += 1
        return dealt(costs, self.ranks, self.schedule, f"jk {self._builds}")

    def _groups(self, tables: tuple[Table, ...]) -> list[list[QuartetTask]]:
        if not self._grouped:
            self._grouped = groups_of(tables, self.operator.name, self.mol.nao_nr())
        return self._grouped
