"""What can be tuned: for each kernel its shape, knobs, own default and the rules that a choice must keep.

A *point* gives each knob a value in terms that carry over to other shapes (numbers of blocks and of chunks);
``realise`` turns it into the kernel's compile-time constants for one shape, or raises Infeasible with the rule that it
breaks. Shape classes are exact: a point is recorded for these extents; ``choose`` says when a neighbour's is used.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from nki_kernels import gemm_blocks, mp2_plan
from nki_kernels.mp2_energy import tile_list
from trnqc.errors import InputError
from trnqc.sim.launch.targets import TARGETS

P = 128
MOST_UNROLLED = 4096  # products of one part in a loop body: programs have to compile and to load; an assumption
Values = Mapping[str, int]
PRODUCT_KNOBS = ("rows", "cols", "chunks", "batch", "hold", "drains", "drainer")
ITEMSIZE = {"fp32": 4, "bf16x3": 4, "bf16": 2}  # bytes of one element, summed over the parts of a split operand
PARTS = {"fp32": 1, "bf16x3": 2, "bf16": 1}


class Infeasible(Exception):
    """A point that the kernel or the chip cannot take; the message is the rule."""


@dataclass(frozen=True)
class Tunable:
    """One kernel. dims: extents of a shape class; knobs: names of a point; default and realise return constants,
    default_point the default in terms of knobs (which rounds, where the default is no point)."""

    name: str
    module: str
    dims: tuple[str, ...]
    knobs: tuple[str, ...]
    default: Callable[[Values, str], dict[str, int]]
    default_point: Callable[[Values, str], dict[str, int]]
    realise: Callable[[Values, Values, str, str], dict[str, int]]
    workload: str


def ceil(a: int, b: int) -> int:
    """a / b, rounded up."""
    return -(-a // b)


def _require(rule: bool, message: str) -> None:
    if not rule:
        raise Infeasible(message)


def _unrolled(products: int, default: int = 0) -> None:
    """What the default unrolls is always allowed."""
    most = max(MOST_UNROLLED, default)
    _require(products <= most, f"program: {products} products in one body, {most} are allowed")


def _fits(needed: int, target: str) -> None:
    usable = TARGETS[target].sbuf_usable
    _require(needed <= usable, f"SBUF: {needed} bytes per partition are needed, {target} has {usable}")


# -- mp2_energy -------------------------------------------------------------------------------------------------------


def _mp2_constants(tiles: mp2_plan.Mp2Tiles) -> dict[str, int]:
    return {"block": tiles.block, "kchunk": tiles.kchunk, "group": tiles.group}


def mp2_default(shape: Values, precision: str) -> dict[str, int]:
    """What the kernel's planner takes when nothing is known."""
    return _mp2_constants(mp2_plan.choose_tiles(shape["nvir"], shape["naux"], ITEMSIZE[precision]))


def mp2_default_point(shape: Values, precision: str) -> dict[str, int]:
    """The same as a point."""
    tiles = mp2_tiles(shape, mp2_default(shape, precision))
    return {"blocks": tiles.nblk, "chunks": ceil(tiles.nk, tiles.kchunk), "group": tiles.group}


def mp2_tiles(shape: Values, constants: Values) -> mp2_plan.Mp2Tiles:
    """The planner's value for recorded constants."""
    return mp2_plan.Mp2Tiles(shape["nvir"], shape["naux"], constants["block"], constants["kchunk"], constants["group"])


def mp2_realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    """blocks of virtuals, chunks of the auxiliary index, group of j that share one i -> block, kchunk, group."""
    nocc, nvir, nk = shape["nocc"], shape["nvir"], ceil(shape["naux"], P)
    _require(point["group"] <= max(1, nocc - 1), f"{nocc} orbitals make no group of {point['group']} pairs")
    block = nvir if point["blocks"] == 1 else P * ceil(nvir, point["blocks"] * P)
    kchunk = ceil(nk, point["chunks"])
    tiles = mp2_plan.Mp2Tiles(nvir, shape["naux"], block, kchunk, point["group"])
    _require(tiles.nblk == point["blocks"], f"{nvir} virtuals make no {point['blocks']} blocks of a multiple of {P}")
    _require(ceil(nk, kchunk) == point["chunks"], f"{nk} auxiliary blocks make no {point['chunks']} chunks")
    if kchunk < nk:
        in_flight = max(len(tile_list(*kind)) for kind in mp2_plan.block_kinds(nvir, block))
        held = mp2_plan.ACCUMULATORS // 2
        _require(in_flight <= held, f"PSUM: {in_flight} tiles of a streamed block are in flight, {held} can be held")
        _require(point["group"] == 1, "streamed factors are not shared within a group")
    _fits(tiles.sbuf_bytes(ITEMSIZE[precision]), target)
    _unrolled(_mp2_products(tiles), _mp2_products(mp2_tiles(shape, mp2_default(shape, precision))))
    return _mp2_constants(tiles)


def _mp2_products(tiles: mp2_plan.Mp2Tiles) -> int:
    """Products in the body of the largest class: a group of pairs on one pair of blocks."""
    kinds = mp2_plan.block_kinds(tiles.nvir, tiles.block)
    return tiles.group * tiles.nk * max(sum(1 if tile[4] else 2 for tile in tile_list(*kind)) for kind in kinds)


