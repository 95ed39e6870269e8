"""Descriptor of `nki_kernels.blas.blas_cholesky`. The knob is the number of rows of a panel."""

from __future__ import annotations

import numpy as np

from nki_kernels.blas import solve_plan
from nki_kernels.blas.blas_cholesky import blas_cholesky, reference_blas_cholesky
from nki_kernels.blas.blocks import RUN
from nki_kernels.blas.factor import masks
from nki_kernels.descriptors.blas import require_block
from nki_kernels.descriptors.descriptor import (
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
)


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {"panel": sorted(solve_plan.PANELS)}


def _default(shape: Values, precision: str) -> dict[str, int]:
    return dict(zip(("panel", "cols"), solve_plan.factor_sizes(shape["n"])))


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    return {"panel": _default(shape, precision)["panel"]}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    panel, most = point["panel"], P * ceil(shape["n"], P)
    require(panel <= most, f"a panel of {panel} rows is larger than the {most} of all")
    constants = {"panel": panel, "cols": min(RUN, panel)}
    block = {"rows": panel, "cols": constants["cols"], "depth": panel // P}
    require_block(block, most, most, precision, target)
    return constants


def panel_launch(n: int, k: int, precision: str, constants: Values, fill: Fill) -> Launch:
    """Panel k of a matrix of n rows, a multiple of the panel."""
    panel, parts, dtype = constants["panel"], PARTS[precision], operand_dtype(precision)
    u, row = fill((parts, n, n), dtype), fill((panel, n), np.dtype(np.float32))
    first = fill((parts, panel, n), dtype)
    if isinstance(u, np.ndarray) and isinstance(row, np.ndarray):
        u *= 0.1 / n**0.5
        u[1:], first[1:] = 2.0**-9 * u[1:], 2.0**-9 * first[1:]
        row[:] = first.astype(np.float32).sum(axis=0)
        block = row[:, k * panel : (k + 1) * panel]
        block[:] = (block + block.T) / panel**0.5 + 6 * np.eye(panel, dtype=np.float32)
        first[:] = 0
        first[0] = row
        if parts == 1:
            row[:] = first[0]
    items, factors, limits = solve_plan.panel_list(n, k, panel, constants["cols"])
    columns = n - k * panel
    flops = 2.0 * k * panel * panel * columns + panel**3 / 3 + 1.0 * panel * panel * (columns - panel)
    return Launch((u, row, first, masks(), items, factors, limits), dict(constants), flops)


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """The panel in the middle, which takes about as long as the average."""
    n = solve_plan.padded(shape["n"], constants["panel"])
    return panel_launch(n, n // constants["panel"] // 2, precision, constants, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """The second of three panels."""
    return panel_launch(3 * constants["panel"], 1, precision, constants, fill)


KERNEL = NkiKernel(
    name="blas_cholesky",
    function=blas_cholesky,
    reference=reference_blas_cholesky,
    small={"n": 150},
    contracted="n",
    workload="the panel in the middle of one factorisation",
    knobs=_knobs,
    default=_default,
    default_point=_default_point,
    realise=_realise,
    example=_example,
    gate=_gate,
    precisions=ROUNDED,
)
