"""J and K of a mixed basis: (i'j|kl) contracted with densities of the basis of j, k and l, for all i'.

classes of bra pairs (i', j) x classes of ket pairs (k, l) -> digestions (mixed_digest.py) on a pool of threads
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.classes import OPERATORS, QuartetClass
from trnqc.eri.gradient import digest
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.jk.exact_sums import ExactSum, add_all
from trnqc.eri.jk.layout import pair_orbitals
from trnqc.eri.jk.run import PRIMITIVE
from trnqc.eri.jk.screening import general
from trnqc.eri.jk.tasks import cost_of_group, grouped, relative_cost
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.library import programs as library
from trnqc.eri.shells.pairs import ShellPairs
from trnqc.eri.shells.rows import Rows, rows_of
from trnqc.errors import InputError
from trnqc.host.arrays import zeros

# Kernel calls a task, about: small enough to share out evenly, large enough that Python's part does not show.
TASK = 20_000


@dataclass(frozen=True, eq=False)
class _Ket:
    pairs: ShellPairs
    rows: Rows
    share: np.ndarray

    @cached_property
    def general(self) -> np.ndarray:
        """Records as a general kernel reads them."""
        return rows_of(replace(self.pairs, records=general(self.pairs)), library.lanes()).records

    def of(self, values: np.ndarray) -> np.ndarray:
        """What each pair has, by row and lane."""
        return np.ascontiguousarray(values[self.rows.members])


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
    """Of one class of kets: parameters of the digestion."""

    folded: np.ndarray
    far: np.ndarray
    near: np.ndarray


class MixedJK:
    """J and K for the bra pairs of `pairs_between(mixed, mol)` and the ket pairs of `pairs_of(mol)`.

    extents: functions of the mixed basis and of mol. omega: above 0 erf(omega r)/r, below 0 erfc(|omega| r)/r, 0 is
    1/r. cutoff: quartets are left out whose Schwarz bound times the largest density that they meet is below it. The
    sums are exact, so that their bits do not depend on the number of threads.
    """

    def __init__(
        self,
        bra: Sequence[ShellPairs],
        ket: Sequence[ShellPairs],
        extents: tuple[int, int],
        *,
        omega: float = 0.0,
        cutoff: float = CUTOFF,
        threads: int | None = None,
    ) -> None:
        self._extents, self._omega, self._cutoff = extents, abs(omega), cutoff
        self._threads = threads or lib.num_threads()
        operator = OPERATORS[0] if omega == 0 else OPERATORS[1 if omega > 0 else 2]
        self._kets = [_ket_of(pairs) for pairs in ket]
        self._classes = [(_class(a, b.pairs, operator), _by_bound(a), n) for a in bra for n, b in enumerate(self._kets)]
        programs = {cls: digest.program(cls) for cls in dict.fromkeys(cls for cls, _, _ in self._classes)}
        made = library.build(tuple(programs.values()), "kernels of derivatives")
        self._run = {cls: getattr(made[program.name], program.name) for cls, program in programs.items()}
        self._bra_bounds = _orbital_bounds(bra, extents)
        self._ket_bounds = _orbital_bounds(ket, (extents[1], extents[1]))
        self._ket_bounds = np.maximum(self._ket_bounds, self._ket_bounds.T)

    def get_jk(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """J [n, i', j] = sum_kl (i'j|kl) D_lk and K [n, i', l] = sum_jk (i'j|kl) D_jk; None for what is not asked for.

        dms [n, nao, nao], real and of any symmetry.
        """
        dms = np.ascontiguousarray(dms, dtype=np.float64)
        if not np.isfinite(dms).all():
            raise InputError("dm has elements that are not finite: the step that made it has failed")
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
        with ThreadPoolExecutor(self._threads) as pool:
            add_all(sums, groups, lambda: add, pool, self._threads)
        return j.value().reshape(shape) if with_j else None, k.value().reshape(shape) if with_k else None

    def _tasks(
        self, cls: QuartetClass, bra: ShellPairs, ket: int, density: _Densities, with_j: bool, with_k: bool
    ) -> Iterator[_Task]:
        """Ranges of bra pairs, largest bounds first; those with nothing above the cutoff are left out."""
        rows = self._kets[ket].rows
        reach = np.zeros(len(rows))
        if with_j:
            reach = np.maximum(reach, density.far)
        if with_k:
            reach = np.maximum(reach, density.near.max(axis=0))
        end = int((bra.bound * (rows.bound * reach).max(initial=0.0) >= self._cutoff).sum())
        step = max(1, TASK // max(1, len(rows)))
        for begin in range(0, end, step):
            last = min(begin + step, end)
            pairs = self._kets[ket].pairs
            yield _Task(cls, bra, ket, begin, last, relative_cost(bra, pairs, (last - begin) * len(pairs)))

    def _bounds(self, dms: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return what no element of a row of J and of K exceeds, even if all terms had one sign; both [n, i'].

        By Schwarz's inequality, with q_ij the square root of (ij|ij), J_i'j is at most q_i'j sum_kl q_kl |D_kl|, and
        K_i'l at most sum_jk q_i'j |D_jk| q_kl.
        """
        size = abs(dms)
        j = self._bra_bounds.max(axis=1) * (size * self._ket_bounds).sum(axis=(1, 2))[:, None]
        return j, (self._bra_bounds @ size @ self._ket_bounds).max(axis=2, initial=0.0)

    def _arguments(self, task: _Task, dms: np.ndarray, density: _Densities) -> dict[str, Any]:
        """Those of `digest.parameters`, apart from what is wanted and where it goes."""
        cls, bra, ket = task.cls, task.bra, self._kets[task.ket]
        n_ab, n_cd = bra.contractions, ket.pairs.contractions
        a, b, c, d = cls.extents
        records, lanes = (general(bra), ket.general) if cls.general else (bra.records, ket.rows.records)
        width = library.lanes()
        # Of (a, b) the index i' is a, or b where the two have changed places.
        layout = (a, b, b, 1, bra.nca, bra.ncb, bra.ncb, 1)
        ao_i, ao_j, shell_j = bra.ao_first, bra.ao_second, bra.second
        if bra.swapped:
            layout = (b, a, 1, b, bra.ncb, bra.nca, 1, bra.ncb)
            ao_i, ao_j, shell_j = bra.ao_second, bra.ao_first, bra.first
        n_mixed, n_ao = self._extents
        return {
            **dict(zip(digest.BRA, layout, strict=True)),
            "bra_rows": records.shape[1],
            "rows": len(ket.rows),
            "ket_rows": lanes.shape[1],
            "n_ab": n_ab,
            "n_cd": n_cd,
            "n_d": ket.pairs.ncb,
            "sets": len(dms),
            "n_mixed": n_mixed,
            "n_ao": n_ao,
            "bra_count": bra.count,
            "bra": records,
            "bra_centre": bra.centre,
            "bra_bound": bra.bound,
            "ao_i": ao_i,
            "ao_j": ao_j,
            "shell_j": shell_j,
            "ket_count": ket.rows.count,
            "ket": lanes,
            "ket_centre": ket.rows.centre,
            "ket_bound": ket.rows.bounds,
            "row_bound": ket.rows.bound,
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


def _class(bra: ShellPairs, ket: ShellPairs, operator: str) -> QuartetClass:
    return QuartetClass(bra.la, bra.lb, ket.la, ket.lb, bra.cartesian, bra.general or ket.general, operator)


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
    """Pairs of like bounds side by side, so that a row is screened as a whole."""
    pairs = _by_bound(pairs)
    rows = rows_of(pairs, library.lanes())
    share = np.where(pairs.first == pairs.second, 0.5, 1.0)[rows.members]
    share.ravel()[len(pairs) :] = 0.0
    return _Ket(pairs, rows, share)


def _shell_maxima(kets: Sequence[_Ket], dms: np.ndarray) -> np.ndarray:
    """Largest |D| of all sets between two shells, [shells, shells]; the shells are those of the pairs."""
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
    # [rows, lanes, q, c, d]
    row = first[..., None, None, None] + (qc[:, None] * nc + c)[:, :, None]
    column = second[..., None, None, None] + (qd[:, None] * nd + d)[:, None, :]
    both = (dms + dms.swapaxes(1, 2))[:, row, column] * ket.share[..., None, None, None]
    folded = np.ascontiguousarray(np.moveaxis(both.reshape(*both.shape[:4], nc * nd), 2, -1))
    far = abs(folded).max(axis=(0, 2, 3, 4), initial=0.0)
    one, two = largest[:, ket.of(pairs.first)], largest[:, ket.of(pairs.second)]
    return _Densities(folded, far, np.ascontiguousarray(np.maximum(one, two).max(axis=-1)))
