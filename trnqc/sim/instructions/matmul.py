"""TensorE: matrix multiplication with accumulation in PSUM, and transposes, small ones also on the VectorE."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.machine import machine
from trnqc.sim.machine.enums import engine, matmul_perf_mode, member
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.rules import broken
from trnqc.sim.machine.targets import PARTITIONS, PSUM_BANK_BYTES
from trnqc.sim.memory import dtypes
from trnqc.sim.memory.psum import DRAINED, FILLED, FRESH, OPEN, REFILLED
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

# States of PSUM to which the machine adds where ``accumulate`` is None.
_ADDS = (OPEN, DRAINED, REFILLED)
_FP32 = (dtypes.float32, dtypes.tfloat32)
_FP8 = (dtypes.float8_e4m3, dtypes.float8_e5m2, dtypes.float8_e4m3fn)
_OPERANDS = (*_FP32, dtypes.bfloat16, dtypes.float16, *_FP8)


def nc_matmul(
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    is_stationary_onezero: bool = False,
    is_moving_onezero: bool = False,
    is_transpose: bool = False,
    accumulate: bool | None = None,
    tile_position: tuple[Any, ...] = (),
    tile_size: tuple[Any, ...] = (),
    perf_mode: matmul_perf_mode = matmul_perf_mode.none,
    name: str | None = None,
) -> None:
    """Multiply matrices: dst[M, N] (+)= stationary[K, M].T @ moving[K, N], in fp32.

    Parameters
    ----------
    dst : NkiTensor
        PSUM tile of fp32 (also bf16 on trn3, and the dtype of a 16-bit or 8-bit transpose from trn2 on); within one
        bank before trn3.
    stationary, moving : NkiTensor
        SBUF tiles of floating-point dtypes with K partitions; further free dimensions are flattened. fp32 and tf32
        pair only with each other.
    is_stationary_onezero, is_moving_onezero : bool
        Whether the operand consists of zeros and ones; without effect on the result.
    is_transpose : bool
        Whether one operand is an identity, so that the other is moved exactly.
    accumulate : bool, optional
        False overwrites, True adds, and None overwrites where no matmul wrote yet and adds elsewhere.
    tile_position, tile_size : (int, int)
        First (row, column) and size of the part of the PE array that is used; by default the whole array.
    perf_mode : matmul_perf_mode
        ``double_row`` contracts two rows of fp8 operands [K, 2, ...] at once (trn2 or later).

    Raises
    ------
    NkiValidationError
        If an operand breaks these rules, or dst cannot be accumulated as asked.
    """
    run = machine.current()
    checks.tile("nc_matmul", "dst", dst, checks.PSUM)
    checks.tile("nc_matmul", "stationary", stationary, checks.SBUF)
    checks.tile("nc_matmul", "moving", moving, checks.SBUF)
    member("nc_matmul", "perf_mode", perf_mode, matmul_perf_mode)
    _check_operand_dtypes(run, stationary, moving)
    _check_dst_dtype(run, dst, stationary, checks.flag("nc_matmul", "is_transpose", is_transpose))
    rows = _check_shapes(run, dst, stationary, moving, perf_mode, is_transpose, tuple(tile_size), tuple(tile_position))
    _check_bank(run, dst)
    for role, value in (("is_stationary_onezero", is_stationary_onezero), ("is_moving_onezero", is_moving_onezero)):
        checks.flag("nc_matmul", role, value)
    adds = accumulation(run, "nc_matmul", dst, accumulate)
    if run.issue("nc_matmul", "tensor", (dst,), (stationary, moving), name):
        left = widen(stationary.array()).reshape(rows, -1)
        right = widen(moving.array()).reshape(rows, -1)
        moved = is_transpose and run.target.generation >= 3
        product = _transposed(left, right) if moved else run.arithmetic.multiply(left, right, stationary.dtype in _FP32)
        deposit(dst, product, adds)


def _check_operand_dtypes(run: Run, stationary: NkiTensor, moving: NkiTensor) -> None:
    left, right = stationary.dtype, moving.dtype
    for role, dtype in (("stationary", left), ("moving", right)):
        if dtype not in _OPERANDS or (dtype is dtypes.float8_e4m3fn and run.target.generation < 4):
            names = ", ".join(d.name for d in _OPERANDS)
            raise NkiValidationError(
                f"nc_matmul {role} dtype {dtype} not supported on {run.target.name} (allowed: {names}; "
                "float8_e4m3fn on trn3)"
            )
    if (left in _FP32) != (right in _FP32):
        raise NkiValidationError(
            f"nc_matmul float32 and tfloat32 operands pair only with each other, got stationary {left} and "
            f"moving {right}"
        )
    if {left, right} == {dtypes.float8_e4m3, dtypes.float8_e4m3fn}:
        raise NkiValidationError("nc_matmul cannot mix float8_e4m3 and float8_e4m3fn operands")


def _check_dst_dtype(run: Run, dst: NkiTensor, stationary: NkiTensor, is_transpose: bool) -> None:
    allowed = [dtypes.float32]
    if run.target.generation >= 4:
        allowed.append(dtypes.bfloat16)
    if is_transpose and run.target.generation >= 3 and stationary.dtype.itemsize <= 2:
        allowed.append(stationary.dtype)
    if dst.dtype not in allowed:
        names = ", ".join(d.name for d in allowed)
        raise NkiValidationError(f"nc_matmul dst dtype must be {names} on {run.target.name}, got {dst.dtype}")


def _check_shapes(
    run: Run,
    dst: NkiTensor,
    stationary: NkiTensor,
    moving: NkiTensor,
    mode: matmul_perf_mode,
    is_transpose: bool,
    tile_size: tuple[Any, ...],
    tile_position: tuple[Any, ...],
) -> int:
    """Check K, M and N against each other and against the PE array and its tiling; return the contraction length."""
    k = stationary.shape[0]
    if moving.shape[0] != k:
        raise NkiValidationError(
            f"Matmul contraction dimension mismatch: stationary[0]={k} != moving[0]={moving.shape[0]}"
        )
    row_limit, column_limit = _pe_tile(run, tile_size, tile_position)
    if k > row_limit:
        raise NkiValidationError(f"nc_matmul contraction dimension must be at most {row_limit}, got {k}")
    m, n, total = stationary.size // k, moving.size // k, k
    if mode is matmul_perf_mode.double_row:
        total = _check_double_row(run, stationary, moving, is_transpose, column_limit)
        m, n = m // 2, n // 2
    if m > column_limit:
        raise NkiValidationError(f"nc_matmul stationary free size must be at most {column_limit}, got {m}")
    limit = run.target.moving_fmax
    if dst.dtype is dtypes.bfloat16 and run.target.moving_fmax_bf16_dst:
        limit = run.target.moving_fmax_bf16_dst
    if n > limit:
        raise NkiValidationError(f"nc_matmul moving free size must be at most {limit} on {run.target.name}, got {n}")
    if dst.shape[0] != m or dst.size != m * n:
        raise NkiValidationError(f"nc_matmul dst must be [{m}, {n}] (stationary free x moving free), got {dst.shape}")
    return total


def _pe_tile(run: Run, size: tuple[Any, ...], position: tuple[Any, ...]) -> tuple[int, int]:
    """Check the tiling of the PE array and return the rows and columns that are used."""
    if not size and not position:
        return PARTITIONS, PARTITIONS
    sizes = run.target.pe_tiles
    if len(size) != 2 or len(position) != 2:
        raise NkiValidationError(
            f"nc_matmul tile_size and tile_position must both be given as (row, column), got {size} and {position}"
        )
    for length, start in zip(size, position, strict=True):
        if length not in sizes or start % length or not 0 <= start <= PARTITIONS - length:
            raise NkiValidationError(
                f"nc_matmul tile_size must be of {sizes} on {run.target.name} and tile_position a multiple of it below "
                f"{PARTITIONS}, got {size} and {position}"
            )
    return size[0], size[1]


def _check_double_row(run: Run, stationary: NkiTensor, moving: NkiTensor, is_transpose: bool, columns: int) -> int:
    if run.target.generation < 3:
        raise NkiValidationError(f"nc_matmul perf_mode double_row needs trn2 or later, got {run.target.name}")
    if stationary.dtype not in _FP8 or moving.dtype not in _FP8:
        raise NkiValidationError(
            f"nc_matmul double_row operands must be float8, got {stationary.dtype} and {moving.dtype}"
        )
    if is_transpose or columns != PARTITIONS:
        raise NkiValidationError("nc_matmul double_row excludes is_transpose and column tiling")
    for role, t in (("stationary", stationary), ("moving", moving)):
        if t.ndim < 3 or t.shape[1] != 2:
            raise NkiValidationError(f"nc_matmul double_row {role} must be [K, 2, ...], got {t.shape}")
    return 2 * stationary.shape[0]


def _check_bank(run: Run, dst: NkiTensor) -> None:
    """Check that dst lies within one PSUM bank, as targets before trn3 require."""
    if run.target.generation >= 4 or dst.partition_stride * dst.dtype.itemsize <= PSUM_BANK_BYTES:
        return
    first, last = dst.region().bytes
    if first // PSUM_BANK_BYTES != (last - 1) // PSUM_BANK_BYTES:
        raise NkiValidationError(
            f"nc_matmul dst must lie within one PSUM bank of {PSUM_BANK_BYTES} bytes on {run.target.name}, got bytes "
            f"[{first}, {last}) of `{dst.name}`"
        )


def accumulation(run: Run, op: str, dst: NkiTensor, accumulate: bool | None) -> bool | np.ndarray:
    """Decide whether a matmul adds to its PSUM destination, for each element if the elements differ, and record the
    matmul in the accumulation state.

    If `accumulate` is None, the state decides. Raises NkiValidationError if the hardware result would be undefined in
    this state.
    """
    state = dst.storage.psum
    assert state is not None
    if run.absent:
        return False
    key = dst.psum_key()
    if accumulate is not None and not checks.flag(op, "accumulate", accumulate):
        state.set(key, OPEN)
        return False
    code, mixed = state.codes_of(key)
    codes = {code} if mixed is None else set(np.unique(mixed).tolist())
    if accumulate is not None:
        _check_adding(run, op, dst, codes)
        adds: bool | np.ndarray = True
    else:
        _check_inferred(op, dst, codes)
        adds = code in _ADDS if mixed is None else np.isin(mixed, _ADDS)
    state.set(key, OPEN)
    return adds


def _check_adding(run: Run, op: str, dst: NkiTensor, codes: set[int]) -> None:
    if FRESH in codes:
        raise NkiValidationError(
            f"{op} accumulate=True on `{dst.name}`, where no matmul wrote yet; start the group with accumulate=False "
            "(accumulate=(k > 0))"
        )
    if codes & {FILLED, REFILLED} and run.target.generation < 4:
        broken(
            f"{op} accumulate=True on `{dst.name}`, which was written by something else than a matmul: undefined on "
            f"{run.target.name}; start the group with accumulate=False and add the initial values afterwards",
            "undefined",
        )


def _check_inferred(op: str, dst: NkiTensor, codes: set[int]) -> None:
    if codes & {DRAINED, REFILLED}:
        broken(
            f"{op} accumulate=None on `{dst.name}`, whose last group was read already: the machine would keep "
            "adding to it; make a fresh PSUM tile for each group, or pass accumulate=(k > 0)",
            "undefined",
        )


def deposit(dst: NkiTensor, product: np.ndarray, adds: bool | np.ndarray) -> None:
    """Write a product to PSUM, or add it where ``adds`` is True; ``adds`` may be an array over the elements."""
    out = dst.array()
    product = product.reshape(out.shape)
    if adds is False:
        store(out, product, dst.dtype)
    elif adds is True and dst.dtype is dtypes.float32:
        out += product
    else:
        store(out, np.where(adds, widen(out) + product, product), dst.dtype)


def _transposed(left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Multiply exactly by an operand of zeros and ones that has a single 1 in each column."""
    for ones, data, moving_is_ones in ((right, left, True), (left, right, False)):
        if np.isin(ones, (0, 1)).all() and (ones.sum(0) == 1).all():
            picked = ones.argmax(0)
            return data[picked].T if moving_is_ones else data[picked]
    raise NkiValidationError("nc_matmul is_transpose needs an identity (0/1) matrix as one operand")


