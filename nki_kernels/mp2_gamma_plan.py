"""Host side of ``mp2_gamma``: which orbitals a launch takes, and its work lists.

    orbitals  --blocks-->  Sides of each launch     (so that Theta fits the memory)
    Sides, tiles, orbital energies  --launch_lists-->  work lists of both halves
    B of both sides  --pack_sides-->  bt, b

Pairs and their factors are laid out as for the pair energies (``mp2_plan``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from nki_kernels import mp2_plan as plan
from nki_kernels.cores import range_of_core
from nki_kernels.gemm_blocks import BANKS
from nki_kernels.mp2_plan import RUN, Mp2Tiles, P
from nki_kernels.mp2_sums import sum_classes
from nki_kernels.precision.splits import PRECISIONS, split

MOST_ELEMENTS = 2**31 - 1
"""Elements of one part of Theta in a launch: offsets are int32."""
THETA_BYTES = 2**32
"""Bytes of Theta in a launch, unless the caller sets less: a quarter of the HBM of a core of trn1, an assumption."""


@dataclass(frozen=True)
class Sides:
    """The orbitals of a launch: all pairs of one set (nocc_right = 0), or all pairs between two sets.

    partners: whether t_ij^ba belongs to the pair i, j; not so for the two spins of an open shell.
    """

    nocc_left: int
    nvir_left: int
    nocc_right: int = 0
    nvir_right: int = 0
    partners: bool = True

    @property
    def left(self) -> int:
        """Rows (i, a) of the left orbitals."""
        return self.nocc_left * self.nvir_left

    @property
    def right(self) -> int:
        """Rows (j, b) with which the left orbitals make pairs."""
        return self.nocc_right * self.nvir_right or self.left

    @property
    def elements(self) -> int:
        """Elements of Theta, one part."""
        return self.left * self.right * (2 if self.nocc_right else 1)

    @property
    def nvir(self) -> int:
        """Virtual orbitals of the larger side, to which factors are padded in memory."""
        return max(self.nvir_left, self.nvir_right)


@dataclass(frozen=True)
class GammaTiles:
    """Compile-time constants of one program: those of the pairs, and those of the second product.

    rows, cols: elements of a block of Gamma; depth: contraction blocks of 128 of one item.
    """

    pairs: Mp2Tiles
    rows: int
    cols: int
    depth: int


def columns(naux: int, rows: int) -> int:
    """Columns of a block of Gamma that has ``rows`` rows: naux in even parts, of which each fits PSUM."""
    most = RUN * (BANKS // -(-rows // P))
    return -(-naux // -(-naux // most))


def choose_tiles(nvir: int, naux: int, itemsize: int, group: int = 8) -> GammaTiles:
    """Tiles for sets of at most nvir virtuals, itemsize in bytes over all parts of a factor."""
    rows = 4 * P
    return GammaTiles(plan.choose_tiles(nvir, naux, itemsize, group=group), rows, columns(naux, rows), depth=16)


@dataclass(frozen=True, eq=False)
class GammaWork:
    """Work lists of a launch, as the kernel takes them."""

    e_pair: np.ndarray
    work: np.ndarray
    items: np.ndarray
    keep: np.ndarray
    bounds: np.ndarray

    @property
    def arrays(self) -> tuple[np.ndarray, ...]:
        """All of them, in the order of the kernel's arguments."""
        return self.e_pair, self.work, self.items, self.keep, self.bounds


def constants(sides: Sides, tiles: GammaTiles) -> dict[str, int]:
    """The kernel's compile-time arguments."""
    return {
        "nvir_left": sides.nvir_left,
        "nvir_right": sides.nvir_right,
        "left": sides.left,
        "kchunk": tiles.pairs.kchunk,
        "partners": int(sides.partners),
        "rows": tiles.rows,
        "cols": tiles.cols,
        "depth": tiles.depth,
    }


