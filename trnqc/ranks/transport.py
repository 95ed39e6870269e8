"""The ranks of a job over torch.distributed.

    with started("cpu") as ranks:              gloo between CPUs; nccl for "cuda", the vendor's backend for "neuron"
        total = ranks.sum(array)

Only bytes are sent. The host adds them up in the order of ranks, so that sums have the same bits with every transport,
and are in fp64 even if the device has none. If one rank is killed, is stopped or fails, all of them end with one
message (watch.py).
"""

from __future__ import annotations

import datetime
import importlib
import math
import os
import pickle
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from typing import Any, TypeVar

import numpy as np
import torch
import torch.distributed as dist

from trnqc.errors import BackendUnavailable, CommunicationError, InputError, TrnqcError
from trnqc.ranks.groups import Message
from trnqc.ranks.launch import TRANSPORTS, Transport, missing_variables
from trnqc.ranks.watch import POLL, Watch

T = TypeVar("T")

# Seconds that a rank waits for another that lives but does not come.
TIMEOUT = 1800.0
# Seconds without a heartbeat after which a rank counts as lost.
SILENCE = 30.0
# Seconds that rank 0 keeps the store open for the others at the end.
LEAVING = 10.0
# Bytes of one message at most: transports count in 32 bits.
PIECE = 1 << 28
# Not empty once ranks were started: the store that they meet in remembers their meetings, so that this works once.
_used: list[bool] = []


@contextmanager
def started(device: str = "cpu", timeout: float = TIMEOUT) -> Iterator[TorchRanks]:
    """The ranks of this job, until the end of the block; an error in the block ends the other ranks too.

    This works once in a process.

    Parameters
    ----------
    device
        Where the arrays that ranks exchange lie: a key of `TRANSPORTS`.
    timeout
        Seconds that a rank waits for another that lives. A rank that gives no sign of life for a quarter of it, or for
        30 seconds, counts as lost.

    Raises
    ------
    InputError
        If the process was not started as a rank, there is no such device, or ranks were started before.
    BackendUnavailable
        If the device or its package is not there.
    CommunicationError
        If the ranks cannot meet.
    """
    transport = _transport(device)
    if missing := missing_variables():
        raise InputError(f"{', '.join(missing)} not set: start the ranks with torchrun")
    if _used:
        raise InputError("ranks are started once in a process: do all that they share in one block")
    _used.append(True)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = os.environ.get("LOCAL_RANK", "0")
    # A process that opens the vendor's runtime takes all cores that it sees, so each rank is shown one.
    os.environ.setdefault("NEURON_RT_VISIBLE_CORES", local)
    try:
        if transport.device == "cuda":
            torch.cuda.set_device(int(local))
        dist.init_process_group(transport.name, timeout=datetime.timedelta(seconds=timeout))
        stores = [_store(timeout) for _ in range(2)]
    except (RuntimeError, ValueError) as error:
        raise CommunicationError(
            f"rank {rank} of {size} cannot meet the others at {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} "
            f"over {transport.name}: {str(error).splitlines()[0]}; start all of them again"
        ) from error
    with Watch(stores[0], rank, size, min(SILENCE, timeout / 4)) as watch:
        try:
            yield TorchRanks(rank, size, transport, stores[1], watch)
            _all_at(stores[1], size, "end")
        except TrnqcError as error:
            if not watch.failed(f"{type(error).__name__}: {error}"):
                raise SystemExit(2) from error
            if isinstance(error, CommunicationError) or rank == 0:
                raise
            raise type(error)(f"rank {rank} of {size}: {error}") from error
        except Exception as error:
            watch.failed(f"{type(error).__name__}: {error}")
            raise
    # Rank 0 may host the store, so that it leaves last.
    _all_at(stores[1], size, "silence", patience=LEAVING if rank == 0 else 0.0)
    dist.destroy_process_group()


def _transport(device: str) -> Transport:
    if device not in TRANSPORTS:
        raise InputError(f"ranks talk over the devices {', '.join(TRANSPORTS)}; found {device!r}")
    transport = TRANSPORTS[device]
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable("ranks over cuda need a GPU and a PyTorch built for it; none is usable here")
    if transport.module:
        try:
            importlib.import_module(transport.module)
        except ImportError as error:
            raise BackendUnavailable(f"ranks over {device} need {transport.module}: {error}") from error
    return transport