def nc_transpose(dst: NkiTensor, data: NkiTensor, engine: engine = engine.unknown, name: str | None = None) -> None:
    """Transpose a tile: dst[F, P] = data[P, F].T, with flattened free dimensions.

    Parameters
    ----------
    dst, data : NkiTensor
        Tiles with equal dtypes.
    engine : engine
        TensorE for up to 128 x 128 elements from SBUF to PSUM, or VectorE for up to 32 x 32. By default the TensorE
        if dst is in PSUM and data is not.
    """
    run = machine.current()
    checks.tile("nc_transpose", "data", data)
    checks.tile("nc_transpose", "dst", dst)
    rows, columns = data.shape[0], data.size // data.shape[0]
    chosen = _transpose_engine(engine, dst, data)
    if chosen == "tensor":
        if columns > PARTITIONS:
            raise NkiValidationError(
                f"Tensor engine transpose requires shape <= [{PARTITIONS},{PARTITIONS}], got [{rows},{columns}]"
            )
        checks.tile("nc_transpose (tensor engine)", "data", data, checks.SBUF)
        checks.tile("nc_transpose (tensor engine)", "dst", dst, checks.PSUM)
    elif rows > 32 or columns > 32:
        raise NkiValidationError(f"Vector engine transpose requires shape <= [32,32], got [{rows},{columns}]")
    if dst.shape[0] != columns or dst.size != data.size:
        raise NkiValidationError(f"nc_transpose dst must be [{columns}, {rows}], got {dst.shape}")
    if dst.dtype is not data.dtype:
        raise NkiValidationError(f"nc_transpose dst dtype must be that of data, {data.dtype}, got {dst.dtype}")
    if chosen == "tensor" and dst.storage.psum is not None and not run.absent:
        dst.storage.psum.mark_filled(dst.psum_key())
    if run.issue("nc_transpose", chosen, (dst,), (data,), name):
        flat = data.array().reshape(rows, columns)
        if chosen == "tensor" and run.target.generation < 3 and data.dtype.kind == "float":
            identity = np.eye(rows, dtype=np.float32)
            store(dst.array(), run.arithmetic.multiply(widen(flat), identity, data.dtype in _FP32), dst.dtype)
        else:
            dst.array()[...] = flat.T.reshape(dst.shape)


def _transpose_engine(chosen: Any, dst: NkiTensor, data: NkiTensor) -> str:
    checks.engine_choice("nc_transpose", chosen, (engine.tensor, engine.vector))
    if chosen is not engine.unknown:
        return chosen.name
    psum = MemoryRegion.psum
    return "tensor" if dst.buffer is psum and data.buffer is not psum else "vector"