# -- gemm, batched_contraction ----------------------------------------------------------------------------------------


def product_default(shape: Values, precision: str) -> dict[str, int]:
    """What the kernels' planner takes when nothing is known."""
    blocks = gemm_blocks.plan(shape.get("Z", 1), shape["M"], shape["N"], shape["K"], ITEMSIZE[precision])
    return blocks | {"drains": gemm_blocks.DRAINS, "drainer": 0}


def product_default_point(shape: Values, precision: str) -> dict[str, int]:
    """The same as a point."""
    constants = product_default(shape, precision)
    chunks = ceil(ceil(shape["K"], P), constants["kchunk"])
    return {knob: chunks if knob == "chunks" else constants[knob] for knob in PRODUCT_KNOBS}


def product_realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    """rows, cols of a block, chunks of K, products an iteration, b held, drains and who drains -> keyword arguments."""
    Z, M, N, nk = shape.get("Z", 1), shape["M"], shape["N"], ceil(shape["K"], P)
    rows, cols = min(P * ceil(M, P), point["rows"]), min(N, point["cols"])
    kchunk = ceil(nk, point["chunks"])
    _require(ceil(nk, kchunk) == point["chunks"], f"{nk} blocks of K make no {point['chunks']} chunks")
    _require(point["batch"] <= Z, f"{Z} products are not walked {point['batch']} at a time")
    batch, hold = point["batch"], point["hold"]
    resident = kchunk == nk
    if hold:
        _require(resident and Z == 1, "b is held for a single product whose K is resident")
        cols = N
    if not resident:
        tiles, banks = ceil(rows, P) * ceil(cols, gemm_blocks.RUN), gemm_blocks.BANKS
        _require(batch == 1, "streamed products are walked one at a time")
        _require(tiles <= banks, f"PSUM: {tiles} banks are needed by a streamed block, {banks} exist")
    _unrolled(ceil(rows, P) * ceil(cols, gemm_blocks.RUN) * kchunk * batch)
    constants = {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}
    constants |= {"drains": point["drains"], "drainer": point["drainer"]}
    _fits(_product_bytes(constants, N, nk, ITEMSIZE[precision]), target)
    return constants


def _product_bytes(c: Values, N: int, nk: int, itemsize: int) -> int:
    """Bytes per partition: operands in flight, drains and tables."""
    cols, resident = c["cols"], c["kchunk"] == nk
    run = min(gemm_blocks.RUN, cols)
    left = (1 if resident and c["batch"] == 1 else 2) * c["rows"]
    right = N if c["hold"] else 2 * (run if resident else cols)
    return c["kchunk"] * (left + right) * itemsize + c["drains"] * gemm_blocks.RUN * 4 + 4096


TUNABLES = {
    t.name: t
    for t in (
        Tunable(
            "mp2_energy", "nki_kernels.mp2_energy", ("nocc", "nvir", "naux"), ("blocks", "chunks", "group"),
            mp2_default, mp2_default_point, mp2_realise, "all pairs in one launch",
        ),
        Tunable(
            "gemm", "nki_kernels.gemm", ("M", "N", "K"), PRODUCT_KNOBS,
            product_default, product_default_point, product_realise, "one product",
        ),
        Tunable(
            "batched_contraction", "nki_kernels.batched_contraction", ("Z", "M", "N", "K"),
            PRODUCT_KNOBS,
            product_default, product_default_point, product_realise, "one launch of Z products",
        ),
    )
}  # fmt: skip


def tunable(name: str) -> Tunable:
    """The kernel of that name; raises InputError."""
    if name not in TUNABLES:
        raise InputError(f"kernels that can be tuned are {', '.join(TUNABLES)}; {name!r} was asked for")
    return TUNABLES[name]


def parse_shape(kernel: str, text: str) -> dict[str, int]:
    """ "nvir=448,naux=1536" or "448,1536" (also with x between) -> {"nvir": 448, "naux": 1536}; raises InputError."""
    dims = tunable(kernel).dims
    words = [word for word in re.split(r"[,\s]+|(?<=\d)x(?=\d)", text) if word]
    named = dict(word.split("=", 1) for word in words if "=" in word)
    values = named if len(named) == len(words) else dict(zip(dims, words))
    if set(values) != set(dims) or len(words) != len(dims) or not all(n.isdigit() and int(n) for n in values.values()):
        raise InputError(f"a shape of {kernel} is {','.join(f'{dim}=N' for dim in dims)} with N >= 1; found {text!r}")
    return {dim: int(values[dim]) for dim in dims}


def check(name: str, shape: Values, precision: str, target: str) -> None:
    """Raises InputError unless the kernel, its shape, the precision and the target are known and sound."""
    dims = tunable(name).dims
    if tuple(shape) != dims or any(n < 1 for n in shape.values()):
        raise InputError(f"a shape of {name} gives {', '.join(dims)}, each at least 1; found {dict(shape)}")
    if precision not in ITEMSIZE:
        raise InputError(f"precisions of the kernels are {', '.join(ITEMSIZE)}; {precision!r} was asked for")
    if target not in TARGETS:
        raise InputError(f"targets are {', '.join(TARGETS)}; {target!r} was asked for")
