"""Synchronisation and transfers between the two cores of one launch."""

from __future__ import annotations

from collections import deque
from typing import Any

from trnqc.sim.instructions import checks
from trnqc.sim.machine import enums, machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory.storage import MemoryRegion
from trnqc.sim.memory.tensor import NkiTensor

GPSIMD_DMA_ELEMENTS = 256  # elements per partition that a gpsimd_dma transfer moves at most


def core_barrier(
    data: NkiTensor, cores: Any, engine: enums.engine = enums.engine.gpsimd, name: str | None = None
) -> None:
    """Wait until the other core arrives at the same barrier.

    Parameters
    ----------
    data : NkiTensor
        Shared HBM tensor that both cores use.
    cores : (int, int)
        Must be (0, 1).
    engine : engine
        Engine that waits.

    Raises
    ------
    NkiValidationError
        If the launch is not on two cores of trn2 or later, or an operand is wrong.
    """
    run = machine.current()
    checks.tensor("core_barrier", "data", data, (MemoryRegion.shared_hbm,))
    enums.member("core_barrier", "engine", engine, enums.engine)
    if run.target.generation < 3 or run.links is None:
        raise NkiValidationError(
            f"core_barrier needs a launch on two cores (kernel[2]) of trn2 or later, got {run.cores} on "
            f"{run.target.name}"
        )
    if tuple(cores) != (0, 1):
        raise NkiValidationError(f"core_barrier cores must be (0, 1), got {cores!r}")
    run.issue("core_barrier", engine.name, (), (data,), name)
    run.links.meet()


def sendrecv(
    src: NkiTensor,
    dst: NkiTensor,
    send_to_rank: int,
    recv_from_rank: int,
    pipe_id: int,
    dma_engine: enums.dma_engine = enums.dma_engine.dma,
    name: str | None = None,
) -> None:
    """Send a tile to one core and receive a tile from one core.

    Parameters
    ----------
    src, dst : NkiTensor
        Tiles to send and to receive; SBUF tiles with equal shape and dtype.
    send_to_rank, recv_from_rank : int
        Cores to send to and to receive from, 0 or 1.
    pipe_id : int
        A core receives what the other core sends with the same number.
    dma_engine : dma_engine
        ``dma``, or ``gpsimd_dma`` for at most 256 elements per partition.

    Raises
    ------
    NkiValidationError
        If the launch is not on two cores of trn2 or later, an operand is wrong, or the sent tile does not match dst.
    """
    run = machine.current()
    for role, t in (("src", src), ("dst", dst)):
        checks.tensor("sendrecv", role, t, checks.SBUF)
    if run.target.generation < 3 or run.links is None:
        raise NkiValidationError(
            f"sendrecv needs a launch on two cores (kernel[2]) of trn2 or later, got {run.cores} on {run.target.name}"
        )
    enums.member("sendrecv", "dma_engine", dma_engine, enums.dma_engine)
    if src.shape != dst.shape or src.dtype is not dst.dtype:
        raise NkiValidationError(
            f"sendrecv src and dst must have the same shape and dtype, got {src.shape} {src.dtype} and {dst.shape} "
            f"{dst.dtype}"
        )
    for role, rank in (("send_to_rank", send_to_rank), ("recv_from_rank", recv_from_rank)):
        if rank not in range(run.cores):
            raise NkiValidationError(f"sendrecv {role} must be 0 or 1, got {rank!r}")
    if dma_engine is enums.dma_engine.gpsimd_dma and src.size // src.shape[0] > GPSIMD_DMA_ELEMENTS:
        raise NkiValidationError(
            f"sendrecv with gpsimd_dma moves at most {GPSIMD_DMA_ELEMENTS} elements per partition, got "
            f"{src.size // src.shape[0]}"
        )
    engine = "gpsimd" if dma_engine is enums.dma_engine.gpsimd_dma else "dma"
    moves = run.issue("sendrecv", engine, (dst,), (src,), name)
    box = run.links.mail
    with run.links.lock:
        box.setdefault((pipe_id, run.core, send_to_rank), deque()).append(src.array().copy() if moves else None)
    run.links.meet()
    with run.links.lock:
        waiting = box.get((pipe_id, recv_from_rank, run.core))
        if not waiting:
            raise NkiValidationError(
                f"sendrecv on core {run.core} waits for core {recv_from_rank} on pipe {pipe_id}, which sent elsewhere"
            )
        sent = waiting.popleft()
    if moves and sent is not None:
        if sent.size != dst.size or sent.dtype != dst.array().dtype:
            raise NkiValidationError(f"sendrecv dst {dst.shape} {dst.dtype} does not match what was sent, {sent.shape}")
        dst.array()[...] = sent.reshape(dst.shape)
