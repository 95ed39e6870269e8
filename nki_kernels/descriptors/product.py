"""Common parts of the descriptors of `gemm` and `batched_contraction`.

The knobs are the rows and columns of a block, the number of chunks of K, the number of products per iteration, whether
b is kept on the chip, the number of output tiles in flight, and the engine that copies results out of PSUM. A stack of
products has the extent Z besides M, N and K.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from nki_kernels import gemm_blocks
from nki_kernels.descriptors.descriptor import (
    ITEMSIZE,
    PARTS,
    Fill,
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


def product_kernel(function: Any, reference: Callable[..., np.ndarray], small: Values, workload: str) -> NkiKernel:
    """The descriptor of a kernel that multiplies matrices. The name of its reference is ``reference_`` and its name."""
    return NkiKernel(
        name=reference.__name__.removeprefix("reference_"),
        function=function,
        reference=reference,
        small=small,
        contracted="K",
        workload=workload,
        knobs=_knobs,
        default=_default,
        default_point=_default_point,
        realise=_realise,
        example=_launch,
        gate=_gate,
    )


def _knobs(shape: Values) -> dict[str, list[int]]:
    return {
        "rows": [128, 256, 384, 512, 768, 1024, 1536, 2048],
        "cols": [512, 1024, 2048, 4096],
        "chunks": ladder(ceil(shape["K"], P)),
        "batch": ladder(min(shape.get("Z", 1), 8)),
        "hold": [0, 1],
        "drains": [2, 4, 8],
        "drainer": [0, 1, 2],
    }


def _default(shape: Values, precision: str) -> dict[str, int]:
    blocks = gemm_blocks.plan(shape.get("Z", 1), shape["M"], shape["N"], shape["K"], ITEMSIZE[precision])
    return blocks | {"drains": gemm_blocks.DRAINS, "drainer": 0}


def _default_point(shape: Values, precision: str) -> dict[str, int]:
    constants = _default(shape, precision)
    chunks = ceil(ceil(shape["K"], P), constants["kchunk"])
    return {knob: chunks if knob == "chunks" else constants[knob] for knob in _knobs(shape)}


def _realise(point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    Z, M, N, nk = shape.get("Z", 1), shape["M"], shape["N"], ceil(shape["K"], P)
    rows, cols = min(P * ceil(M, P), point["rows"]), min(N, point["cols"])
    kchunk = ceil(nk, point["chunks"])
    require(ceil(nk, kchunk) == point["chunks"], f"{nk} blocks of K make no {point['chunks']} chunks")
    require(point["batch"] <= Z, f"{Z} products are not walked {point['batch']} at a time")
    batch, hold = point["batch"], point["hold"]
    resident = kchunk == nk
    if hold:
        require(resident and Z == 1, "b is held for a single product whose K is resident")
        cols = N
    if not resident:
        tiles, banks = ceil(rows, P) * ceil(cols, gemm_blocks.RUN), gemm_blocks.BANKS
        require(batch == 1, "streamed products are walked one at a time")
        require(tiles <= banks, f"PSUM: {tiles} banks are needed by a streamed block, {banks} exist")
    require_unrolled(ceil(rows, P) * ceil(cols, gemm_blocks.RUN) * kchunk * batch)
    constants = {"rows": rows, "cols": cols, "kchunk": kchunk, "batch": batch, "hold": hold}
    constants |= {"drains": point["drains"], "drainer": point["drainer"]}
    require_sbuf(_sbuf_bytes(constants, N, nk, ITEMSIZE[precision]), target)
    return constants


def _sbuf_bytes(constants: Values, N: int, nk: int, itemsize: int) -> int:
    """The bytes per partition of operands in flight, output tiles and tables."""
    rows, cols, kchunk, resident = constants["rows"], constants["cols"], constants["kchunk"], constants["kchunk"] == nk
    run = min(gemm_blocks.RUN, cols)
    left = (1 if resident and constants["batch"] == 1 else 2) * rows
    right = N if constants["hold"] else 2 * (run if resident else cols)
    return kchunk * (left + right) * itemsize + constants["drains"] * gemm_blocks.RUN * 4 + 4096


def _launch(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A launch. Both parts of a split are filled in the same way, because this does not change the time."""
    outer = (PARTS[precision], shape["Z"]) if "Z" in shape else (PARTS[precision],)
    K, M, N, dtype = shape["K"], shape["M"], shape["N"], operand_dtype(precision)
    args = (fill((*outer, K, M), dtype), fill((*outer, K, N), dtype))
    return Launch(args, dict(constants), 2.0 * shape.get("Z", 1) * M * N * K)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    """A launch with full blocks and with the remainders of the shape."""
    small, rows = dict(shape), constants["rows"]
    small["M"] = _step_and_rest(shape["M"], rows if rows > 512 else 2 * rows)
    small["N"] = shape["N"] if constants["hold"] else _step_and_rest(shape["N"], constants["cols"])
    if "Z" in small:
        small["Z"] = _step_and_rest(shape["Z"], 2 * constants["batch"])
    return _launch(small, precision, constants, cores, fill)


def _step_and_rest(extent: int, step: int) -> int:
    """The extent of one full step and the remainder, or the whole extent if that is less."""
    return min(extent, step + extent % step)