def shapes(
    sides: Sides, naux: int, tiles: GammaTiles, precision: str, cores: int, fill: Callable[[tuple[int, ...], Any], Any]
) -> tuple[tuple[Any, ...], dict[str, int]]:
    """Arguments of a launch whose factors fill(shape, dtype) makes; orbital energies with a gap."""
    pairs, norb = tiles.pairs, sides.nocc_left + sides.nocc_right
    eps = -np.linspace(2.0, 0.5, norb)
    lists = launch_lists(sides, eps[: sides.nocc_left], eps[sides.nocc_left :], tiles, cores)
    virtuals = [np.linspace(0.1, 3.0, n) for n in (sides.nvir_left, sides.nvir_right or sides.nvir_left)]
    rows = sides.left + (sides.right if sides.nocc_right else 0)
    form = PRECISIONS[precision]
    bt = fill((form.parts, norb * pairs.nblk, P, pairs.nk, pairs.block), form.dtype)
    b = fill((form.parts, rows, naux), form.dtype)
    return (bt, b, *pack_energies(virtuals[0], virtuals[1], pairs), mix(2.0, 1.0), *lists.arrays), constants(
        sides, tiles
    )


def launch_lists(sides: Sides, eps_left: np.ndarray, eps_right: np.ndarray, tiles: GammaTiles, cores: int) -> GammaWork:
    """Both halves' work lists; eps_right is empty for one set of orbitals."""
    if sides.elements > MOST_ELEMENTS:
        raise ValueError(f"mp2_gamma: {sides.elements} amplitudes in one launch, {MOST_ELEMENTS} are allowed")
    first = _pair_list(sides, np.concatenate((eps_left, eps_right)), tiles.pairs, cores)
    items, keep, bounds = _sum_list(sides, tiles, cores)
    return GammaWork(
        first.e_pair, _with_places(first.rows, sides, tiles.pairs), items, keep, np.hstack((first.bounds, bounds))
    )


def _pair_list(sides: Sides, eps: np.ndarray, tiles: Mp2Tiles, cores: int) -> plan.WorkList:
    n = sides.nocc_left
    if not sides.nocc_right:
        return plan.work_list(plan.star_pairs(n, tiles.group), eps, tiles, cores)
    i, j = np.meshgrid(np.arange(n), np.arange(n, n + sides.nocc_right), indexing="ij")
    pairs = np.stack((i.ravel(), j.ravel()), axis=1)
    kinds = None if sides.partners else plan.rectangle_pairs(sides.nvir_left, sides.nvir_right, tiles.block)
    return plan.work_list(pairs, eps, tiles, cores, kinds=kinds)


def _with_places(rows: np.ndarray, sides: Sides, tiles: Mp2Tiles) -> np.ndarray:
    """Work rows with the element offsets of X, Y, X^T and Y^T in Theta for each j, before the last two columns."""
    group, nblk, block = tiles.group, tiles.nblk, tiles.block
    orbitals, a, b = rows[:, : 2 + 2 * group : 2].astype(np.int64) // nblk, rows[:, -2] * block, rows[:, -1] * block
    same = orbitals[:, 0] == orbitals[:, 1]
    second = sides.left * sides.right if sides.nocc_right else 0
    places = []
    for g in range(group):
        j = orbitals[:, 1 + g]
        i = np.where(same, j, orbitals[:, 0])
        if sides.nocc_right:
            j = np.maximum(j - sides.nocc_left, 0)
        nvir = sides.nvir_right or sides.nvir_left
        left, right = i * sides.nvir_left, j * nvir
        places += [
            (left + a) * sides.right + right + b,
            second + (right + a) * sides.left + left + b,
            second + (right + b) * sides.left + left + a,
            (left + b) * sides.right + right + a,
        ]
    return np.hstack((rows[:, :-2], np.stack(places, axis=1).astype(np.int32), rows[:, -2:]))


