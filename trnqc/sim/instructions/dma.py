"""DMA: copies, gathers, scatters, sums and transposes in HBM and SBUF; DMA does not reach PSUM."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.machine import enums, machine, ops
from trnqc.sim.machine.enums import descriptor_mode, dge_mode, engine, member, oob_mode
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.memory.dynamic import ScalarOffset, VectorOffset
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

_AXES = {2: (1, 0), 3: (2, 1, 0), 4: (3, 1, 2, 0)}  # permutation that dma_transpose supports for each rank


def dma_copy(
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: oob_mode = oob_mode.error,
    dge_mode: dge_mode = dge_mode.unknown,
    engine: engine = engine.unknown,
    name: str | None = None,
) -> None:
    """Copy between HBM and SBUF: dst = src, element by element in row-major order.

    Parameters
    ----------
    dst, src : NkiTensor
        Tensors with equal numbers of elements. Different dtypes are cast through fp32.
    priority : int, optional
        0 to 3; trn3 only.
    oob_mode : oob_mode
        ``error`` refuses runtime indices outside the tensor; ``skip`` leaves their rows unchanged.
    dge_mode : dge_mode
        Generation of the descriptors: ``hwdge`` needs trn2 or later and equal dtypes, vector offsets need ``swdge``
        or ``unknown``, and ``none`` excludes runtime offsets.
    engine : engine
        Queue of an ``hwdge`` copy, sync or scalar; unknown otherwise.
    """
    run = machine.current()
    checks.tensor("dma_copy", "dst", dst, checks.DMA)
    checks.tensor("dma_copy", "src", src, checks.DMA)
    if dst.size != src.size:
        raise NkiValidationError(
            f"dma_copy requires src and dst to have the same number of elements, got src={src.size}, dst={dst.size}"
        )
    _check_hwdge(run, dst, src, _checked_modes(run, "dma_copy", priority, oob_mode, dge_mode), engine)
    if run.issue("dma_copy", "dma", (dst,), (src,), name):
        if dst.dynamic is None and src.dynamic is None:
            _copy(dst, src)
        else:
            _copy_indirect(dst, src, oob_mode)


def _checked_modes(run: Run, op: str, priority: Any, oob: Any, dge: Any) -> dge_mode:
    """Check the modes of a DMA, and return how its descriptors are generated."""
    member(op, "oob_mode", oob, oob_mode)
    mode = descriptor_mode(op, dge)
    if priority is not None and (run.target.generation < 4 or priority not in range(4)):
        raise NkiValidationError(f"{op} priority must be 0 to 3 and needs trn3, got {priority!r} on {run.target.name}")
    return mode


def _check_hwdge(run: Run, dst: NkiTensor, src: NkiTensor, mode: Any, chosen: Any) -> None:
    indirect = isinstance(dst.dynamic, VectorOffset) or isinstance(src.dynamic, VectorOffset)
    if indirect and mode not in (dge_mode.unknown, dge_mode.swdge):
        raise NkiValidationError(f"dma_copy with vector_offset needs dge_mode swdge, got {mode.name}")
    if mode is dge_mode.none and (dst.dynamic is not None or src.dynamic is not None):
        raise NkiValidationError("dma_copy with a runtime offset needs a descriptor engine, got dge_mode none")
    if mode is dge_mode.hwdge:
        if run.target.generation < 3:
            raise NkiValidationError(f"dma_copy dge_mode hwdge needs trn2 or later, got {run.target.name}")
        if dst.dtype is not src.dtype:
            raise NkiValidationError(f"dma_copy with hwdge cannot cast, got src {src.dtype}, dst {dst.dtype}")
    member("dma_copy", "engine", chosen, engine)
    if chosen is engine.unknown:
        return
    if mode is not dge_mode.hwdge or chosen not in (engine.sync, engine.scalar):
        raise NkiValidationError(
            f"dma_copy engine must be sync or scalar with dge_mode hwdge, got {chosen.name} with {mode.name}"
        )


def _copy(dst: NkiTensor, src: NkiTensor) -> None:
    out, value = dst.array(), src.array()
    if dst.dtype is src.dtype:
        out[...] = value if out.shape == value.shape else value.reshape(out.shape)
    else:
        store(out, widen(value), dst.dtype)


def _copy_indirect(dst: NkiTensor, src: NkiTensor, oob: oob_mode) -> None:
    skip = oob is oob_mode.skip
    for t in (dst, src):
        if skip and isinstance(t.dynamic, ScalarOffset) and not t.dynamic.fits(t, t.dynamic.index()):
            return
    value, valid = gather(src, skip)
    if dst.dtype is not src.dtype:
        cast = np.empty(value.shape, dst.dtype.numpy)
        store(cast, widen(value), dst.dtype)
        value = cast
    scatter(dst, value.reshape(dst.shape), _rows_of(valid, src, dst), skip)


def gather(t: NkiTensor, skip: bool) -> tuple[np.ndarray, np.ndarray | None]:
    """Return the elements of ``t`` and a mask of its rows in bounds, or None if all are."""
    if not isinstance(t.dynamic, VectorOffset):
        return t.array(), None
    positions, inside = t.dynamic.positions(t)
    _check_inside(t, inside, skip)
    flat = t.storage.raw.view(t.dtype.numpy)  # type: ignore[union-attr]
    safe = np.where(inside.reshape([-1] + [1] * (t.ndim - 1)), positions, 0)
    return flat[safe], None if inside.all() else inside


def scatter(t: NkiTensor, value: np.ndarray, valid: np.ndarray | None, skip: bool) -> None:
    """Write ``value``, in the dtype of ``t``, to the rows of ``t`` that are valid and in bounds."""
    rows = np.ones(t.shape[0], bool) if valid is None else valid
    if not isinstance(t.dynamic, VectorOffset):
        t.array()[rows] = value[rows]
        return
    positions, inside = t.dynamic.positions(t)
    _check_inside(t, inside, skip)
    flat = t.storage.raw.view(t.dtype.numpy)  # type: ignore[union-attr]
    flat[positions[rows & inside]] = value[rows & inside]


def _check_inside(t: NkiTensor, inside: np.ndarray, skip: bool) -> None:
    if not skip and not inside.all():
        raise NkiValidationError(
            f"Out-of-bound access for tensor `{t.name}`: vector_offset of row {int(inside.argmin())} leaves the "
            f"tensor of shape {t.storage.shape}; oob_mode.skip would leave such rows alone"
        )


def _rows_of(valid: np.ndarray | None, src: NkiTensor, dst: NkiTensor) -> np.ndarray | None:
    if valid is not None and src.shape[0] != dst.shape[0]:
        raise NkiValidationError(
            f"dma_copy with skipped rows needs equal leading dimensions, got src {src.shape}, dst {dst.shape}"
        )
    return valid


def dma_compute(
    dst: NkiTensor,
    srcs: list[NkiTensor],
    reduce_op: Any,
    scales: Any = None,
    unique_indices: bool = True,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> None:
    """Add tensors in HBM and SBUF: dst = sum of srcs, in fp32.

    Parameters
    ----------
    dst : NkiTensor
        Result. With a vector offset, the rows that the indices select.
    srcs : list of NkiTensor
        1 to 16 tensors with as many elements as dst; exactly 2 if any tensor has a vector offset.
    reduce_op : Op
        Must be ``nl.add``.
    scales : sequence of float, optional
        Must all be 1.0.
    unique_indices : bool
        Whether no row is selected twice; must be True with a vector offset.
    oob_mode : oob_mode
        ``error`` refuses indices outside the tensor; ``skip`` leaves their rows unchanged.
    """
    run = machine.current()
    checks.tensor("dma_compute", "dst", dst, checks.DMA)
    if not isinstance(srcs, (list, tuple)) or not 1 <= len(srcs) <= 16:
        raise NkiValidationError(f"dma_compute srcs must be a list of 1 to 16 tensors, got {srcs!r}")
    for i, src in enumerate(srcs):
        checks.tensor("dma_compute", f"srcs[{i}]", src, checks.DMA)
        if src.size != dst.size:
            raise NkiValidationError(
                f"dma_compute requires srcs and dst to have the same number of elements, got srcs[{i}]={src.size}, "
                f"dst={dst.size}"
            )
    if reduce_op is not ops.add or (scales is not None and any(s != 1.0 for s in scales)):
        raise NkiValidationError(f"dma_compute does only nl.add with scales 1.0, got {reduce_op!r} with {scales}")
    member("dma_compute", "oob_mode", oob_mode, enums.oob_mode)
    indirect = [t for t in (dst, *srcs) if isinstance(t.dynamic, VectorOffset)]
    if indirect and (len(srcs) != 2 or not unique_indices):
        raise NkiValidationError("dma_compute with vector_offset takes exactly 2 srcs and unique_indices=True")
    if not run.issue("dma_compute", "dma", (dst,), tuple(srcs), name):
        return
    skip = oob_mode.name == "skip"
    total, rows = np.zeros(dst.shape, np.float32), None
    for src in srcs:
        value, valid = gather(src, skip)
        total = total + widen(value).reshape(dst.shape)
        rows = valid if rows is None else rows & (True if valid is None else valid)
    result = np.empty(dst.shape, dst.dtype.numpy)
    store(result, total, dst.dtype)
    scatter(dst, result, rows, skip)


def dma_transpose(
    dst: NkiTensor,
    src: NkiTensor,
    axes: tuple[Any, ...] | None = None,
    priority: int | None = None,
    dge_mode: dge_mode = dge_mode.unknown,
    oob_mode: oob_mode = oob_mode.error,
    name: str | None = None,
) -> None:
    """Transpose a tensor into SBUF: dst = src permuted by ``axes``.

    Parameters
    ----------
    dst, src : NkiTensor
        SBUF result and HBM or SBUF source, with equal dtypes.
    axes : tuple of int, optional
        (1, 0), (2, 1, 0) or (3, 1, 2, 0), according to the rank.
    priority : int, optional
        0 to 3; trn3 only.
    dge_mode : dge_mode
        ``hwdge`` limits the shape and needs a 2-byte dtype; vector offsets need ``swdge`` or ``unknown``.
    oob_mode : oob_mode
        ``error`` refuses indices outside the tensor; ``skip`` leaves their rows unchanged.
    """
    run = machine.current()
    checks.tensor("dma_transpose", "dst", dst, checks.SBUF)
    checks.tensor("dma_transpose", "src", src, checks.DMA)
    order = _AXES.get(src.ndim) if axes is None else tuple(axes)
    if order is None or order not in _AXES.values():
        raise NkiValidationError(f"dma_transpose axes must be one of {list(_AXES.values())}, got {axes}")
    if len(order) != src.ndim or dst.ndim != src.ndim:
        raise NkiValidationError(
            f"dma_transpose ranks must agree with axes {order}, got src {src.shape}, dst {dst.shape}"
        )
    if dst.shape != tuple(src.shape[a] for a in order):
        raise NkiValidationError(
            f"dma_transpose dst must have shape {tuple(src.shape[a] for a in order)}, got {dst.shape}"
        )
    if dst.dtype is not src.dtype:
        raise NkiValidationError(f"dma_transpose dst dtype must be that of src, {src.dtype}, got {dst.dtype}")
    _check_transpose_dge(run, src, _checked_modes(run, "dma_transpose", priority, oob_mode, dge_mode))
    if run.issue("dma_transpose", "dma", (dst,), (src,), name):
        value, valid = gather(src, oob_mode.name == "skip")
        moved = value.transpose(order)
        if valid is None:
            dst.array()[...] = moved
        else:
            dst.array()[..., valid] = moved[..., valid]


def _check_transpose_dge(run: Run, src: NkiTensor, mode: dge_mode) -> None:
    if isinstance(src.dynamic, VectorOffset):
        if run.target.generation < 3 or mode not in (enums.dge_mode.unknown, enums.dge_mode.swdge):
            raise NkiValidationError(
                f"dma_transpose with vector_offset needs trn2 or later and swdge, got {run.target.name}, {mode.name}"
            )
        if src.dtype.itemsize != 2 or src.shape[-1] > 128 or src.shape[0] % 16 or src.on_chip:
            raise NkiValidationError(
                "dma_transpose with vector_offset needs an HBM src of a 2-byte dtype, rows in multiples of 16 "
                f"and at most 128 columns, got {src.shape} {src.dtype}"
            )
        return
    if mode not in (enums.dge_mode.unknown, enums.dge_mode.hwdge):
        raise NkiValidationError(f"dma_transpose dge_mode must be unknown or hwdge, got {mode.name}")
    if mode.name != "hwdge":
        return
    first, rows = src.shape[0], src.shape[0] * src.shape[-2]
    fits = first == 16 if src.ndim == 2 else first in (1, 2, 4, 8, 16) and rows % 16 == 0
    if src.dtype.itemsize != 2 or src.shape[-1] > 128 or not fits:
        raise NkiValidationError(
            "dma_transpose with hwdge needs a 2-byte dtype, at most 128 columns and a leading dimension of 16 (2-D) "
            f"or of 1, 2, 4, 8, 16 with shape[0] * shape[-2] a multiple of 16, got {src.shape} {src.dtype}"
        )
