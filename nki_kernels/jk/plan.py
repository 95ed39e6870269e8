"""Sizes of the launches of fitted J and K, and the arrays that the host makes for them.

Kernels call `lane_of` and `ceil` when they are compiled; the host calls the other functions before a launch.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

P = 128  # partitions
RUN = 512  # columns of the moving operand; one PSUM bank of fp32
CHUNK = 4  # blocks of 128 pairs in one load of J
MOST_ROWS = 2048  # fitting functions of a launch of J on one core, of which SBUF holds CHUNK blocks of pairs twice
GROUP = 32  # fitting functions of one pass of the loop of K, at most; a power of two
BODY = 1024  # products of fp32 operands in one pass of the loop of K, at most; a split has several times as many
STAGES = 4  # tiles of X in fp32 on their way to its parts
SBUF_BYTES = 168 * 1024  # bytes per partition that every generation can use
MOST_ELEMENTS = 2**31 - 1  # elements of an array in a launch, since offsets are 32-bit integers


def ceil(a: int, b: int):
    """a / b, rounded up."""
    return (a + b - 1) // b


def lane_of(nocc: int):
    """Partitions of the half-transformed integrals of one fitting function: instructions start at multiples of 32."""
    if nocc <= 32:
        return 32
    return 64 if nocc <= 64 else P


@dataclass(frozen=True)
class ExchangeSizes:
    """Sizes of a launch of K.

    Attributes
    ----------
    blocks
        Functions on each partition.
    group
        Fitting functions of one pass of the loop, a power of two, at least those whose orbitals share the partitions.
    ring
        Fitting functions whose integrals are on chip at once.
    """

    blocks: int
    group: int
    ring: int


def exchange_products(nao: int, nocc: int) -> int:
    """Products of fp32 operands for one fitting function."""
    blocks = ceil(nao, P)
    triangle = sum(ceil(min(P * (m + 1), nao), RUN) for m in range(blocks))
    return ceil(nocc, P) * (blocks * ceil(nao, RUN) + triangle)


def exchange_bytes(nao: int, nocc: int, itemsize: int, group: int, ring: int) -> int:
    """Bytes per partition: the sums, the orbitals, a stage, half-transformed integrals of a group, and the ring."""
    blocks = ceil(nao, P)
    triangle = sum(min(P * (m + 1), nao) for m in range(blocks))
    half = ceil(nocc, P) * nao * itemsize * group // (P // lane_of(nocc))
    return 4 * triangle + blocks * nocc * itemsize + 4 * STAGES * RUN + half + ring * blocks * nao * itemsize


def exchange_sizes(nao: int, nocc: int, itemsize: int) -> ExchangeSizes | None:
    """Return the sizes for so many functions and orbitals, or None where the sums of K do not fit SBUF.

    itemsize: bytes of an integral, summed over the parts of a split.
    """
    products, together, group = exchange_products(nao, nocc), P // lane_of(nocc), GROUP
    while group > together and (products * group > BODY or exchange_bytes(nao, nocc, itemsize, group, 2) > SBUF_BYTES):
        group //= 2
    rings = [n for n in range(1, min(group + 1, 8) + 1) if exchange_bytes(nao, nocc, itemsize, group, n) <= SBUF_BYTES]
    return ExchangeSizes(ceil(nao, P), group, rings[-1]) if rings else None


@dataclass(frozen=True)
class CoulombSizes:
    """Sizes of a launch of J.

    Attributes
    ----------
    pairs
        Pairs of functions, with the zeros that fill the last pass.
    chunk
        Blocks of 128 pairs in one load.
    turns
        Loads in one pass of a loop.
    """

    pairs: int
    chunk: int
    turns: int


def coulomb_sizes(pairs: int) -> CoulombSizes:
    """Return the sizes for so many pairs: passes of equal length, with as few zeros as possible.

    Examples
    --------
    >>> coulomb_sizes(28)
    CoulombSizes(pairs=128, chunk=1, turns=1)
    >>> coulomb_sizes(1300)
    CoulombSizes(pairs=1536, chunk=3, turns=2)
    """
    blocks = ceil(pairs, P)
    turns = min(2, blocks)
    passes = ceil(blocks, turns * CHUNK)
    chunk = ceil(blocks, turns * passes)
    return CoulombSizes(passes * turns * chunk * P, chunk, turns)


def launches(naux: int, step: int, most: int) -> list[slice]:
    """Return ranges of fitting functions of equal length, a multiple of ``step`` and at most about ``most``.

    The last range may end beyond the last function: what is missing is filled with zeros.

    Examples
    --------
    >>> launches(300, 128, 256)
    [slice(0, 256, None), slice(256, 512, None)]
    """
    count = ceil(naux, max(most // step, 1) * step)
    length = ceil(ceil(naux, count), step) * step
    return [slice(first, first + length) for first in range(0, naux, length)]


def on_partitions(rows: np.ndarray, blocks: int) -> np.ndarray:
    """Return rows [..., nao, m] as [..., height, blocks m]: ``blocks`` successive rows on each partition, and zeros."""
    *many, nao, m = rows.shape
    height = ceil(nao, blocks)
    if height * blocks > nao:
        rows = np.concatenate((rows, np.zeros((*many, height * blocks - nao, m), rows.dtype)), axis=-2)
    return rows.reshape(*many, height, blocks * m)


def padded(rows: np.ndarray, count: int, columns: int) -> np.ndarray:
    """Return rows [n, m] in a larger array [count, columns] with zeros elsewhere."""
    larger = np.zeros((count, columns), rows.dtype)
    larger[: len(rows), : rows.shape[1]] = rows
    return larger


def by_blocks(vectors: np.ndarray) -> np.ndarray:
    """Return vectors [n, pairs] in the order of the kernel of J, [128, pairs / 128, n]: pair 128 x + p at [p, x]."""
    return np.ascontiguousarray(vectors.reshape(len(vectors), -1, P).transpose(2, 1, 0))


def from_blocks(blocks: np.ndarray) -> np.ndarray:
    """Return vectors [n, pairs] from the order of the kernel of J."""
    return blocks.transpose(2, 1, 0).reshape(blocks.shape[2], -1)
