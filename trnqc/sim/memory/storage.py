"""Memory behind tensors in HBM, SBUF and PSUM, and the capacity check over the live ranges of tiles.

Uninitialised memory reads as NaN, or as 4 in integer formats (`dtypes.poison`). A tile occupies its bytes from its
first use to its last; a tile that is allocated outside a device loop and used in it stays live until the loop ends.
Each on-chip tile counts on all partitions, and PSUM is allocated in whole banks.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import Enum
from math import prod

import numpy as np

from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run, TileRecord
from trnqc.sim.machine.rules import broken
from trnqc.sim.machine.targets import PARTITIONS, PSUM_BANK_BYTES, PSUM_BANKS, Target
from trnqc.sim.memory.dtypes import DType, as_dtype, poison
from trnqc.sim.memory.psum import PsumState


class MemoryRegion(Enum):
    """Memory in which a tensor is allocated."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"


ON_CHIP = (MemoryRegion.sbuf, MemoryRegion.psum)


class Storage:
    """One allocation: flat bytes `raw` with the shape and dtype of the allocation.

    `raw` is None for floating-point storage in a dry run, where `known` tells whether integer data have their real
    values. `free` are elements per partition, `base_partition` is the first partition of a tile that the kernel placed
    by hand, else 0, and `argument` tells whether the caller of the kernel owns the memory. `record` is the live range
    of an on-chip tile, `psum` the accumulation state of a PSUM tile.
    """

    __slots__ = (
        "argument",
        "base_partition",
        "buffer",
        "dtype",
        "free",
        "known",
        "name",
        "on_chip",
        "partitions",
        "psum",
        "raw",
        "record",
        "shape",
        "size",
    )

    def __init__(self, shape: tuple[int, ...], dtype: DType, buffer: MemoryRegion, name: str, raw: np.ndarray | None):
        self.shape = shape
        self.dtype = dtype
        self.buffer = buffer
        self.name = name
        self.raw = raw
        self.size = prod(shape)
        self.on_chip = buffer in ON_CHIP
        self.partitions = shape[0]
        self.free = self.size // shape[0]
        self.base_partition = 0
        self.argument = False
        self.known = True
        self.record: TileRecord | None = None
        self.psum: PsumState | None = None

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.itemsize


def check_shape(shape: object) -> tuple[int, ...]:
    """Convert ``shape`` to a tuple of positive Python integers; a single integer is a shape of one dimension."""
    dims = (shape,) if isinstance(shape, int) else shape
    if not isinstance(dims, (tuple, list)) or not dims or not all(_is_positive_int(n) for n in dims):
        shown = str(shape).replace(" ", "")
        raise NkiValidationError(f"shape must be a tuple of positive integers, got {shown}")
    return tuple(int(n) for n in dims)


def _is_positive_int(n: object) -> bool:
    return isinstance(n, (int, np.integer)) and not isinstance(n, bool) and bool(n > 0)


def check_buffer(buffer: object) -> MemoryRegion:
    """Return ``buffer`` if it is a memory region; raise NkiValidationError otherwise."""
    if not isinstance(buffer, MemoryRegion):
        raise NkiValidationError(f"buffer must be nl.sbuf, nl.psum, nl.hbm or nl.shared_hbm, got {buffer!r}")
    return buffer


def allocate(shape: object, dtype: object, buffer: object, name: str, address: object = None) -> Storage:
    """Allocate uninitialised memory in the current run; dimension 0 of SBUF and PSUM tiles is the partition.

    `address` is the first partition and the byte offset in the partition, for tiles placed by hand. Raises
    NkiValidationError if the tile does not fit into the memory on its own; `check_capacity` checks tiles together.
    """
    run = machine.current()
    dims, fmt, region = check_shape(shape), as_dtype(dtype), check_buffer(buffer)
    if region is MemoryRegion.shared_hbm and run.links is not None:
        index = run.shared_count
        run.shared_count += 1
        return run.links.shared_storage(index, lambda: _fresh(run, dims, fmt, region, name))
    storage = _fresh(run, dims, fmt, region, name)
    if storage.on_chip:
        _place(run, storage, address)
    elif address is not None:
        raise NkiValidationError(f"address is for SBUF and PSUM tiles, got address={address} on {region.value}")
    return storage


def _fresh(run: Run, shape: tuple[int, ...], dtype: DType, buffer: MemoryRegion, name: str) -> Storage:
    if run.dry and not dtype.is_int:
        return Storage(shape, dtype, buffer, name, None)
    filled = np.full(prod(shape), poison(dtype), dtype.numpy)
    return Storage(shape, dtype, buffer, name, filled.view(np.uint8))


