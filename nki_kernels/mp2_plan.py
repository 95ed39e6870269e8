"""The host side of the pair-energy kernel: tile sizes -> packed factors -> work list -> launches -> pair energies.

    B[i, a, P]  --pack_factors-->  bt[part, i * nblk + A, p, k, a']     P = 128 k + p, a = block * A + a'
    pairs       --work_list----->  WorkList(rows, bounds, e_pair, owner)
    out[n, p, g, 2]  --sum_lanes-->  per-pair (opposite spin, same spin), added in fp64

The auxiliary index is on the partitions, so that both operands of the tensor engine are read as they are stored and
nothing is transposed. The data of one block on a partition are contiguous (nk * block elements), so that one large DMA
loads an operand. The padding of the last auxiliary and the last virtual block exists in memory but is never multiplied.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.cores import range_of_core
from nki_kernels.precision.splits import split

P = 128  # partitions: rows of the contraction index in one matmul, and columns of the stationary operand
RUN = 512  # columns of the moving operand of one matmul, which fill one PSUM bank in fp32
ACCUMULATORS = 6  # PSUM banks that hold products; the two others hold transposed diagonal tiles
SCRATCH = 14 * RUN * 4  # bytes per partition of working tiles: mp2_gamma needs the most, mp2_energy 10 * RUN * 4
SIDE_BY_SIDE = 6400  # elements per partition of all B_j that are loaded together
FIELDS = 4  # fields of a work row besides the blocks of each j: the blocks A and B of i, then A and B themselves


@dataclass(frozen=True)
class Mp2Tiles:
    """Compile-time constants of one program.

    block: virtual orbitals of one block (nvir itself, or a multiple of 128). kchunk: auxiliary blocks of 128 that lie
    in SBUF at once (all of them, or fewer when factors are streamed). group: number of j that share one i in a body.
    """

    nvir: int
    naux: int
    block: int
    kchunk: int
    group: int

    @property
    def nk(self) -> int:
        return -(-self.naux // P)

    @property
    def nblk(self) -> int:
        return -(-self.nvir // self.block)

    @property
    def at_once(self) -> int:
        """The number of orbitals j that are loaded together."""
        return pairs_at_once(self.block, self.nblk, self.nk, self.kchunk, self.group)

    def sbuf_bytes(self, itemsize: int) -> int:
        """Bytes per partition of the kernel's tiles; itemsize sums over the parts of a split factor."""
        sets = 1 if self.kchunk == self.nk else 2  # B_i, in turn when streamed, and twice several B_j
        sets += 2 * self.at_once
        operands = sets * min(self.nblk, 2) * self.kchunk * self.block * itemsize
        rtiles = -(-self.block // P)
        energies = 4 * (self.block + rtiles * (1 + self.group))
        sums = 8 * self.group * (1 + max(len(tile_list(*kind)) for kind in block_kinds(self.nvir, self.block)))
        return operands + energies + sums + SCRATCH + 1024


def pairs_at_once(block: int, nblk: int, nk: int, kchunk: int, group: int) -> int:
    """The number of orbitals j that are loaded together, so that the products of several lie side by side in PSUM.

    As many as a PSUM bank has room for squares of a row tile, as far as their factors are small.
    """
    if kchunk < nk:
        return 1
    return max(1, min(min(group, RUN // min(block, P)), SIDE_BY_SIDE // (min(nblk, 2) * nk * block)))


def same_group(nblk: int, group: int) -> int:
    """The number of pairs i = j in a group; none form groups if there are several blocks, whose programs are long."""
    return group if nblk == 1 else 1


def choose_tiles(nvir: int, naux: int, itemsize: int, sbuf_bytes: int = 176 * 1024, group: int = 8) -> Mp2Tiles:
    """Tiles that fit ``sbuf_bytes`` per partition, itemsize as in ``Mp2Tiles.sbuf_bytes``.

    Whole factors B_i stay on chip when three fit; else blocks of at least 512 virtuals; else blocks of 256, small
    enough for all products of a block to stay in PSUM, with the auxiliary index streamed in chunks.
    """
    nk = -(-naux // P)
    whole = Mp2Tiles(nvir, naux, nvir, nk, group)
    if whole.sbuf_bytes(itemsize) <= sbuf_bytes:
        return whole
    for nblk in range(2, -(-nvir // RUN) + 1):
        block = P * -(-nvir // (nblk * P))
        if block < nvir and Mp2Tiles(nvir, naux, block, nk, group).sbuf_bytes(itemsize) <= sbuf_bytes:
            return Mp2Tiles(nvir, naux, block, nk, group)
    block = min(nvir, 2 * P)
    chunks = [k for k in range(1, nk + 1) if Mp2Tiles(nvir, naux, block, k, 1).sbuf_bytes(itemsize) <= sbuf_bytes]
    if not chunks:
        least = Mp2Tiles(nvir, naux, block, 1, 1).sbuf_bytes(itemsize)
        raise ValueError(
            f"mp2_energy: at least {least} bytes of SBUF per partition are needed, {sbuf_bytes} are allowed"
        )
    return Mp2Tiles(nvir, naux, block, chunks[-1], 1)


def block_kinds(nvir: int, block: int):
    """Shapes of the block pairs (A, B), A <= B: (rows, columns, A == B). At most four, whatever nvir."""
    nblk = -(-nvir // block)
    last = nvir - (nblk - 1) * block
    kinds = [(last, last, True)]
    if nblk > 1:
        kinds = kinds + [(block, block, True), (block, last, False)]
    if nblk > 2:
        kinds = kinds + [(block, block, False)]
    return kinds


def tile_list(rows: int, cols: int, same: bool):
    """Tiles (a0, m, b0, n, diagonal) of one block pair: row tiles of 128, column runs of at most 512 of even length."""
    tiles = []
    for a0 in range(0, rows, P):
        m = min(P, rows - a0)
        start = 0
        if same:
            tiles.append((a0, m, a0, m, True))
            start = a0 + m
        runs = (cols - start + RUN - 1) // RUN
        for r in range(runs):
            b0 = start + (cols - start) * r // runs
            b1 = start + (cols - start) * (r + 1) // runs
            tiles.append((a0, m, b0, b1 - b0, False))
    return tiles


def _edge_sizes(nvir: int, block: int):
    """Sizes of the last block of nvir virtuals and, if there are more, of the others."""
    nblk = -(-nvir // block)
    last = nvir - (nblk - 1) * block
    return [last] if nblk == 1 else [last, block]


def rectangle_kinds(nvir_left: int, nvir_right: int, block: int):
    """Shapes of the block pairs (A, B) of two sets of virtuals, all A with all B, as `block_kinds` gives them."""
    kinds = []
    for m in _edge_sizes(nvir_left, block):
        for n in _edge_sizes(nvir_right, block):
            kinds = kinds + [(m, n, False)]
    return kinds


def rectangle_pairs(nvir_left: int, nvir_right: int, block: int) -> list[list[tuple[int, int]]]:
    """The block pairs (A, B) of each of `rectangle_kinds`."""
    sides = [[[-(-nvir // block) - 1], list(range(-(-nvir // block) - 1))] for nvir in (nvir_left, nvir_right)]
    left, right = ([blocks for blocks in side if blocks] for side in sides)
    return [[(a, b) for a in rows for b in columns] for rows in left for columns in right]


def block_pairs(tiles: Mp2Tiles, kind: int) -> list[tuple[int, int]]:
    """The block pairs (A, B) of one of ``block_kinds``."""
    end = tiles.nblk - 1
    return [
        [(end, end)],
        [(a, a) for a in range(end)],
        [(a, end) for a in range(end)],
        [(a, b) for a in range(end) for b in range(a + 1, end)],
    ][kind]


@dataclass(frozen=True, eq=False)
class WorkList:
    """Work items of one launch, sorted by class = pair kinds (see `group_pairs`) x block kinds.

    rows int32 [n, FIELDS + 2 group]: (i, A), (i, B), then (j, A), (j, B) per j, as block numbers of bt, then A, B.
    bounds int32 [cores, 2 classes]: first and last + 1 item of each class for each core, equally many for all cores.
    e_pair float32 [n, group]: eps_i + eps_j in Hartree. owner int [n, group]: index into the pairs, -1 where unused.
    """

    rows: np.ndarray
    bounds: np.ndarray
    e_pair: np.ndarray
    owner: np.ndarray
    weight: np.ndarray


def star_pairs(nocc: int, group: int) -> np.ndarray:
    """All pairs, int [npair, 2]: first those that fill groups of ``group`` around a first index, then the rest.

    Which index of a pair comes first is free. As many pairs as possible fill groups if every orbital is first in a
    multiple of ``group`` pairs: a tournament with these scores is made by letting one orbital after another win against
    those that still have the fewest wins to come, and lose to the others (Landau's theorem; a score that cannot be met
    is met as nearly as possible, which leaves a few more single pairs).
    """
    stars, rest = divmod(nocc * (nocc - 1) // 2, group)
    wins = [group * (stars // nocc + (i < stars % nocc)) for i in range(nocc)]
    wins[-1] += rest
    beaten: list[list[int]] = [[] for _ in range(nocc)]
    for i in range(nocc - 1, -1, -1):
        others = sorted(range(i), key=lambda j: wins[j])
        won = min(max(wins[i], 0), i)
        beaten[i] += others[:won]
        for j in others[won:]:
            beaten[j].append(i)
            wins[j] -= 1
    full = [len(js) // group * group for js in beaten]
    grouped = [(i, j) for i in range(nocc) for j in beaten[i][: full[i]]]
    single = [(i, j) for i in range(nocc) for j in beaten[i][full[i] :]]
    return np.array([*grouped, *single, *((i, i) for i in range(nocc))])


def cross_pairs(n: int, nocc: int, group: int) -> np.ndarray:
    """Pairs of every i in [n, nocc) with every j in [0, n), ordered as in `star_pairs`: full groups, then the rest."""
    full = n // group * group
    grouped = [(i, j) for i in range(n, nocc) for j in range(full)]
    return np.array([*grouped, *((i, j) for i in range(n, nocc) for j in range(full, n))])


def group_pairs(pairs: np.ndarray, group: int, same: int) -> list[list[list[int]]]:
    """Indices into pairs by pair kind: groups of pairs with one first index, single ones, groups of i = j, single."""
    kinds: list[list[list[int]]] = [[], []]
    for i in np.unique(pairs[:, 0]):
        _group(kinds[0], kinds[1], np.flatnonzero((pairs[:, 0] == i) & (pairs[:, 1] != i)), group)
    kinds += [[], []]
    _group(kinds[2], kinds[3], np.flatnonzero(pairs[:, 0] == pairs[:, 1]), same)
    return kinds


def _group(grouped: list[list[int]], single: list[list[int]], numbers: np.ndarray, group: int) -> None:
    """Append numbers to lists of ``group`` and the rest to those of one."""
    full = len(numbers) // group * group if group > 1 else 0
    grouped += numbers[:full].reshape(-1, group).tolist()
    single += numbers[full:, None].tolist()


def work_list(
    pairs: np.ndarray,
    eps_occ: np.ndarray,
    tiles: Mp2Tiles,
    cores: int = 1,
    capacity: int | None = None,
    kinds: list[list[tuple[int, int]]] | None = None,
) -> WorkList:
    """Work items for pairs int [npair, 2]; padded with unused rows to ``capacity`` so that launches share a program.

    kinds: block pairs by kind; by default those of `block_kinds`.
    """
    nblk, group = tiles.nblk, tiles.group
    if kinds is None:
        kinds = [block_pairs(tiles, kind) for kind in range(len(block_kinds(tiles.nvir, tiles.block)))]
    rows, owner, limits = [], [], []
    for members in group_pairs(pairs, group, same_group(tiles.nblk, group)):
        for blocks in kinds:
            first = len(rows)
            for ns in members:
                i, js = pairs[ns[0], 0], pairs[ns, 1]
                for a, b in blocks:
                    js_blocks = [j * nblk + x for j in js for x in (a, b)]
                    pad = 2 * (group - len(js))
                    rows.append([i * nblk + a, i * nblk + b, *js_blocks, *[0] * pad, a, b])
                    owner.append([*ns, *[-1] * (group - len(ns))])
            limits.append((first, len(rows)))
    bounds = bounds_of_cores(limits, cores)
    size = capacity or len(rows)
    if len(rows) > size:
        raise ValueError(f"work list: {len(rows)} items do not fit the capacity of {size}")
    table = np.zeros((size, FIELDS + 2 * group), np.int32)
    table[: len(rows)] = rows
    owners = np.full((size, group), -1)
    owners[: len(rows)] = owner
    e_pairs = eps_occ[pairs].sum(axis=1)
    e_pair = np.where(owners >= 0, e_pairs[owners], 0.0).astype(np.float32)
    weight = np.where(pairs[:, 0] == pairs[:, 1], 1.0, 2.0)
    return WorkList(table, bounds, e_pair, owners, weight)


def bounds_of_cores(limits: list[tuple[int, int]], cores: int) -> np.ndarray:
    """The items of each class for each core (`WorkList.bounds`), from the first and last + 1 of each class.

    Items write to places of their own and read none of them, so that ranges may overlap (`range_of_core`).
    """
    bounds = [
        [first + edge for first, last in limits for edge in range_of_core(last - first, core, cores)]
        for core in range(cores)
    ]
    return np.array(bounds, np.int32)


def launches(
    nocc: int,
    eps_occ: np.ndarray,
    tiles: Mp2Tiles,
    cores: int,
    pairs_a_launch: int,
    pairs: np.ndarray | None = None,
) -> list[tuple[np.ndarray, WorkList]]:
    """All pairs of ``nocc`` orbitals, or those given, as (pairs, work list) of launches that share one program."""
    pairs = star_pairs(nocc, tiles.group) if pairs is None else pairs
    step = -(-pairs_a_launch // tiles.group) * tiles.group
    chunks = [pairs[n : n + step] for n in range(0, len(pairs), step)]
    capacity = max(len(work_list(chunk, eps_occ, tiles).rows) for chunk in chunks)
    return [(chunk, work_list(chunk, eps_occ, tiles, cores, capacity)) for chunk in chunks]


def pack_factors(B: np.ndarray, tiles: Mp2Tiles, precision: str) -> np.ndarray:
    """B[nocc, nvir, naux] fp64 -> bt[parts, nocc * nblk, 128, nk, block], rounded once; parts: see ``split``."""
    nocc = B.shape[0]
    bt: Any = None
    for i in range(nocc):
        padded = np.zeros((tiles.nk * P, tiles.nblk * tiles.block))
        padded[: tiles.naux, : tiles.nvir] = B[i].T
        blocks = split(padded.reshape(tiles.nk, P, tiles.nblk, tiles.block).transpose(2, 1, 0, 3), precision)
        if bt is None:
            bt = np.empty((len(blocks), nocc, *blocks.shape[1:]), blocks.dtype)
        bt[:, i] = blocks
    return bt.reshape(len(bt), nocc * tiles.nblk, P, tiles.nk, tiles.block)


def pack_virtuals(eps_vir: np.ndarray, tiles: Mp2Tiles) -> tuple[np.ndarray, np.ndarray]:
    """-eps_a for columns, [nblk, block], and for rows, [nblk, 128, row tiles of a block]; float32."""
    rtiles = -(-tiles.block // P)
    negative = np.zeros(tiles.nblk * tiles.block, np.float64)
    negative[: tiles.nvir] = -eps_vir
    row = negative.reshape(tiles.nblk, tiles.block)
    col = np.zeros((tiles.nblk, rtiles * P))
    col[:, : tiles.block] = row
    return row.astype(np.float32), np.ascontiguousarray(
        col.reshape(tiles.nblk, rtiles, P).transpose(0, 2, 1), np.float32
    )


def sum_lanes(out: np.ndarray, work: WorkList, npair: int) -> tuple[np.ndarray, np.ndarray]:
    """Kernel output float32 [n, 128, group, 2] -> E_os, E_ss of each pair, float64 [npair], weight 2 - delta_ij."""
    sums = out.astype(np.float64).sum(axis=1)
    used = work.owner >= 0
    e = np.zeros((npair, 2))
    np.add.at(e, work.owner[used], sums[used])
    e *= work.weight[:, None]
    return e[:, 0], e[:, 0] - e[:, 1]
