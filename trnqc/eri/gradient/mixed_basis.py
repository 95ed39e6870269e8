"""J and K of a mixed basis: (i'j|kl) contracted with densities in the basis of j, k and l.

classes of pairs (i', j), of pairs (k, l) -> groups of tasks (jk/tasks.py) -> digestion (digest.py) -> exact sums
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.classes import PRIMITIVE, QuartetClass
from trnqc.eri.compiled import programs as library
from trnqc.eri.gradient import digest
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.jk.exact_sums import ExactSum, add_all
from trnqc.eri.jk.tasks import cost_of_group, grouped, relative_cost
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.operators import Operator
from trnqc.eri.shells.lane_packing import PackedPairs, packed, row_arguments
from trnqc.eri.shells.pairs import ShellPairs, pair_orbitals, quartet_class
from trnqc.errors import InputError
from trnqc.host.arrays import zeros
from trnqc.ranks import ALONE, Ranks, dealt

COULOMB = Operator("coulomb", 0.0)
# Calls of kernels in a task: few enough to share tasks evenly, and enough that the time of Python does not matter.
TASK = 20_000


@dataclass(frozen=True, eq=False)
class _Ket:
    pairs: ShellPairs
    packed: PackedPairs
    share: np.ndarray

    def of(self, values: np.ndarray) -> np.ndarray:
        """Return the value of each pair, by vector and lane."""
        return np.ascontiguousarray(values[self.packed.members])


@dataclass(frozen=True, eq=False)
class _Task:
    cls: QuartetClass
    bra: ShellPairs
    ket: int
    begin: int
    end: int
    cost: float


@dataclass(frozen=True, eq=False)
class _Densities:
    """The densities in the form that the digestion of one class of kets reads."""

    folded: np.ndarray
    far: np.ndarray
    near: np.ndarray


class MixedJK:
    """J and K of a mixed basis, for any number of densities. The bits do not depend on the number of threads.

    Parameters
    ----------
    bra
        The classes of `pairs_between(mixed, mol)`.
    ket
        The classes of `pairs_of(mol)`.
    extents
        The numbers of functions of the mixed basis and of `mol`.
    operator
        The operator.
    cutoff
        Quartets are left out if their Schwarz bound times the largest density element that they meet is below this.
    threads
        By default `pyscf.lib.num_threads()`.
    ranks
        The processes that share the groups of tasks. All of them create the object and call `get_jk` with the same
        arguments, and have the whole result, whose bits do not depend on their number.
    """

    def __init__(
        self,
        bra: Sequence[ShellPairs],
        ket: Sequence[ShellPairs],
        extents: tuple[int, int],
        *,
        operator: Operator = COULOMB,
        cutoff: float = CUTOFF,
        threads: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._ranks = ranks
        self._extents, self._omega, self._cutoff = extents, operator.omega, cutoff
        self._threads = threads or lib.num_threads()
        self._kets = [_ket_of(pairs) for pairs in ket]
        self._classes = [
            (quartet_class(a, b.pairs, operator.name), _by_bound(a), n) for a in bra for n, b in enumerate(self._kets)
        ]
        programs = {cls: digest.mixed_basis_program(cls) for cls in dict.fromkeys(cls for cls, _, _ in self._classes)}
        libraries = library.build(tuple(programs.values()), "kernels of derivatives")
        self._run = {cls: getattr(libraries[program.name], program.name) for cls, program in programs.items()}
        self._bra_bounds = _orbital_bounds(bra, extents)
        self._ket_bounds = _orbital_bounds(ket, (extents[1], extents[1]))
        self._ket_bounds = np.maximum(self._ket_bounds, self._ket_bounds.T)

    def get_jk(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """Compute J[n, i', j] = sum_kl (i'j|kl) D_lk and K[n, i', l] = sum_jk (i'j|kl) D_jk.

        dms [n, nao, nao]: real densities of any symmetry. Returns None for what is not wanted.
        """
        dms = np.ascontiguousarray(dms, dtype=np.float64)
        if not np.isfinite(dms).all():
            raise InputError("dm has elements that are not finite: the step that computed it has failed")
        shape = (len(dms), *self._extents)
        largest = _shell_maxima(self._kets, dms)
        densities = [_densities(ket, dms, largest) for ket in self._kets]
        tasks = [
            task for cls, bra, n in self._classes for task in self._tasks(cls, bra, n, densities[n], with_j, with_k)
        ]
        tasks.sort(key=lambda task: -task.cost)
        rows, columns = len(dms) * self._extents[0], self._extents[1]
        j, k = (ExactSum((rows, columns), bound.ravel()) for bound in self._bounds(dms))
        sums = [total for total, wanted in ((j, with_j), (k, with_k)) if wanted]
        unused = np.zeros(1)

        def add(group: list[_Task], arrays: tuple[np.ndarray, ...]) -> None:
            wanted = iter(arrays)
            vj, vk = (next(wanted) if asked else unused for asked in (with_j, with_k))
            for task in group:
                arguments = self._arguments(task, dms, densities[task.ket])
                self._run[task.cls](**arguments, with_j=with_j, with_k=with_k, vj=vj, vk=vk)

        total = sum(task.cost for task in tasks)
        groups = grouped(tasks, cost_of_group(total, rows * columns))
        costs = [sum(task.cost for task in group) for group in groups]
        own = (groups[n] for n in dealt(costs, self._ranks, name="derivatives of J and K"))
        with ThreadPoolExecutor(self._threads) as pool:
            add_all(sums, own, lambda: add, pool, self._threads, self._ranks)
        return j.value().reshape(shape) if with_j else None, k.value().reshape(shape) if with_k else None

    def _tasks(
        self, cls: QuartetClass, bra: ShellPairs, ket: int, density: _Densities, with_j: bool, with_k: bool
    ) -> Iterator[_Task]:
        """Yield ranges of bra pairs, by falling bound; pairs without a quartet above the cutoff are left out."""
        pairs, vectors = self._kets[ket].pairs, self._kets[ket].packed
        reach = np.zeros(len(vectors))
        if with_j:
            reach = np.maximum(reach, density.far)
        if with_k:
            reach = np.maximum(reach, density.near.max(axis=0))
        end = int((bra.bound * (vectors.bound * reach).max(initial=0.0) >= self._cutoff).sum())
        step = max(1, TASK // max(1, len(vectors)))
        for begin in range(0, end, step):
            last = min(begin + step, end)
            yield _Task(cls, bra, ket, begin, last, relative_cost(bra, pairs, (last - begin) * len(pairs)))

    def _bounds(self, dms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return bounds [n, i'] on the absolute values of all elements of a row of J and of K, even if all terms had
        one sign.

        By Schwarz's inequality, with q_ij the square root of (ij|ij), J_i'j is at most q_i'j sum_kl q_kl |D_kl|, and
        K_i'l at most sum_jk q_i'j |D_jk| q_kl.
        """
        size = abs(dms)
        j = self._bra_bounds.max(axis=1) * (size * self._ket_bounds).sum(axis=(1, 2))[:, None]
        return j, (self._bra_bounds @ size @ self._ket_bounds).max(axis=2, initial=0.0)

    def _arguments(self, task: _Task, dms: np.ndarray, density: _Densities) -> dict[str, Any]:
        """Return the arguments of `digest.parameters` but for with_j, with_k, vj and vk."""
        cls, bra, ket = task.cls, task.bra, self._kets[task.ket]
        n_ab, n_cd = bra.contractions, ket.pairs.contractions
        a, b, c, d = cls.extents
        width = library.lanes()
        # The index i' is a of (a, b), or b if the pairs are swapped.
        layout = (a, b, b, 1, bra.nca, bra.ncb, bra.ncb, 1)
        ao_i, ao_j, shell_j = bra.ao_first, bra.ao_second, bra.second
        if bra.swapped:
            layout = (b, a, 1, b, bra.ncb, bra.nca, 1, bra.ncb)
            ao_i, ao_j, shell_j = bra.ao_second, bra.ao_first, bra.first
        n_mixed, n_ao = self._extents
        return {
            **dict(zip(digest.BRA, layout, strict=True)),
            **row_arguments(cls.general, bra, ket.pairs, ket.packed),
            "rows": len(ket.packed),
            "n_d": ket.pairs.ncb,
            "sets": len(dms),
            "n_mixed": n_mixed,
            "n_ao": n_ao,
            "ao_i": ao_i,
            "ao_j": ao_j,
            "shell_j": shell_j,
            "ao_c": ket.of(ket.pairs.ao_first),
            "ao_d": ket.of(ket.pairs.ao_second),
            "share": ket.share,
            "density": dms,
            "folded": density.folded,
            "far": density.far,
            "near": density.near,
            "screen": self._cutoff,
            "cutoff": PRIMITIVE * self._cutoff,
            "omega": self._omega,
            "boys": boys.table(cls.order),
            "work": zeros((work_size(cls, n_ab, n_cd), width)),
            "out": zeros((n_ab * n_cd * a * b * c * d, width)),
            "sums": zeros((len(dms) * n_ab * a * b, width)),
            "groups_begin": task.begin,
            "groups_end": task.end,
        }