def _sum_list(sides: Sides, tiles: GammaTiles, cores: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(offsets into Theta, b and Gamma [n, 3]; keep [n, 1]; bounds [cores, 2 classes]) of the second half."""
    naux = tiles.pairs.naux
    products = [(sides.left, sides.right, 0, 0, 0)]  # M, K, first element of Theta, first row of b, first row of Gamma
    if sides.nocc_right:
        second = sides.left * sides.right
        products = [
            (sides.left, sides.right, second, sides.left, 0),
            (sides.right, sides.left, 0, 0, sides.left),
        ]
    items: list[tuple[int, int, int]] = []
    keep: list[float] = []
    bounds: list[list[int]] = [[] for _ in range(cores)]
    for M, K, theta, source, target in products:
        for m, n, k, steps, resumed in sum_classes(M, naux, K, tiles.rows, tiles.cols, tiles.depth):
            first = len(items)
            begin = K - k if steps == 1 and k % (tiles.depth * P) else 0
            for block in range(m[1] * n[1]):
                row, column = m[2] + block // n[1] * m[0], n[2] + block % n[1] * n[0]
                for step in range(steps):
                    at = begin + step * k
                    items.append((theta + at * M + row, (source + at) * naux + column, (target + row) * naux + column))
                    keep.append(1.0 if resumed or step else 0.0)
            for core in range(cores):
                bounds[core] += [first + steps * block for block in range_of_core(m[1] * n[1], core, cores)]
    return np.array(items, np.int32), np.array(keep, np.float32)[:, None], np.array(bounds, np.int32)


def pack_sides(
    left: np.ndarray, right: np.ndarray | None, sides: Sides, tiles: GammaTiles, precision: str
) -> tuple[np.ndarray, np.ndarray]:
    """B of the left and of the right orbitals, fp64 [nocc, nvir, naux], as the kernel's bt and b."""
    sets = [left] if right is None else [left, right]
    naux = tiles.pairs.naux
    b = split(np.concatenate([x.reshape(-1, naux) for x in sets]), precision)
    padded = [np.pad(x, ((0, 0), (0, sides.nvir - x.shape[1]), (0, 0))) for x in sets]
    return plan.pack_factors(np.concatenate(padded), tiles.pairs, precision), b


def pack_energies(eps_left: np.ndarray, eps_right: np.ndarray, tiles: Mp2Tiles) -> tuple[np.ndarray, np.ndarray]:
    """ev_row of the right virtuals and ev_col of the left ones, each padded to the larger set."""
    pad = [np.pad(eps, (0, tiles.nvir - len(eps))) for eps in (eps_left, eps_right)]
    return plan.pack_virtuals(pad[1], tiles)[0], plan.pack_virtuals(pad[0], tiles)[1]


def mix(direct: float, exchange: float) -> np.ndarray:
    """alpha, beta and their sum for t~_ij^ab = direct t_ij^ab - exchange t_ij^ba."""
    return np.array([[direct, -exchange, direct - exchange]], np.float32)


def blocks(sides: Sides, most: int) -> Iterator[tuple[Sides, slice, slice | None]]:
    """Launches of at most ``most`` elements of Theta that make up all pairs, with the orbitals of each side.

    The blocks of a set have at most two sizes, so that launches of the same sizes share a program.
    """
    if sides.elements <= most:
        yield sides, slice(0, sides.nocc_left), slice(0, sides.nocc_right) if sides.nocc_right else None
        return
    count = 2
    while not _fits(sides, count, most):
        count += 1
    left = _cuts(sides.nocc_left, count)
    right = _cuts(sides.nocc_right, count) if sides.nocc_right else left
    for n, (a, b) in enumerate(left):
        if not sides.nocc_right:
            yield replace(sides, nocc_left=b - a), slice(a, b), None
        for c, d in right if sides.nocc_right else left[:n]:
            nvir = sides.nvir_right or sides.nvir_left
            part = Sides(b - a, sides.nvir_left, d - c, nvir, sides.partners)
            yield part, slice(a, b), slice(c, d)


def _fits(sides: Sides, count: int, most: int) -> bool:
    rows = -(-sides.nocc_left // count) * sides.nvir_left
    others = -(-sides.nocc_right // count) * sides.nvir_right if sides.nocc_right else rows
    if count > max(sides.nocc_left, sides.nocc_right):
        raise ValueError(f"mp2_gamma: one pair has {2 * rows * others} amplitudes, {most} are allowed in a launch")
    return 2 * rows * others <= most


def _cuts(nocc: int, count: int) -> list[tuple[int, int]]:
    step = -(-nocc // count)
    return [(n, min(n + step, nocc)) for n in range(0, nocc, step)]
