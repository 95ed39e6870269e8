"""Two sides of an integral -> every integral in its places: tasks of writers on a pool of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri import boys
from trnqc.eri.classes import COEFFICIENT, CONTRACTION, QuartetClass
from trnqc.eri.kernel import work_size
from trnqc.eri.library import aligned, lanes
from trnqc.eri.pairs import ShellPairs
from trnqc.eri.places import Side
from trnqc.eri.rows import Rows, rows_of
from trnqc.eri.writer import Writer, compiled

# Kernel calls a task, about: small enough to share out evenly, large enough that Python's part does not show.
TASK = 20_000
# Times the screen: below it a primitive contribution is left out. A contracted integral has a hundred that matter.
PRIMITIVE = 1e-2


@dataclass(frozen=True)
class Image:
    """A place of an integral: bra place of a variant times a stride, and the same of the ket."""

    bra: int
    ket: int
    bra_stride: int
    ket_stride: int


@dataclass(frozen=True)
class Operator:
    """coulomb, erf or erfc, and its omega >= 0 in bohr^-1."""

    name: str
    omega: float


@dataclass(frozen=True, eq=False)
class _Bra:
    pairs: ShellPairs
    place: np.ndarray


@dataclass(frozen=True, eq=False)
class _Ket:
    pairs: ShellPairs
    rows: Rows
    place: np.ndarray


@dataclass(frozen=True, eq=False)
class _Task:
    """Bra pairs begin .. end of a class with all rows of a ket class; cost in units of their own."""

    writer: Writer
    bra: _Bra
    ket: _Ket
    arguments: tuple[Any, ...]
    begin: int
    end: int

    @property
    def cost(self) -> float:
        primitives = self.bra.pairs.count[self.begin : self.end].sum() * self.ket.rows.count.sum()
        return float(primitives * np.prod(self.writer.cls.extents))


def fill(
    destination: np.ndarray,
    bra: Side,
    ket: Side,
    images: Sequence[Image],
    operator: Operator,
    screen: float,
    threads: int | None = None,
    *,
    fitted: bool = False,
    same: bool = False,
    triangular: bool = False,
) -> None:
    """Write all integrals of two sides into a flat array, each to all its images.

    screen: integrals whose bound is below it are not written. fitted: the ket is a `places.fitting_side`. same: bra and
    ket are one side, and images hold the exchange of the two, so that half of the classes are enough. triangular: see
    `writer`. Raises UnsupportedClass before anything is computed.
    """
    found = _found(bra, ket, operator, fitted, same, triangular)
    writers = compiled(list(dict.fromkeys(found.values())))
    bras = [_Bra(pairs, _strided(place, [(i.bra, i.bra_stride) for i in images]))
            for pairs, place in zip(bra.classes, bra.places)]  # fmt: skip
    kets = [_ket(pairs, place, images) for pairs, place in zip(ket.classes, ket.places)]
    tasks = [task for (n, m), writer in found.items() for task in _tasks(writer, bras[n], kets[m])]
    tasks.sort(key=lambda task: task.cost, reverse=True)

    scratch = _Scratch(tasks)

    def run(task: _Task) -> None:
        numbers = (screen, PRIMITIVE * screen, operator.omega)
        given = (*numbers, boys.table(task.writer.cls.order), scratch.work, scratch.out, destination)
        writers[task.writer](task.begin, task.end, *task.arguments, *given, 0, len(task.ket.rows))

    threads = threads or lib.num_threads()
    if threads == 1:
        for task in tasks:
            run(task)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, tasks):
            pass


def prepare(bra: Side, ket: Side, operator: Operator, *, fitted: bool = False) -> None:
    """Compile what `fill` will need, before threads ask for it at once. Raises UnsupportedClass, CompilerError."""
    compiled(list(dict.fromkeys(_found(bra, ket, operator, fitted, False, False).values())))


def _found(
    bra: Side, ket: Side, operator: Operator, fitted: bool, same: bool, triangular: bool
) -> dict[tuple[int, int], Writer]:
    """The writer for each class of the bra with each of the ket."""
    return {
        (n, m): Writer(quartet_class(a, b, operator.name), fitted, triangular)
        for n, a in enumerate(bra.classes)
        for m, b in enumerate(ket.classes)
        if not same or _rank(a, n) >= _rank(b, m)
    }


def quartet_class(bra: ShellPairs, ket: ShellPairs, operator: str) -> QuartetClass:
    """The class of kernel for two classes of pairs."""
    return QuartetClass(bra.la, bra.lb, ket.la, ket.lb, bra.cartesian, bra.general or ket.general, operator)


def _rank(pairs: ShellPairs, n: int) -> tuple[int, ...]:
    return pairs.la, pairs.lb, n


def _strided(place: np.ndarray, wanted: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.stack([place[:, v] * stride for v, stride in wanted], axis=1)


def _ket(pairs: ShellPairs, place: np.ndarray, images: Sequence[Image]) -> _Ket:
    rows = rows_of(pairs, lanes())
    strided = _strided(place, [(i.ket, i.ket_stride) for i in images])
    return _Ket(pairs, rows, np.ascontiguousarray(np.moveaxis(strided[rows.members], 1, -1)))


def _tasks(writer: Writer, bra: _Bra, ket: _Ket) -> Iterator[_Task]:
    arguments = _arguments(writer.cls, bra, ket)
    step = max(1, TASK // max(1, len(ket.rows)))
    for begin in range(0, len(bra.pairs), step):
        yield _Task(writer, bra, ket, arguments, begin, min(begin + step, len(bra.pairs)))


def _arguments(cls: QuartetClass, bra: _Bra, ket: _Ket) -> tuple[Any, ...]:
    """Those of `writer.parameters` that all tasks of two classes share."""
    records, by_lane = _widened(bra.pairs.records, cls.general), _widened(ket.rows.records, cls.general)
    n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
    return (
        records.shape[1], by_lane.shape[1], bra.place.shape[1], n_ab, n_cd,
        bra.pairs.count, records, bra.pairs.centre, bra.pairs.bound, bra.place,
        ket.rows.count, by_lane, ket.rows.centre, ket.rows.bounds, ket.rows.bound, ket.place,
    )  # fmt: skip


class _Scratch(threading.local):
    """A thread's own buffers, large enough for every task."""

    def __init__(self, tasks: Sequence[_Task]) -> None:
        sizes = [_sizes(t.writer.cls, t.bra.pairs.contractions, t.ket.pairs.contractions) for t in tasks] or [(0, 0)]
        self.work, self.out = (aligned(max(size), lanes()) for size in zip(*sizes))


@cache
def _sizes(cls: QuartetClass, n_ab: int, n_cd: int) -> tuple[int, int]:
    """Elements of the kernel's work and out; the first takes the kernel's plan to know."""
    return work_size(cls, n_ab, n_cd), n_ab * n_cd * int(np.prod(cls.extents))


def _widened(records: np.ndarray, general: bool) -> np.ndarray:
    """Records of a segmented class as a general kernel reads them: one pair of contractions, of coefficient one."""
    if not general or records.shape[2] > CONTRACTION:
        return records
    ones = (records[:, :, COEFFICIENT : COEFFICIENT + 1] != 0).astype(float)
    return np.concatenate([records, ones], axis=2)
