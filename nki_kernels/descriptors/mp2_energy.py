"""Descriptor of `nki_kernels.mp2_energy`.

The knobs are the number of blocks of virtual orbitals, the number of chunks of the auxiliary index, and the number of
orbitals j in a group that share one i.
"""

from __future__ import annotations

import numpy as np

from nki_kernels import mp2_plan
from nki_kernels.descriptors.descriptor import (
    ITEMSIZE,
    PARTS,
    Fill,
    KernelOperator,
    Launch,
    NkiKernel,
    P,
    Values,
    ceil,
    ladder,
    operand_dtype,
    require,
    require_sbuf,
    require_unrolled,
)
from nki_kernels.mp2_energy import mp2_energy, reference_mp2_energy
from nki_kernels.mp2_plan import tile_list


def tiles_of(shape: Values, constants: Values) -> mp2_plan.Mp2Tiles:
    """The tile sizes for the constants of a record."""
    return mp2_plan.Mp2Tiles(shape["nvir"], shape["naux"], constants["block"], constants["kchunk"], constants["group"])


def _constants(tiles: mp2_plan.Mp2Tiles) -> dict[str, int]:
    return {"block": tiles.block, "kchunk": tiles.kchunk, "group": tiles.group}


def pair_knobs(shape: Values) -> dict[str, list[int]]:
    """Values of the knobs that every kernel over pairs of orbitals has."""
    return {
        "blocks": list(range(1, min(ceil(shape["nvir"], P), 12) + 1)),
        "chunks": ladder(ceil(shape["naux"], P)),
        "group": [1, 2, 3, 4, 5, 6, 8, 10, 12, 16],
    }


def _default(shape: Values, precision: str) -> dict[str, int]:
    """Groups of eight pairs; smaller ones for few orbitals, which would leave most pairs single."""
    group = max(1, min(8, ceil(shape["nocc"], 2)))
    return _constants(mp2_plan.choose_tiles(shape["nvir"], shape["naux"], ITEMSIZE[precision], group=group))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    tiles = tiles_of(shape, _default(shape, precision))
    return {"blocks": tiles.nblk, "chunks": ceil(tiles.nk, tiles.kchunk), "group": tiles.group}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    tiles = realise_pairs(point, shape, precision, target)
    require_unrolled(unrolled(tiles), unrolled(tiles_of(shape, _default(shape, precision))))
    return _constants(tiles)


def realise_pairs(point: Values, shape: Values, precision: str, target: str) -> mp2_plan.Mp2Tiles:
    """The tiles of a point of the knobs ``blocks``, ``chunks`` and ``group``; raises Infeasible."""
    nocc, nvir, nk = shape["nocc"], shape["nvir"], ceil(shape["naux"], P)
    require(point["group"] <= max(1, nocc - 1), f"{nocc} orbitals make no group of {point['group']} pairs")
    block = nvir if point["blocks"] == 1 else P * ceil(nvir, point["blocks"] * P)
    kchunk = ceil(nk, point["chunks"])
    tiles = mp2_plan.Mp2Tiles(nvir, shape["naux"], block, kchunk, point["group"])
    require(tiles.nblk == point["blocks"], f"{nvir} virtuals make no {point['blocks']} blocks of a multiple of {P}")
    require(ceil(nk, kchunk) == point["chunks"], f"{nk} auxiliary blocks make no {point['chunks']} chunks")
    if kchunk < nk:
        in_flight = max(len(tile_list(*kind)) for kind in mp2_plan.block_kinds(nvir, block))
        held = mp2_plan.ACCUMULATORS // 2
        require(in_flight <= held, f"PSUM: {in_flight} tiles of a streamed block are in flight, {held} can be held")
        require(point["group"] == 1, "streamed factors are not shared within a group")
    require_sbuf(tiles.sbuf_bytes(ITEMSIZE[precision]), target)
    return tiles


def unrolled(tiles: mp2_plan.Mp2Tiles) -> int:
    """The number of products in the largest loop body, which is a group of pairs for one pair of blocks."""
    kinds = mp2_plan.block_kinds(tiles.nvir, tiles.block)
    return tiles.group * tiles.nk * max(sum(1 if tile[4] else 2 for tile in tile_list(*kind)) for kind in kinds)


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    return _launch(shape, precision, constants, mp2_plan.star_pairs(shape["nocc"], constants["group"]), cores, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A launch with a group of pairs and a single pair, and the same of pairs i = j."""
    i = constants["group"] + 1
    pairs = np.array([*((i, j) for j in range(i)), *((j, j) for j in range(i))])
    return _launch(shape, precision, constants, pairs, cores, fill)


def _launch(shape: Values, precision: str, constants: Values, pairs: np.ndarray, cores: int, fill: Fill) -> Launch:
    tiles = tiles_of(shape, constants)
    nocc, nvir, naux = int(pairs.max()) + 1, shape["nvir"], shape["naux"]
    eps_occ, eps_vir = -np.linspace(2.0, 0.5, nocc), np.linspace(0.1, 3.0, nvir)
    work = mp2_plan.work_list(pairs, eps_occ, tiles, cores)
    ev_row, ev_col = mp2_plan.pack_virtuals(eps_vir, tiles)
    bt = fill((PARTS[precision], nocc * tiles.nblk, P, tiles.nk, tiles.block), operand_dtype(precision))
    if isinstance(bt, np.ndarray):  # Padding must be zero, because the reference reads it; the kernel does not.
        bt[:, :, naux - P * (tiles.nk - 1) :, -1] = 0
        bt[:, tiles.nblk - 1 :: tiles.nblk, ..., nvir - tiles.block * (tiles.nblk - 1) :] = 0
    off_diagonal = int((pairs[:, 0] != pairs[:, 1]).sum())
    flops = naux * (2.0 * nvir * nvir * off_diagonal + nvir * (nvir + 1.0) * (len(pairs) - off_diagonal))
    args = (bt, ev_row, ev_col, work.e_pair, work.rows, work.bounds)
    return Launch(args, {"nvir": nvir, "naux": naux, "kchunk": tiles.kchunk}, flops)


def _result_shape(*operands: tuple[int, ...]) -> tuple[int, ...]:
    items, group = operands[3]
    return items, P, group, 2


KERNEL = NkiKernel(
    name="mp2_energy",
    function=mp2_energy,
    reference=reference_mp2_energy,
    small={"nocc": 3, "nvir": 30, "naux": 140},
    contracted="naux",
    workload="all pairs in one launch",
    knobs=pair_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_example,
    gate=_gate,
    operator=KernelOperator("mp2_pair_energy", tensors=6, result_shape=_result_shape),
)
