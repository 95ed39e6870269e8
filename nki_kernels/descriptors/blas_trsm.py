"""Descriptor of `nki_kernels.blas.blas_trsm`. Knobs: the rows of a panel and the columns of a block."""

from __future__ import annotations

import numpy as np

from nki_kernels.blas import solve_plan
from nki_kernels.blas.ahead import CHUNKS, chunk_blocks
from nki_kernels.blas.blas_trsm import blas_trsm, reference_blas_trsm
from nki_kernels.blas.blocks import BANKS, RUN, STAGES
from nki_kernels.blas.inverse import masks
from nki_kernels.blas.plan import COLS
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


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {"panel": sorted(solve_plan.PANELS), "cols": [RUN, 2 * RUN, COLS]}


def _default(shape: Values, precision: str) -> dict[str, int]:
    sizes = solve_plan.solve_sizes(shape["n"], shape["m"], PARTS[precision])
    return dict(zip(("panel", "cols"), sizes))


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    constants = {"panel": point["panel"], "cols": min(shape["m"], point["cols"])}
    most = P * ceil(shape["n"], P)
    require(point["panel"] <= most, f"a panel of {point['panel']} rows is larger than the {most} of all")
    _require_block(constants["panel"], constants["cols"], precision, target)
    return constants


def _require_block(panel: int, cols: int, precision: str, target: str) -> None:
    """Raise Infeasible if a block does not fit PSUM, SBUF or the program."""
    tiles = panel // P * ceil(cols, RUN)
    most = solve_plan.ROUNDS * BANKS
    require(tiles <= most, f"PSUM: a block of {tiles} banks is needed, {solve_plan.ROUNDS} rounds have {most}")
    require_unrolled(tiles * panel // P)
    loaded = 0 if precision == "fp32" else cols * np.dtype(np.float32).itemsize
    operands = CHUNKS * chunk_blocks(panel) * ((panel + cols) * ITEMSIZE[precision] + loaded)
    require_sbuf(operands + (tiles + min(tiles, BANKS) + STAGES) * RUN * 4 + 2048, target)


def _launch(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    panel, m = constants["panel"], shape["m"]
    n, parts, dtype = solve_plan.padded(shape["n"], panel), PARTS[precision], operand_dtype(precision)
    l_t, b = fill((parts, n, n), dtype), fill((n, m), np.dtype(np.float32))
    diagonal = fill((n // panel, panel, panel), np.dtype(np.float32))
    if isinstance(l_t, np.ndarray):
        l_t[:] *= 0.5 / n**0.5  # a matrix whose inverse is of order one
        l_t[1:] *= 2.0**-9  # low parts, of which the kernel neglects the products with one another
        diagonal = np.tril(diagonal * np.float32(0.5 / n**0.5), -1) + 2 * np.eye(panel, dtype=np.float32)
    places, items, factors = solve_plan.solve_list(n, m, panel, constants["cols"], cores)
    return Launch((l_t, diagonal, b, masks(), places, items, factors), dict(constants), 1.0 * n * n * m)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """Two panels, with a full block of columns and a remainder."""
    cols = constants["cols"]
    small = {"n": 2 * constants["panel"], "m": min(shape["m"], cols + shape["m"] % cols)}
    return _launch(small, precision, constants, cores, fill)


KERNEL = NkiKernel(
    name="blas_trsm",
    function=blas_trsm,
    reference=reference_blas_trsm,
    small={"n": 150, "m": 40},
    contracted="m",
    workload="one triangular system of m right-hand sides",
    knobs=_knobs,
    default=_default,
    default_point=_default,
    realise=_realise,
    example=_launch,
    gate=_gate,
    precisions=ROUNDED,
)