def _store(timeout: float) -> Any:
    """Open another connection to the store in which the ranks have met; entries before a restart are not seen."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=datetime.timedelta(seconds=timeout))
    return dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _all_at(store: Any, size: int, place: str, patience: float = math.inf) -> None:
    """Say that this rank has reached a place, and wait until all have, or for `patience` seconds."""
    store.add(f"trnqc/at/{place}", 1)
    until = time.monotonic() + patience
    while time.monotonic() < until and store.add(f"trnqc/at/{place}", 0) < size:
        time.sleep(POLL)


# Parts of torch.distributed's messages that say nothing to users: places in its sources, guesses, later lines.
_CLUTTER = re.compile(r"\[\S+\.cc:\d+\] |\. This is typically.*|\n.*", re.DOTALL)


class TorchRanks:
    """`trnqc.ranks.Ranks` over torch.distributed; made by `started`."""

    def __init__(self, rank: int, size: int, transport: Transport, store: Any, watch: Watch) -> None:
        self.rank, self.size, self.transport = rank, size, transport
        self.neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._store, self._watch, self._calls = store, watch, 0

    def at(self, stage: str) -> None:
        """See Ranks.at."""
        self._watch.at(stage)

    def at_first(self, make: Callable[[], T]) -> T:
        """See Ranks.at_first."""
        self._calls += 1
        key = f"trnqc/first/{self._calls}"
        if self.rank == 0:
            data = np.frombuffer(bytearray(pickle.dumps(make())), np.uint8)
            self._store.set(key, str(len(data)))
        else:
            while not self._store.check([key]):
                time.sleep(POLL)
            data = np.empty(int(self._store.get(key)), np.uint8)
        tensor = self._tensor(data, filled=self.rank == 0)
        with self.reach():
            for piece in tensor.split(PIECE):
                dist.broadcast(piece, 0)
        return pickle.loads(tensor.cpu().numpy().tobytes())  # type: ignore[no-any-return]

    def sum(self, array: np.ndarray) -> np.ndarray:
        """See Ranks.sum. Each rank adds up one part of the array and sends it to all."""
        flat = np.ascontiguousarray(array).reshape(-1)
        edges = np.linspace(0, flat.size, self.size + 1).astype(int)
        parts = [flat[a:b] for a, b in pairwise(edges)]
        mine = [np.empty_like(parts[self.rank]) for _ in range(self.size)]
        mine[self.rank] = parts[self.rank]
        others = [rank for rank in range(self.size) if rank != self.rank]
        self.exchange([(rank, parts[rank]) for rank in others], [(rank, mine[rank]) for rank in others]).wait()
        share = mine[0].copy()
        for part in mine[1:]:
            share += part
        total = np.empty_like(flat)
        met = [total[a:b] for a, b in pairwise(edges)]
        met[self.rank][...] = share
        self.exchange([(rank, share) for rank in others], [(rank, met[rank]) for rank in others]).wait()
        return total.reshape(array.shape)

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> _Messages:
        """See Ranks.exchange."""
        out = [(rank, self._tensor(array, filled=True)) for rank, array in sent]
        into = [(rank, self._tensor(array, filled=False)) for rank, array in received]
        operations = [
            dist.P2POp(operation, piece, rank)
            for operation, messages in ((dist.irecv, into), (dist.isend, out))
            for rank, tensor in messages
            if tensor.numel()
            for piece in tensor.split(PIECE)
        ]
        receives = sum(operation.op is dist.irecv for operation in operations)
        with self.reach():
            works = dist.batch_isend_irecv(operations) if operations else []
        # Some transports return one piece of work for all operations.
        first = receives if len(works) == len(operations) else len(works)
        return _Messages(
            self, works[:first], works[first:], operations, [(a, t) for (_, a), (_, t) in zip(received, into)]
        )

    def next_of(self, name: str) -> int:
        """See Ranks.next_of: a counter in the store."""
        try:
            return int(self._store.add(f"trnqc/next/{name}", 1)) - 1
        except RuntimeError as error:
            raise self._lost(error) from error

    def _tensor(self, array: np.ndarray, filled: bool) -> torch.Tensor:
        """The bytes of an array as a tensor of the device; on the CPU they share memory."""
        if not array.flags.c_contiguous:
            raise InputError("only contiguous arrays are sent and received")
        data = torch.from_numpy(array.reshape(-1).view(np.uint8))
        if self.transport.device == "cpu":
            return data
        return data.to(self.transport.device) if filled else torch.empty_like(data, device=self.transport.device)

    @contextmanager
    def reach(self) -> Iterator[None]:
        """Turn errors of torch.distributed into a CommunicationError that names the other ranks."""
        try:
            yield
        except RuntimeError as error:
            if isinstance(error, TrnqcError):
                raise
            raise self._lost(error) from error

    def _lost(self, error: RuntimeError) -> CommunicationError:
        me, reason = f"rank {self.rank} of {self.size} (at: {self._watch.stage})", _CLUTTER.sub("", str(error))
        if "imed out" in reason:
            others = self._watch.elsewhere() or "none says to be elsewhere"
            return CommunicationError(
                f"{me} has waited too long for another: {reason}. Others: {others}. Give them more time "
                "(--rank-timeout), or find out what holds them and start all ranks again"
            )
        return CommunicationError(
            f"{me} has lost {self._watch.lost() or 'another rank'}: {reason}; look for the first error of the other "
            "ranks and start all of them again"
        )


class _Messages:
    """Messages under way; the tensors of messages are kept alive until they have been sent."""

    def __init__(
        self,
        ranks: TorchRanks,
        receives: list[Any],
        sends: list[Any],
        kept: list[Any],
        received: list[tuple[np.ndarray, torch.Tensor]],
    ) -> None:
        self.ranks, self.receives, self.sends, self.kept, self.received = ranks, receives, sends, kept, received

    def arrived(self) -> None:
        """See Pending.arrived."""
        with self.ranks.reach():
            for work in self.receives:
                work.wait()
        for array, tensor in self.received:
            if tensor.device.type != "cpu":
                array.reshape(-1).view(np.uint8)[...] = tensor.cpu().numpy()
        self.receives, self.received = [], []

    def wait(self) -> None:
        """See Pending.wait."""
        self.arrived()
        with self.ranks.reach():
            for work in self.sends:
                work.wait()
        self.sends, self.kept = [], []
