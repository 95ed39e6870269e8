"""Descriptor of `nki_kernels.jk.df_coulomb`. Knobs: blocks of 128 pairs of a load, and loads of a pass."""

from __future__ import annotations

import dataclasses

import numpy as np

from nki_kernels.descriptors.descriptor import (
    ITEMSIZE,
    PARTS,
    ROUNDED,
    Fill,
    Launch,
    NkiKernel,
    P,
    Values,
    ceil,
    operand_dtype,
    require,
    require_sbuf,
    require_unrolled,
)
from nki_kernels.jk import plan
from nki_kernels.jk.df_coulomb import df_coulomb, reference_df_coulomb
from nki_kernels.precision.splits import products_of


def _pairs(shape: Values) -> int:
    return shape["nao"] * (shape["nao"] + 1) // 2


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {"chunk": [1, 2, 3, 4, 6, 8], "turns": [1, 2, 3, 4]}


def _default(shape: Values, precision: str) -> dict[str, int]:
    sizes = dataclasses.asdict(plan.coulomb_sizes(_pairs(shape)))
    return {knob: sizes[knob] for knob in ("chunk", "turns")}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    chunk, turns, densities = point["chunk"], point["turns"], shape["densities"]
    tiles, blocks = min(plan.MOST_ROWS // P, ceil(shape["naux"], P)), ceil(_pairs(shape), P)
    require(chunk * turns <= blocks + 1, f"{blocks} blocks of pairs fill no {turns} loads of {chunk}")
    require(max(tiles, chunk) * densities <= plan.RUN, f"PSUM: {max(tiles, chunk)} columns of {densities} densities")
    require_unrolled(turns * chunk * tiles * len(products_of(PARTS[precision], PARTS[precision])))
    loaded = turns * chunk * (P * tiles + densities) * ITEMSIZE[precision]
    sums = tiles * densities * (4 + ITEMSIZE[precision]) + turns * chunk * densities * 4
    require_sbuf(loaded + sums, target)
    return dict(point)


def _launch(pairs: int, naux: int, n: int, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    parts, dtype, turn = PARTS[precision], operand_dtype(precision), P * constants["chunk"] * constants["turns"]
    columns = turn * ceil(pairs, turn)
    args = [fill((parts, *x), dtype) for x in ((columns, naux), (naux, columns), (P, columns // P, n))]
    for array in args:
        if isinstance(array, np.ndarray):
            array[1:] *= 2.0**-9  # low parts, of which the kernel neglects the products with one another
    return Launch(tuple(args), dict(constants), 4.0 * pairs * naux * n)


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """The first launch, if all fitting functions do not fit one."""
    most = min(cores * plan.MOST_ROWS, plan.MOST_ELEMENTS // (PARTS[precision] * _pairs(shape)))
    naux = plan.launches(shape["naux"], cores * P, most)[0].stop
    return _launch(_pairs(shape), naux, shape["densities"], precision, constants, cores, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """Two passes of the loop over pairs, and two tiles of fitting functions on each core."""
    pairs = 2 * P * constants["chunk"] * constants["turns"]
    return _launch(pairs, 2 * cores * P, shape["densities"], precision, constants, cores, fill)


KERNEL = NkiKernel(
    name="df_coulomb",
    function=df_coulomb,
    reference=reference_df_coulomb,
    small={"nao": 20, "naux": 140, "densities": 2},
    contracted="naux",
    workload="J of the fitting functions of one launch",
    knobs=_knobs,
    default=_default,
    default_point=_default,
    realise=_realise,
    example=_example,
    gate=_gate,
    precisions=ROUNDED,
)
