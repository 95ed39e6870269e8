"""Two sides of an integral -> every integral in its places: tasks of writers on a pool of threads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from pyscf import lib

from trnqc.eri.arrays.sides import Side
from trnqc.eri.arrays.writer import Writer
from trnqc.eri.classes import COEFFICIENT, CONTRACTION, QuartetClass
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.library.programs import build, lanes
from trnqc.eri.shells.pairs import ShellPairs
from trnqc.eri.shells.rows import Rows, rows_of
from trnqc.host.arrays import zeros
from trnqc.jit import CompiledFunction

# Integrals of a tile: they stay in a cache while one class after the other writes its part of the same lines, and are
# many enough for Python's part not to show. Places of the ket in it, each a stretch of memory of its own.
TILE, TILE_KET = 1_000_000, 512
# Tiles a thread gets at the least, to share the work out evenly, and integrals below which that does not matter.
SHARES, SMALL = 8, 20_000
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
    at: np.ndarray
    place: np.ndarray


@dataclass(frozen=True, eq=False)
class _Ket:
    pairs: ShellPairs
    rows: Rows
    place: np.ndarray

    @property
    def width(self) -> int:
        """Places of a row."""
        return int(np.prod(self.place.shape[2:]))


@dataclass(frozen=True, eq=False)
class _Call:
    """The writer for two classes, bound to the arguments that all tiles share; elements of `work` and `out`."""

    function: CompiledFunction
    sizes: tuple[int, int]


# Bra pairs begin .. end of a class with a range of rows of a ket class.
_Part = tuple[_Call, int, int, int, int]


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
    writers = _compiled(found.values())
    bras = [_Bra(pairs, place[:, 0, 0, 0], _strided(place, [(i.bra, i.bra_stride) for i in images]))
            for pairs, place in zip(bra.classes, bra.places)]  # fmt: skip
    kets = [_ket(pairs, place, images) for pairs, place in zip(ket.classes, ket.places)]
    common = {
        "screen": screen,
        "cutoff": PRIMITIVE * screen,
        "omega": operator.omega,
        "destination": destination,
    }
    calls = {
        (n, m): _call(writers[writer].bind(**common), writer.cls, bras[n], kets[m]) for (n, m), writer in found.items()
    }
    threads = threads or lib.num_threads()
    tiles = list(_tiles(calls, bras, kets, bra.size, threads))
    scratch = _Scratch(list(calls.values()))

    def run(tile: list[_Part]) -> None:
        for call, begin, end, first, last in tile:
            call.function(
                begin=begin,
                end=end,
                work=scratch.work,
                out=scratch.out,
                groups_begin=first,
                groups_end=last,
            )

    if threads == 1:
        for tile in tiles:
            run(tile)
        return
    with ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(run, tiles):
            pass


def prepare(bra: Side, ket: Side, operator: Operator, *, fitted: bool = False) -> None:
    """Compile what `fill` will need, before threads ask for it at once. Raises UnsupportedClass, CompilerError."""
    _compiled(_found(bra, ket, operator, fitted, False, False).values())


def _compiled(writers: Iterable[Writer]) -> dict[Writer, CompiledFunction]:
    libraries = build([writer.program for writer in dict.fromkeys(writers)])
    return {writer: getattr(libraries[writer.name], writer.name) for writer in writers}


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


def _tiles(
    calls: dict[tuple[int, int], _Call], bras: Sequence[_Bra], kets: Sequence[_Ket], size: int, threads: int
) -> Iterator[list[_Part]]:
    """What is written at about one time: a range of places of the bra, of all its classes, with rows of a ket class."""
    kets_places = sum(len(ket.rows) * ket.width for ket in kets)
    tile = min(TILE, max(SMALL, size * kets_places // (SHARES * threads)))
    for m, ket in enumerate(kets):
        rows = max(1, TILE_KET // ket.width)
        step = max(1, tile // (rows * ket.width))
        edges = np.arange(0, size + step, step)
        cuts = [np.searchsorted(bra.at, edges).tolist() for bra in bras]
        for first in range(0, len(ket.rows), rows):
            last = min(first + rows, len(ket.rows))
            for e in range(len(edges) - 1):
                parts = [
                    (calls[n, m], cut[e], cut[e + 1], first, last)
                    for n, cut in enumerate(cuts)
                    if (n, m) in calls and cut[e] < cut[e + 1]
                ]
                if parts:
                    yield parts


def _call(function: CompiledFunction, cls: QuartetClass, bra: _Bra, ket: _Ket) -> _Call:
    records, by_lane = _widened(bra.pairs.records, cls.general), _widened(ket.rows.records, cls.general)
    n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
    bound = function.bind(
        bra_rows=records.shape[1],
        ket_rows=by_lane.shape[1],
        copies=bra.place.shape[1],
        n_ab=n_ab,
        n_cd=n_cd,
        bra_count=bra.pairs.count,
        bra=records,
        bra_centre=bra.pairs.centre,
        bra_bound=bra.pairs.bound,
        bra_place=bra.place,
        ket_count=ket.rows.count,
        ket=by_lane,
        ket_centre=ket.rows.centre,
        ket_bound=ket.rows.bounds,
        row_bound=ket.rows.bound,
        ket_place=ket.place,
        boys=boys.table(cls.order),
    )
    return _Call(bound, _sizes(cls, n_ab, n_cd))


class _Scratch(threading.local):
    """A thread's own buffers, large enough for every call: the kernel's work and out."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        sizes = [call.sizes for call in calls] or [(0, 0)]
        self.work, self.out = (zeros((max(size), lanes())) for size in zip(*sizes))


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
