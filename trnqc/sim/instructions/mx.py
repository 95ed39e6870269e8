"""Microscaling formats on trn3: quantisation of 16-bit tiles, and products of quantised tiles.

A group of 32 values, 8 partitions by 4 elements, shares a scale, a power of two in E8M0 format (OCP Microscaling
Formats v1.0): the byte is 127 + exponent, or 255 for NaN. Four elements are packed into one: element f of a tile [P, F]
in an x4 dtype holds the values 4 f to 4 f + 3, lowest bits first. The scale of group (g, f) is in column f of partition
32 (g // 4) + g % 4 of the scale tile, so the first four partitions of each quadrant of 32 hold its scales.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.instructions.checks import PSUM, SBUF
from trnqc.sim.instructions.matmul import accumulation, deposit
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.targets import PARTITIONS
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.dtypes import DType
from trnqc.sim.memory.tensor import NkiTensor

QUADRANT = 32  # partitions of a quadrant
GROUP_ROWS = 8  # partitions of a group
PACK = 4  # values in a packed element
BIAS = 127  # exponent bias of E8M0
NAN_SCALE = 255  # E8M0 byte of NaN
ELEMENT = {
    dtypes.float8_e5m2_x4: np.dtype(ml_dtypes.float8_e5m2),
    dtypes.float8_e4m3fn_x4: np.dtype(ml_dtypes.float8_e4m3fn),
    dtypes.float4_e2m1fn_x4: np.dtype(ml_dtypes.float4_e2m1fn),
}
MAX_EXPONENT = {dtypes.float8_e5m2_x4: 15, dtypes.float8_e4m3fn_x4: 8}
SCALES = (dtypes.float8_e8m0fnu, dtypes.uint8)


def quantize_mx(dst: NkiTensor, src: NkiTensor, dst_scale: NkiTensor, name: str | None = None) -> None:
    """Quantise a tile to MXFP8 on the VectorE.

    Parameters
    ----------
    dst : NkiTensor
        [P, F] SBUF tile of float8_e5m2_x4 or float8_e4m3fn_x4.
    src : NkiTensor
        [P, 4 F] SBUF tile of fp16 or bf16; P is a multiple of 32.
    dst_scale : NkiTensor
        SBUF tile for the scales, of float8_e8m0fnu or uint8.

    Notes
    -----
    The scale is 2^(floor(log2 max|group|) - (Emax - 1)), with Emax = 8 (e4m3fn) or 15 (e5m2), and 2^-127 for groups of
    zeros. The exponent is one higher than the format needs, so that rounding up cannot overflow.
    """
    op = "quantize_mx"
    run = machine.current()
    checks.needs_generation(run, op, 4)
    checks.tile(op, "dst", dst, SBUF)
    checks.tile(op, "src", src, SBUF)
    checks.one_of(op, "src", src, (dtypes.float16, dtypes.bfloat16))
    checks.one_of(op, "dst", dst, tuple(MAX_EXPONENT))
    P, n = src.shape[0], src.size // src.shape[0]
    if P % QUADRANT:
        raise NkiValidationError(f"{op} src partition dimension must be a multiple of 32, got {P}")
    if n % PACK or dst.shape[0] != P or dst.size * PACK != src.size:
        raise NkiValidationError(
            f"{op} src must have a multiple of 4 elements per partition and dst a quarter of them, got "
            f"{src.shape} and {dst.shape}"
        )
    _check_scale(op, "dst_scale", dst_scale, P, n // PACK)
    if run.issue(op, "vector", (dst, dst_scale), (src,), name):
        with np.errstate(all="ignore"):
            groups = src.array().astype(np.float32).reshape(P // GROUP_ROWS, GROUP_ROWS, n // PACK, PACK)
            largest = np.abs(groups).max(axis=(1, 3))
            exponent = np.frexp(largest)[1] - 1 - (MAX_EXPONENT[dst.dtype] - 1)
            code = np.where(largest == 0, 0, np.clip(exponent + BIAS, 0, NAN_SCALE - 1))
            code = np.where(np.isfinite(largest), code, NAN_SCALE)
            scaled = np.ldexp(groups, (BIAS - code)[:, None, :, None])
            packed = np.ascontiguousarray(scaled.reshape(P, n).astype(ELEMENT[dst.dtype])).view(dst.dtype.numpy)
        dst.array()[...] = packed.reshape(dst.shape)
        _scale_bytes(dst_scale)[_scale_rows(P), : n // PACK] = code


def _check_scale(op: str, role: str, scale: NkiTensor, P: int, columns: int) -> None:
    """Check that a scale tile has ``columns`` columns and enough partitions for the scales of ``P`` partitions."""
    checks.tensor(op, role, scale, SBUF)
    checks.one_of(op, role, scale, SCALES)
    needed = int(_scale_rows(P)[-1]) + 1
    if scale.shape[0] < needed or scale.size != scale.shape[0] * columns:
        raise NkiValidationError(
            f"{op} {role} must have {columns} elements in each of at least {needed} partitions (four for each 32 "
            f"of the data), got {scale.shape}"
        )
    if scale.start_partition % 4:
        raise NkiValidationError(f"{op} {role} must start at a multiple of 4 partitions, got {scale.start_partition}")


def _scale_rows(P: int) -> np.ndarray:
    """Partitions of the scale tile that hold the scales of ``P`` partitions."""
    group = np.arange(P // GROUP_ROWS)
    return QUADRANT * (group // 4) + group % 4


def _scale_bytes(scale: NkiTensor) -> np.ndarray:
    array = scale.array()
    return (array if array.dtype == np.uint8 else array.view(np.uint8)).reshape(scale.shape[0], -1)


def nc_matmul_mx(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    stationary_scale: NkiTensor,
    moving_scale: NkiTensor,
    tile_position: tuple[int, int] | None = None,
    tile_size: tuple[int, int] | None = None,
    accumulate: bool | None = None,
    name: str | None = None,
) -> None:
    """Multiply quantised matrices on the TensorE: dst[M, N] (+)= stationary[K, M].T @ moving[K, N].

    The product sums over partitions and over the four values of packed elements.

    Parameters
    ----------
    dst : NkiTensor
        PSUM tile of fp32 or bf16.
    stationary, moving : NkiTensor
        SBUF tiles in x4 dtypes with K partitions, a multiple of 32; M is even.
    stationary_scale, moving_scale : NkiTensor
        Scale tiles of the operands, of float8_e8m0fnu or uint8.
    tile_position, tile_size : (int, int), optional
        First (row, column) and size of the part of the PE array that is used; only rows can be tiled.
    accumulate : bool, optional
        False overwrites, True adds, and None overwrites where no matmul wrote yet and adds elsewhere.
    """
    op = "nc_matmul_mx"
    run = machine.current()
    checks.needs_generation(run, op, 4)
    checks.tile(op, "dst", dst, PSUM)
    checks.one_of(op, "dst", dst, (dtypes.float32, dtypes.bfloat16))
    for role, t, scale in (("stationary", stationary, stationary_scale), ("moving", moving, moving_scale)):
        checks.tile(op, role, t, SBUF)
        checks.one_of(op, role, t, tuple(ELEMENT))
        _check_scale(op, f"{role}_scale", scale, t.shape[0], t.size // t.shape[0])
    K, M, N = stationary.shape[0], stationary.size // stationary.shape[0], moving.size // moving.shape[0]
    if moving.shape[0] != K or K % QUADRANT:
        raise NkiValidationError(
            f"{op} stationary and moving must have the same partition dimension, a multiple of 32, got {K}, "
            f"{moving.shape[0]}"
        )
    _check_rows(op, K, tile_size, tile_position)
    if M % 2 or M > PARTITIONS:
        raise NkiValidationError(f"{op} stationary free size must be even and at most {PARTITIONS}, got {M}")
    limit = run.target.moving_fmax if dst.dtype is dtypes.float32 else run.target.moving_fmax_bf16_dst
    if limit < N:
        raise NkiValidationError(f"{op} moving free size must be at most {limit} for a {dst.dtype} dst, got {N}")
    if dst.shape[0] != M or dst.size != M * N:
        raise NkiValidationError(f"{op} dst must be [{M}, {N}] (stationary free x moving free), got {dst.shape}")
    adds = accumulation(run, op, dst, accumulate)
    if run.issue(op, "tensor", (dst,), (stationary, moving, stationary_scale, moving_scale), name):
        left, right = dequantized(stationary, stationary_scale), dequantized(moving, moving_scale)
        with np.errstate(all="ignore"):
            product = left.transpose(0, 2, 1).reshape(-1, M).T @ right.transpose(0, 2, 1).reshape(-1, N)
        deposit(dst, product, adds)


def _check_rows(op: str, K: int, size: tuple[int, int] | None, position: tuple[int, int] | None) -> None:
    """Check the tiling of the PE array: size (32, 64 or 128, 128) at (a multiple of the rows, 0)."""
    if not size and not position:
        return
    if not size or not position or size[1] != 128 or position[1] != 0 or size[0] not in (32, 64, 128):
        raise NkiValidationError(
            f"{op} needs both tile_size (32, 64 or 128, 128) and tile_position (row, 0), got {size} and {position}"
        )
    if position[0] % size[0] or not 0 <= position[0] <= PARTITIONS - size[0] or size[0] < K:
        raise NkiValidationError(
            f"{op} tile_position row must be a multiple of the row size below {PARTITIONS} and K at most the row "
            f"size, got {position}, {size} with K = {K}"
        )


def dequantized(data: NkiTensor, scale: NkiTensor) -> np.ndarray:
    """Return the scaled values of a quantised tile as [K, F, 4] in fp32."""
    K = data.shape[0]
    values = unpack(np.ascontiguousarray(data.array()).reshape(K, -1), data.dtype)
    code = _scale_bytes(scale)[_scale_rows(K)].astype(np.int32)
    values = np.ldexp(values, np.repeat(code - BIAS, GROUP_ROWS, axis=0)[:, :, None])
    return np.where(np.repeat(code == NAN_SCALE, GROUP_ROWS, axis=0)[:, :, None], np.float32(np.nan), values)


def unpack(packed: np.ndarray, dtype: DType) -> np.ndarray:
    """Unpack [K, F] in an x4 dtype to [K, F, 4] in fp32, without scales."""
    element = ELEMENT[dtype]
    if dtype is not dtypes.float4_e2m1fn_x4:
        return packed.view(element).reshape(*packed.shape, PACK).astype(np.float32)
    nibbles = (packed[:, :, None] >> np.arange(0, 16, 4, dtype=np.uint16)) & np.uint16(0xF)
    return nibbles.astype(np.uint8).view(element).astype(np.float32)
