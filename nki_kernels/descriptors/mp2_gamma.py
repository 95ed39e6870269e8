"""Descriptor of `nki_kernels.mp2_gamma`.

Knobs: those of the pair energies, and for the second product the rows of a block and the contraction blocks of an item.
"""

from __future__ import annotations

import numpy as np

from nki_kernels import mp2_gamma_plan as plan
from nki_kernels.descriptors.descriptor import (
    ITEMSIZE,
    ROUNDED,
    Fill,
    KernelOperator,
    Launch,
    NkiKernel,
    P,
    Values,
    ceil,
    require,
    require_sbuf,
    require_unrolled,
)
from nki_kernels.descriptors.mp2_energy import pair_knobs, realise_pairs, unrolled
from nki_kernels.descriptors.mp2_energy import tiles_of as pair_tiles_of
from nki_kernels.gemm_blocks import RUN
from nki_kernels.mp2_gamma import mp2_gamma, reference_mp2_gamma
from nki_kernels.mp2_sums import CHUNK


def tiles_of(shape: Values, constants: Values) -> plan.GammaTiles:
    """The planner's value for the constants of a record."""
    rows = constants["rows"]
    return plan.GammaTiles(pair_tiles_of(shape, constants), rows, plan.columns(shape["naux"], rows), constants["depth"])


def _constants(tiles: plan.GammaTiles) -> dict[str, int]:
    pairs = tiles.pairs
    return {
        "block": pairs.block,
        "kchunk": pairs.kchunk,
        "group": pairs.group,
        "rows": tiles.rows,
        "depth": tiles.depth,
    }


def _knobs(shape: Values) -> dict[str, list[int]]:
    return pair_knobs(shape) | {"rows": [128, 256, 512, 1024], "depth": [4, 8, 16, 32]}


def _default(shape: Values, precision: str) -> dict[str, int]:
    return _constants(plan.choose_tiles(shape["nvir"], shape["naux"], ITEMSIZE[precision]))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    tiles = tiles_of(shape, _default(shape, precision))
    pairs = tiles.pairs
    return {
        "blocks": pairs.nblk,
        "chunks": ceil(pairs.nk, pairs.kchunk),
        "group": pairs.group,
        "rows": tiles.rows,
        "depth": tiles.depth,
    }


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    pairs = realise_pairs(point, shape, precision, target)
    rows, depth = point["rows"], point["depth"]
    tiles = plan.GammaTiles(pairs, rows, plan.columns(shape["naux"], rows), depth)
    default = tiles_of(shape, _default(shape, precision))
    most = P * ceil(shape["nocc"] * shape["nvir"], P)
    require(rows <= most, f"a block of {rows} rows is larger than the {most} of all")
    require_sbuf(_sum_bytes(tiles, ITEMSIZE[precision]), target)
    require_unrolled(unrolled(pairs), unrolled(default.pairs))
    require_unrolled(ceil(rows, P) * ceil(tiles.cols, RUN) * depth)
    return _constants(tiles)


def _sum_bytes(tiles: plan.GammaTiles, itemsize: int) -> int:
    """Bytes per partition of the second product: two chunks of both operands, and the sums of a block."""
    sums = ceil(tiles.rows, P) * ceil(tiles.cols, RUN) * RUN * 4
    return 2 * CHUNK * (tiles.rows + tiles.cols) * itemsize + sums + 1024


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """The first launch if all pairs are divided so that the amplitudes fit the memory."""
    most = min(plan.MOST_ELEMENTS, plan.THETA_BYTES // ITEMSIZE[precision])
    sides, _, _ = next(plan.blocks(plan.Sides(shape["nocc"], shape["nvir"]), most))
    return _launch(sides, shape, precision, constants, cores, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A group of pairs, single and diagonal ones."""
    return _launch(plan.Sides(constants["group"] + 2, shape["nvir"]), shape, precision, constants, cores, fill)


def _launch(sides: plan.Sides, shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    naux, tiles = shape["naux"], tiles_of(shape, constants)
    args, compiled = plan.shapes(sides, naux, tiles, precision, cores, fill)
    bt, pairs = args[0], tiles.pairs
    if isinstance(bt, np.ndarray):
        bt[1:] *= 2.0**-9  # low parts, of which the kernel neglects the products with one another
        args = (bt, _rows(bt, sides, naux, pairs.nblk), *args[2:])
    n, nvir = sides.nocc_left, sides.nvir_left
    first = naux * (n * (n - 1.0) * nvir * nvir + n * nvir * (nvir + 1.0))
    return Launch(args, compiled, first + 2.0 * naux * sides.left**2)


def _rows(bt: np.ndarray, sides: plan.Sides, naux: int, nblk: int) -> np.ndarray:
    """b [parts, rows (i, a), naux] with the numbers of the packed factors of one set of orbitals."""
    parts, blocks, _, nk, block = bt.shape
    whole = bt.reshape(parts, blocks // nblk, nblk, P, nk, block).transpose(0, 1, 2, 5, 4, 3)
    whole = whole.reshape(parts, blocks // nblk, nblk * block, nk * P)
    return np.ascontiguousarray(whole[:, :, : sides.nvir_left, :naux]).reshape(parts, -1, naux)


def _result_shape(*operands: tuple[int, ...]) -> tuple[int, ...]:
    return operands[1][1:]


KERNEL = NkiKernel(
    name="mp2_gamma",
    function=mp2_gamma,
    reference=reference_mp2_gamma,
    small={"nocc": 3, "nvir": 30, "naux": 140},
    contracted="naux",
    workload="all pairs of as many orbitals as fit in one launch",
    knobs=_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_example,
    gate=_gate,
    operator=KernelOperator("mp2_gamma", tensors=10, result_shape=_result_shape),
    precisions=ROUNDED,
)