def _place(run: Run, storage: Storage, address: object) -> None:
    dims, space = storage.shape, storage.buffer.value
    if len(dims) < 2:
        raise NkiValidationError(
            f"SBUF and PSUM tensors must have at least 2 dimensions (partition-dim and free-dim), got shape {dims}"
        )
    if dims[0] > PARTITIONS:
        raise NkiValidationError(
            f"{space} tile {storage.name or ''}{dims}: partition dimension {dims[0]} exceeds maximum {PARTITIONS}"
        )
    nbytes = storage.free * storage.dtype.itemsize
    limit = capacity(run.target, storage.buffer)
    if nbytes > limit:
        raise NkiValidationError(
            f"{space} tile {storage.name or ''}{dims} of {storage.dtype} takes {nbytes} bytes per partition; "
            f"{run.target.name} has {limit}"
        )
    run.tile_count += 1
    label = storage.name or f"t{run.tile_count}"
    record = TileRecord(run.tile_count, label, space, dims, storage.dtype.name, nbytes, scope=run.loop_path)
    if address is not None:
        record.address = _check_address(address, storage, nbytes, limit)
        storage.base_partition = record.address[0]
    if run.counting:
        run.tiles.append(record)
    storage.record = record
    if storage.buffer is MemoryRegion.psum:
        storage.psum = PsumState(storage.partitions, storage.free)


def _check_address(address: object, storage: Storage, nbytes: int, limit: int) -> tuple[int, int]:
    if not isinstance(address, (tuple, list)) or len(address) != 2:
        raise NkiValidationError(f"address must be (partition_offset, free_byte_offset), got {address!r}")
    partition, offset = int(address[0]), int(address[1])
    if partition < 0 or partition + storage.partitions > PARTITIONS:
        raise NkiValidationError(
            f"address partition offset {partition} with {storage.partitions} partitions exceeds maximum {PARTITIONS}"
        )
    if offset < 0 or offset + nbytes > limit:
        raise NkiValidationError(
            f"address free offset {offset} with {nbytes} bytes exceeds the {limit} bytes there are"
        )
    if storage.buffer is MemoryRegion.psum and offset % PSUM_BANK_BYTES:
        raise NkiValidationError(f"PSUM address must start on a bank (a multiple of {PSUM_BANK_BYTES}), got {offset}")
    return partition, offset


def capacity(target: Target, buffer: MemoryRegion) -> int:
    """Usable bytes per partition of SBUF or PSUM."""
    return target.sbuf_usable if buffer is MemoryRegion.sbuf else PSUM_BANKS * PSUM_BANK_BYTES


def charged(tile: TileRecord) -> int:
    """Bytes per partition that a tile occupies; PSUM tiles occupy whole banks."""
    return -(-tile.nbytes // PSUM_BANK_BYTES) * PSUM_BANK_BYTES if tile.space == "psum" else tile.nbytes


def high_water(tiles: Iterable[TileRecord], space: str) -> tuple[int, list[TileRecord]]:
    """Return the largest number of bytes per partition that are live at once in ``space``, and the tiles live then."""
    used = [t for t in tiles if t.space == space and t.first >= 0]
    births = sorted(used, key=lambda t: (t.first, t.id))
    deaths = sorted(used, key=lambda t: t.last)
    level = peak = peak_tick = dead = 0
    for tile in births:
        while deaths[dead].last < tile.first:
            level -= charged(deaths[dead])
            dead += 1
        level += charged(tile)
        if level > peak:
            peak, peak_tick = level, tile.first
    return peak, [t for t in used if t.first <= peak_tick <= t.last]


def check_capacity(run: Run) -> tuple[int, int]:
    """Return the largest use of SBUF and of PSUM in a finished run, in bytes per partition.

    Raises NkiValidationError if the tiles that are live at once exceed a memory, or if tiles placed by hand overlap.
    """
    marks = []
    for region in ON_CHIP:
        level, live = high_water(run.tiles, region.value)
        limit = capacity(run.target, region)
        if level > limit:
            largest = sorted(live, key=charged, reverse=True)[:6]
            named = ", ".join(f"{t.name}{t.shape} {t.dtype} {charged(t)}" for t in largest)
            broken(
                f"{region.value} holds {limit} bytes per partition on {run.target.name}; "
                f"{len(live)} tiles live at once take {level} (largest: {named})",
                "rejected",
            )
        marks.append(level)
    _check_overlaps(run.tiles)
    return marks[0], marks[1]


def _check_overlaps(tiles: Iterable[TileRecord]) -> None:
    placed = sorted((t for t in tiles if t.address is not None and t.first >= 0), key=lambda t: t.first)
    live: list[TileRecord] = []
    for tile in placed:
        live = [t for t in live if t.last >= tile.first]
        for other in live:
            if other.space == tile.space and _share_bytes(tile, other):
                raise NkiValidationError(
                    f"tiles {other.name}{other.shape} and {tile.name}{tile.shape} are live at once and share "
                    f"{tile.space} addresses: {other.address} and {tile.address} (partition, byte)"
                )
        live.append(tile)


def _share_bytes(a: TileRecord, b: TileRecord) -> bool:
    (pa, fa), (pb, fb) = a.address or (0, 0), b.address or (0, 0)
    return pa < pb + b.shape[0] and pb < pa + a.shape[0] and fa < fb + b.nbytes and fb < fa + a.nbytes
