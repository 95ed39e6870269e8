"""Descriptor of `nki_kernels.blas.blas_gemm`. Knobs: see `nki_kernels.descriptors.blas`."""

from __future__ import annotations

import numpy as np

from nki_kernels.blas import plan
from nki_kernels.blas.blas_gemm import blas_gemm, reference_blas_gemm
from nki_kernels.blas.blocks import RUN
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
    groups = {1, plan.GROUP, _most_grouped(shape)} if shape["Z"] > 1 else {1}
    cols = [RUN, 2 * RUN, plan.COLS]
    return {"rows": list(ROWS), "cols": cols, "items": items_ladder(shape["K"]), "group": sorted(groups)}


def _most_grouped(shape: Values) -> int:
    """The most products in a pass of a loop."""
    return max(plan.GROUP, plan.most_stacked(shape["M"], shape["N"], shape["K"]))


def _default(shape: Values, precision: str) -> dict[str, int]:
    sizes = plan.block_sizes(shape["M"], shape["N"], shape["K"], shape["Z"], PARTS[precision])
    return dict(zip(("rows", "cols", "depth", "group"), sizes))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    constants = _default(shape, precision)
    items = default_items(shape["K"], constants["depth"])
    return {"rows": constants["rows"], "cols": constants["cols"], "items": items, "group": constants["group"]}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    M, N = shape["M"], shape["N"]
    rows, cols = min(P * ceil(M, P), point["rows"]), min(N, point["cols"])
    require(point["group"] <= shape["Z"], f"{shape['Z']} products make no group of {point['group']}")
    require(point["group"] <= _most_grouped(shape), f"products of this size make no group of {point['group']}")
    require(point["group"] == 1 or point["items"] == 1, "products of several items are not grouped")
    depth = depth_of(point["items"], shape["K"])
    constants = {"rows": rows, "cols": cols, "depth": depth, "group": point["group"]}
    require_block(constants, M, N, precision, target)
    return constants


def _launch(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    Z, M, N, K = (shape[dim] for dim in ("Z", "M", "N", "K"))
    parts, dtype = PARTS[precision], operand_dtype(precision)
    work = plan.product_list((Z, M, N, K), sizes_of(constants), (1.5, -0.5))
    operands = fill((parts, Z, K, M), dtype), fill((parts, Z, K, N), dtype), fill((Z, M, N), np.dtype(np.float32))
    return Launch((*operands, *work), {**constants, "update": 1}, 2.0 * Z * M * N * K)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A launch with full blocks and with the remainders of the shape."""
    small = {
        "Z": step_and_rest(shape["Z"], 2 * constants["group"]),
        "M": step_and_rest(shape["M"], constants["rows"]),
        "N": step_and_rest(shape["N"], constants["cols"]),
        "K": shape["K"],
    }
    return _launch(small, precision, constants, cores, fill)


KERNEL = NkiKernel(
    name="blas_gemm",
    function=blas_gemm,
    reference=reference_blas_gemm,
    small={"Z": 1, "M": 130, "N": 513, "K": 140},
    contracted="K",
    workload="one launch of Z products, with alpha, beta and c",
    knobs=_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_launch,
    gate=_gate,
)