def _orbital_bounds(classes: Sequence[ShellPairs], shape: tuple[int, int]) -> np.ndarray:
    """Return the Schwarz bound of the pair of shells of each two functions."""
    bounds = np.zeros(shape)
    for pairs in classes:
        first, second = pair_orbitals(pairs)[:: -1 if pairs.swapped else 1]
        bounds[first, second] = pairs.bound[:, None, None]
    return bounds


def _by_bound(pairs: ShellPairs) -> ShellPairs:
    return pairs.take(np.argsort(-pairs.bound, kind="stable"))


def _ket_of(pairs: ShellPairs) -> _Ket:
    """Pack pairs of like bounds together, because vectors are screened as a whole."""
    pairs = _by_bound(pairs)
    vectors = packed(pairs, library.lanes())
    share = np.where(pairs.first == pairs.second, 0.5, 1.0)[vectors.members]
    share.ravel()[len(pairs) :] = 0.0
    return _Ket(pairs, vectors, share)


def _shell_maxima(kets: Sequence[_Ket], dms: np.ndarray) -> np.ndarray:
    """Return the largest |D| of all densities between two shells of the pairs, [shells, shells]."""
    ids = np.concatenate([np.concatenate([k.pairs.first, k.pairs.second]) for k in kets])
    ao = np.concatenate([np.concatenate([k.pairs.ao_first, k.pairs.ao_second]) for k in kets])
    starts = np.zeros(ids.max() + 1, dtype=np.int64)
    starts[ids] = ao
    size = abs(dms).max(axis=0)
    return np.maximum.reduceat(np.maximum.reduceat(size, starts, axis=0), starts, axis=1)


def _densities(ket: _Ket, dms: np.ndarray, largest: np.ndarray) -> _Densities:
    pairs = ket.pairs
    nc, nd = pairs.extents
    c, d = np.arange(nc), np.arange(nd)
    qc, qd = np.divmod(np.arange(pairs.contractions), pairs.ncb)
    first, second = ket.of(pairs.ao_first), ket.of(pairs.ao_second)
    # The axes are [vectors, lanes, q, c, d].
    row = first[..., None, None, None] + (qc[:, None] * nc + c)[:, :, None]
    column = second[..., None, None, None] + (qd[:, None] * nd + d)[:, None, :]
    both = (dms + dms.swapaxes(1, 2))[:, row, column] * ket.share[..., None, None, None]
    folded = np.ascontiguousarray(np.moveaxis(both.reshape(*both.shape[:4], nc * nd), 2, -1))
    far = abs(folded).max(axis=(0, 2, 3, 4), initial=0.0)
    one, two = largest[:, ket.of(pairs.first)], largest[:, ket.of(pairs.second)]
    return _Densities(folded, far, np.ascontiguousarray(np.maximum(one, two).max(axis=-1)))
