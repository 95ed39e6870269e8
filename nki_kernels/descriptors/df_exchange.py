"""Descriptor of `nki_kernels.jk.df_exchange`.

Knobs: fitting functions of one pass of the loop, and fitting functions whose integrals are on chip at once.
"""

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
from nki_kernels.jk.df_exchange import df_exchange, reference_df_exchange
from nki_kernels.precision.splits import products_of


def _together(shape: Values) -> int:
    """Fitting functions whose orbitals share the partitions, of which a pass has a multiple."""
    return P // plan.lane_of(shape["nocc"])


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {"group": [g for g in (1, 2, 4, 8, 16, plan.GROUP) if g >= _together(shape)], "ring": [1, 2, 3, 4, 6, 8]}


def _default(shape: Values, precision: str) -> dict[str, int]:
    """The plan; the smallest sizes, which no rule allows, where the sums do not fit the chip."""
    nao = shape["nao"]
    sizes = plan.exchange_sizes(nao, shape["nocc"], ITEMSIZE[precision])
    return dataclasses.asdict(sizes or plan.ExchangeSizes(ceil(nao, P), _together(shape), 1))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    constants = _default(shape, precision)
    return {"group": constants["group"], "ring": constants["ring"]}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    nao, nocc, group, ring = shape["nao"], shape["nocc"], point["group"], point["ring"]
    require(group % _together(shape) == 0, f"{_together(shape)} fitting functions share the partitions, not {group}")
    require(ring <= group + 1, f"{ring} sets of integrals on chip for passes of {group}")
    require_sbuf(plan.exchange_bytes(nao, nocc, ITEMSIZE[precision], group, ring), target)
    products = len(products_of(PARTS[precision], PARTS[precision]))
    require_unrolled(products * group * plan.exchange_products(nao, nocc), products * plan.BODY)
    return {"blocks": ceil(nao, P), "group": group, "ring": ring}


def _launch(naux: int, shape: Values, precision: str, constants: Values, fill: Fill) -> Launch:
    nao, nocc, blocks = shape["nao"], shape["nocc"], constants["blocks"]
    height, parts, dtype = ceil(nao, blocks), PARTS[precision], operand_dtype(precision)
    rows, orbitals = fill((parts, naux, height, blocks * nao), dtype), fill((parts, height, blocks * nocc), dtype)
    for array in (rows, orbitals):
        if isinstance(array, np.ndarray):
            array[1:] *= 2.0**-9  # low parts, of which the kernel neglects the products with one another
    return Launch((rows, orbitals), dict(constants), naux * nocc * nao * (3.0 * nao + 1.0))


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """The first launch, if all fitting functions do not fit one."""
    nao = shape["nao"]
    most = plan.MOST_ELEMENTS // (PARTS[precision] * nao * (nao + P))
    naux = plan.launches(shape["naux"], cores * plan.GROUP, most)[0].stop
    return _launch(naux, shape, precision, constants, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """Two passes of the loop on each core."""
    return _launch(2 * cores * constants["group"], shape, precision, constants, fill)


KERNEL = NkiKernel(
    name="df_exchange",
    function=df_exchange,
    reference=reference_df_exchange,
    small={"nao": 19, "nocc": 7, "naux": 70},
    contracted="naux",
    workload="K of the fitting functions of one launch",
    knobs=_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_example,
    gate=_gate,
    precisions=ROUNDED,
)
