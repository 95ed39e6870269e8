"""The host side of `mp2_energy` for pairs of opposite spin: tiles -> packed factors -> work list -> pair energies.

    B of both spins, virtual energies  --pack_opposite_spin-->  bt, ev_row, ev_col of one row of virtual blocks
    pairs (i, j)                       --opposite_spin_work-->  WorkList

The virtual blocks of the second spin follow those of the first. For the kernel a work item is a pair i = j with two
different blocks A and B, whose product it computes once and counts twice. Here block A belongs to an orbital i of the
first spin and block B to an orbital j of the second, so that the item is one tile of T_ij[a, b] = (ia|jb). No other
product is computed.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nki_kernels.mp2_plan import (
    FIELDS,
    Mp2Tiles,
    P,
    WorkList,
    block_kinds,
    block_pairs,
    bounds_of_cores,
    pack_factors,
    pack_virtuals,
)

SBUF_BYTES = 176 * 1024  # bytes per partition that tiles may take, as in mp2_plan.choose_tiles
STREAMED = 2 * P  # virtual orbitals in a block whose factors are streamed; all of its products stay in PSUM


@dataclass(frozen=True)
class SpinTiles:
    """Compile-time constants of one program.

    nvir: virtual orbitals of both spins. block: of one block, a multiple of 128. kchunk: as in `Mp2Tiles`.
    """

    nvir: tuple[int, int]
    naux: int
    block: int
    kchunk: int

    @property
    def blocks(self) -> tuple[int, int]:
        """Blocks of each spin."""
        return -(-self.nvir[0] // self.block), -(-self.nvir[1] // self.block)

    @property
    def joined(self) -> Mp2Tiles:
        """The tiles of the kernel: the virtual orbitals of the first spin, padded to whole blocks, then the others."""
        return Mp2Tiles(self.blocks[0] * self.block + self.nvir[1], self.naux, self.block, self.kchunk, 1)

    def of_spin(self, spin: int) -> Mp2Tiles:
        """The tiles by which the factors of one spin are packed."""
        return Mp2Tiles(self.nvir[spin], self.naux, self.block, self.kchunk, 1)


def opposite_spin_tiles(nvir: tuple[int, int], naux: int, itemsize: int, sbuf_bytes: int = SBUF_BYTES) -> SpinTiles:
    """The largest blocks that fit ``sbuf_bytes`` per partition with all of naux, else blocks with streamed factors."""
    nk, most = -(-naux // P), -(-max(nvir) // P)
    whole = [SpinTiles(nvir, naux, P * -(-most // count), nk) for count in range(1, most + 1)]
    streamed = [SpinTiles(nvir, naux, min(STREAMED, P * most), kchunk) for kchunk in range(nk, 0, -1)]
    for tiles in whole + streamed:
        if tiles.joined.sbuf_bytes(itemsize) <= sbuf_bytes:
            return tiles
    least = streamed[-1].joined.sbuf_bytes(itemsize)
    raise ValueError(f"mp2_energy: at least {least} bytes of SBUF per partition are needed, {sbuf_bytes} are allowed")


def pack_opposite_spin(
    B: tuple[np.ndarray, np.ndarray], eps_vir: tuple[np.ndarray, np.ndarray], tiles: SpinTiles, precision: str
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Factors [nocc, nvir, naux] and virtual energies of both spins -> bt, ev_row and ev_col of `mp2_energy`.

    The padding of the first spin has the energy of its last orbital, so that no denominator vanishes there.
    """
    bt = np.concatenate([pack_factors(B[spin], tiles.of_spin(spin), precision) for spin in (0, 1)], axis=1)
    padding = np.full(tiles.blocks[0] * tiles.block - tiles.nvir[0], eps_vir[0][-1])
    return bt, *pack_virtuals(np.concatenate([eps_vir[0], padding, eps_vir[1]]), tiles.joined)


def opposite_spin_work(
    pairs: np.ndarray, e_pair: np.ndarray, nocc: int, tiles: SpinTiles, cores: int, capacity: int
) -> WorkList:
    """Work items for pairs int [npair, 2] of orbitals i of the first and j of the second spin.

    e_pair [npair] holds eps_i + eps_j in Hartree, nocc is the number of orbitals of the first spin in bt, and capacity
    the number of pairs for which there is room, so that launches share one program.
    """
    first, second = tiles.blocks
    kinds = range(len(block_kinds(tiles.joined.nvir, tiles.block)))
    rows, owner, limits = [], [], [(0, 0)] * (3 * len(kinds))  # only single pairs i = j of the kernel have items
    for kind in kinds:
        begin = len(rows)
        for a, b in block_pairs(tiles.joined, kind):
            if a < first <= b:
                offset = nocc * first + b - first
                blocks = [[i * first + a, offset + j * second] for i, j in pairs.tolist()]
                rows += [[*both, *both, a, b] for both in blocks]
                owner += range(len(pairs))
        limits.append((begin, len(rows)))
    size = first * second * capacity
    table, owners = np.zeros((size, FIELDS + 2), np.int32), np.full((size, 1), -1)
    table[: len(rows)], owners[: len(rows), 0] = rows, owner
    energies = np.where(owners >= 0, e_pair[owners], 0.0).astype(np.float32)
    # The kernel counts the product of two blocks twice, for (A, B) and for (B, A).
    return WorkList(table, bounds_of_cores(limits, cores), energies, owners, np.full(len(pairs), 0.5))
