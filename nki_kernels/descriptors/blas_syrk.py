"""Descriptor of `nki_kernels.blas.blas_syrk`. Knobs: see `nki_kernels.descriptors.blas`."""

from __future__ import annotations

import numpy as np

from nki_kernels.blas import plan
from nki_kernels.blas.blas_syrk import blas_syrk, reference_blas_syrk
from nki_kernels.descriptors.blas import (
    ROWS,
    default_items,
    depth_of,
    items_ladder,
    require_block,
    sizes_of,
    step_and_rest,
)
from nki_kernels.descriptors.descriptor import PARTS, Fill, Launch, NkiKernel, P, Values, ceil, operand_dtype, require


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {"rows": list(ROWS), "wide": [1, 2, 4, 8], "items": items_ladder(shape["K"])}


def _default(shape: Values, precision: str) -> dict[str, int]:
    return dict(zip(("rows", "cols", "depth"), plan.triangle_sizes(shape["n"], shape["K"], PARTS[precision])))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    constants = _default(shape, precision)
    items = default_items(shape["K"], constants["depth"])
    return {"rows": constants["rows"], "wide": constants["cols"] // constants["rows"], "items": items}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    n, rows = shape["n"], point["rows"]
    require(rows <= P * ceil(n, P), f"a block of {rows} rows is larger than the matrix")
    constants = {"rows": rows, "cols": point["wide"] * rows, "depth": depth_of(point["items"], shape["K"])}
    require(constants["cols"] <= plan.COLS, f"a block has at most {plan.COLS} columns")
    require_block(constants, n, constants["cols"], precision, target)
    return constants


def _launch(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    n, K = shape["n"], shape["K"]
    work = plan.triangle_list(n, K, sizes_of(constants), (1.5, -0.5))
    a_t = fill((PARTS[precision], K, n), operand_dtype(precision))
    return Launch((a_t, fill((n, n), np.dtype(np.float32)), *work), {**constants, "update": 1}, 1.0 * n * (n + 1) * K)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A launch with full blocks, blocks at every place of the diagonal, and the remainder."""
    small = {"n": step_and_rest(shape["n"], constants["cols"] + constants["rows"]), "K": shape["K"]}
    return _launch(small, precision, constants, cores, fill)


KERNEL = NkiKernel(
    name="blas_syrk",
    function=blas_syrk,
    reference=reference_blas_syrk,
    small={"n": 150, "K": 140},
    contracted="K",
    workload="one lower triangle, with alpha, beta and c",
    knobs=_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_launch,
    gate=_gate,
)
