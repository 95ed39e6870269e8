"""Arrays of integrals, filled by threads: bra side, ket side -> calls of writers, a tile of the array at a time."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache

import numpy as np
from pyscf import lib

from trnqc.eri.arrays.sides import ArraySide
from trnqc.eri.arrays.writer import Writer
from trnqc.eri.classes import PRIMITIVE, QuartetClass
from trnqc.eri.compiled.programs import build, lanes
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.operators import Operator
from trnqc.eri.shells.lane_packing import PackedPairs, packed, row_arguments
from trnqc.eri.shells.pairs import ShellPairs, quartet_class
from trnqc.host.arrays import zeros
from trnqc.jit import CompiledFunction

# Integrals of a tile. They stay in the cache while one class after the other writes to the same cache lines, and there
# are enough of them that the time of Python does not matter.
TILE = 1_000_000
# Positions of the ket in a tile; each is a separate range of memory.
TILE_KET = 512
# The fewest tiles of a thread, so that threads end at about the same time.
SHARES = 8
# Integrals of a tile that is not divided for that purpose.
SMALL = 20_000


@dataclass(frozen=True)
class Image:
    """An element for each integral: the bra's position in a variant times a stride, plus the same of the ket."""

    bra: int
    ket: int
    bra_stride: int
    ket_stride: int


@dataclass(frozen=True, eq=False)
class _Bra:
    pairs: ShellPairs
    at: np.ndarray
    place: np.ndarray


@dataclass(frozen=True, eq=False)
class _Ket:
    pairs: ShellPairs
    packed: PackedPairs
    place: np.ndarray

    @property
    def width(self) -> int:
        """Positions of one vector of pairs."""
        return int(np.prod(self.place.shape[2:]))


@dataclass(frozen=True, eq=False)
class _Call:
    """The writer for two classes, bound to the arguments that all tiles share; elements of `work` and `out`."""

    function: CompiledFunction
    sizes: tuple[int, int]


# A call, bra pairs begin .. end of a class, and a range of vectors of a ket class.
_Part = tuple[_Call, int, int, int, int]


def fill(
    destination: np.ndarray,
    bra: ArraySide,
    ket: ArraySide,
    images: Sequence[Image],
    operator: Operator,
    screen: float,
    threads: int | None = None,
    *,
    fitted: bool = False,
    same: bool = False,
    triangular: bool = False,
) -> None:
    """Write all integrals of two sides with Schwarz bounds from `screen` on into `destination`, a flat array of
    zeros.

    Each integral is written to the elements that `images` lists. `fitted` states that the ket is a
    `sides.fitting_side`, and `same` that bra and ket are one side and the images include their exchange: half of the
    classes are then enough. `triangular` is as in `Writer`, and `threads` is by default `pyscf.lib.num_threads()`.
    Raises UnsupportedClass or CompilerError if there are no kernels, before anything is computed.
    """
    writer_of = _writers(bra, ket, operator, fitted, same, triangular)
    writers = _compiled(writer_of.values())
    bras = [
        _Bra(pairs, place[:, 0, 0, 0], _strided(place, [(i.bra, i.bra_stride) for i in images]))
        for pairs, place in zip(bra.classes, bra.places)
    ]
    kets = [_ket(pairs, place, images) for pairs, place in zip(ket.classes, ket.places)]
    common = {
        "screen": screen,
        "cutoff": PRIMITIVE * screen,
        "omega": operator.omega,
        "destination": destination,
    }
    calls = {
        (n, m): _call(writers[writer].bind(**common), writer.cls, bras[n], kets[m])
        for (n, m), writer in writer_of.items()
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


def prepare(bra: ArraySide, ket: ArraySide, operator: Operator, *, fitted: bool = False) -> None:
    """Compile the kernels of `fill` before several threads ask for them at once. Raises UnsupportedClass,
    CompilerError.
    """
    _compiled(_writers(bra, ket, operator, fitted, False, False).values())


def _compiled(writers: Iterable[Writer]) -> dict[Writer, CompiledFunction]:
    libraries = build([writer.program for writer in dict.fromkeys(writers)])
    return {writer: getattr(libraries[writer.name], writer.name) for writer in writers}


def _writers(
    bra: ArraySide, ket: ArraySide, operator: Operator, fitted: bool, same: bool, triangular: bool
) -> dict[tuple[int, int], Writer]:
    """Return the writer for each class of the bra with each of the ket."""
    return {
        (n, m): Writer(quartet_class(a, b, operator.name), fitted, triangular)
        for n, a in enumerate(bra.classes)
        for m, b in enumerate(ket.classes)
        if not same or _rank(a, n) >= _rank(b, m)
    }


def _rank(pairs: ShellPairs, n: int) -> tuple[int, ...]:
    return pairs.la, pairs.lb, n


def _strided(place: np.ndarray, wanted: Sequence[tuple[int, int]]) -> np.ndarray:
    return np.stack([place[:, v] * stride for v, stride in wanted], axis=1)


def _ket(pairs: ShellPairs, place: np.ndarray, images: Sequence[Image]) -> _Ket:
    vectors = packed(pairs, lanes())
    strided = _strided(place, [(i.ket, i.ket_stride) for i in images])
    return _Ket(pairs, vectors, np.ascontiguousarray(np.moveaxis(strided[vectors.members], 1, -1)))


def _tiles(
    calls: dict[tuple[int, int], _Call], bras: Sequence[_Bra], kets: Sequence[_Ket], size: int, threads: int
) -> Iterator[list[_Part]]:
    """Yield tiles: a range of positions of the bra, in all its classes, with a range of vectors of a ket class."""
    positions = sum(len(ket.packed) * ket.width for ket in kets)
    tile = min(TILE, max(SMALL, size * positions // (SHARES * threads)))
    for m, ket in enumerate(kets):
        vectors = max(1, TILE_KET // ket.width)
        step = max(1, tile // (vectors * ket.width))
        edges = np.arange(0, size + step, step)
        cuts = [np.searchsorted(bra.at, edges).tolist() for bra in bras]
        for first in range(0, len(ket.packed), vectors):
            last = min(first + vectors, len(ket.packed))
            for e in range(len(edges) - 1):
                parts = [
                    (calls[n, m], cut[e], cut[e + 1], first, last)
                    for n, cut in enumerate(cuts)
                    if (n, m) in calls and cut[e] < cut[e + 1]
                ]
                if parts:
                    yield parts


def _call(function: CompiledFunction, cls: QuartetClass, bra: _Bra, ket: _Ket) -> _Call:
    n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
    bound = function.bind(
        **row_arguments(cls.general, bra.pairs, ket.pairs, ket.packed),
        copies=bra.place.shape[1],
        bra_place=bra.place,
        ket_place=ket.place,
        boys=boys.table(cls.order),
    )
    return _Call(bound, _sizes(cls, n_ab, n_cd))


class _Scratch(threading.local):
    """The buffers of one thread, large enough for every call: the kernel's work and out."""

    def __init__(self, calls: Sequence[_Call]) -> None:
        sizes = [call.sizes for call in calls] or [(0, 0)]
        self.work, self.out = (zeros((max(size), lanes())) for size in zip(*sizes))


@cache
def _sizes(cls: QuartetClass, n_ab: int, n_cd: int) -> tuple[int, int]:
    """Elements of the kernel's work and out; the first takes the kernel's plan to know."""
    return work_size(cls, n_ab, n_cd), n_ab * n_cd * int(np.prod(cls.extents))
