"""`trnqc.ranks.Ranks` over torch.distributed: sums, exchange of arrays, and a common counter.

Only bytes are sent. The host adds them up in the order of the ranks, so that sums have the same bits with every
transport, and are in fp64 even if the device has no fp64.
"""

from __future__ import annotations

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

from trnqc.errors import CommunicationError, InputError, TrnqcError
from trnqc.ranks.groups import Message, Pending
from trnqc.ranks.launch import Transport
from trnqc.ranks.neighbours import NeighbourMessages
from trnqc.ranks.watch import POLL, Watch

T = TypeVar("T")

# The largest message in bytes. Transports count bytes in 32 bits.
PIECE = 1 << 28
# Seconds between the first two queries of the store while a rank waits for rank 0.
SOON = 5e-4
# Parts of the messages of torch.distributed that do not help users: places in its sources, guesses, and later lines.
_CLUTTER = re.compile(r"\[\S+\.cc:\d+\] |\. This is typically.*|\n.*", re.DOTALL)


class TorchRanks:
    """The ranks of a job over torch.distributed. `transport.started` constructs them.

    Parameters
    ----------
    rank, size : int
        The number of this rank, and the number of ranks.
    transport : Transport
        How arrays are exchanged.
    store : object
        A connection to the store of the job.
    watch : Watch
        The heartbeat of this rank.
    messages : NeighbourMessages, optional
        How arrays are exchanged if all ranks share the memory of one machine.
    """

    def __init__(
        self,
        rank: int,
        size: int,
        transport: Transport,
        store: Any,
        watch: Watch,
        messages: NeighbourMessages | None = None,
    ) -> None:
        self.rank, self.size, self.transport = rank, size, transport
        self.neighbours = int(os.environ.get("LOCAL_WORLD_SIZE", "1"))
        self._store, self._watch, self._calls, self._messages = store, watch, 0, messages

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
            begin = time.monotonic()
            while not self._store.check([key]):
                # Others may wait until this rank has copied their messages.
                if self._messages:
                    self._messages.progress()
                # A rank that has waited for long notices late: this adds at most a fortieth to the time that it waits.
                time.sleep(min(POLL, max(SOON, (time.monotonic() - begin) / 40)))
            data = np.empty(int(self._store.get(key)), np.uint8)
        if self._messages:
            others = [(rank, data) for rank in range(1, self.size)]
            self.exchange(*((others, []) if self.rank == 0 else ([], [(0, data)]))).wait()
            return pickle.loads(data.tobytes())
        tensor = self._tensor(data, filled=self.rank == 0)
        with self.reach():
            for piece in tensor.split(PIECE):
                dist.broadcast(piece, 0)
        return pickle.loads(tensor.cpu().numpy().tobytes())

    def sum(self, array: np.ndarray) -> np.ndarray:
        """See Ranks.sum. Each rank adds up one part of the array and sends the sum to all other ranks."""
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
        shares = [total[a:b] for a, b in pairwise(edges)]
        shares[self.rank][...] = share
        self.exchange([(rank, share) for rank in others], [(rank, shares[rank]) for rank in others]).wait()
        return total.reshape(array.shape)

    def exchange(self, sent: Sequence[Message], received: Sequence[Message]) -> Pending:
        """See Ranks.exchange."""
        for _, array in (*sent, *received):
            _require_contiguous(array)
        if self._messages:
            with self.reach():
                return _Guarded(self, self._messages.exchange(sent, received))
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
        # Some transports return a single handle for all operations.
        first = receives if len(works) == len(operations) else len(works)
        return _Messages(
            self, works[:first], works[first:], operations, [(a, t) for (_, a), (_, t) in zip(received, into)]
        )

    def next_of(self, name: str) -> int:
        """See Ranks.next_of. The counter is in the store."""
        try:
            return int(self._store.add(f"trnqc/next/{name}", 1)) - 1
        except RuntimeError as error:
            raise self._lost(error) from error

    def _tensor(self, array: np.ndarray, filled: bool) -> torch.Tensor:
        """The bytes of an array as a tensor on the device. On the CPU, it shares the memory of the array."""
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
            others = self._watch.elsewhere() or "none is at another stage"
            return CommunicationError(
                f"{me} has waited too long for another rank: {reason}. Ranks at other stages: {others}. Allow more "
                "time (--rank-timeout), or find out what delays them and start all ranks again"
            )
        return CommunicationError(
            f"{me} has lost {self._watch.lost() or 'another rank'}: {reason}; look for the first error of the other "
            "ranks and start all of them again"
        )


def _require_contiguous(array: np.ndarray) -> None:
    if not array.flags.c_contiguous:
        raise InputError("arrays that are sent or received must be contiguous")


class _Guarded:
    """Messages between neighbours under way, whose errors name the other ranks."""

    def __init__(self, ranks: TorchRanks, pending: Pending) -> None:
        self.ranks, self.pending = ranks, pending

    def arrived(self) -> None:
        """See Pending.arrived."""
        with self.ranks.reach():
            self.pending.arrived()

    def wait(self) -> None:
        """See Pending.wait."""
        with self.ranks.reach():
            self.pending.wait()


class _Messages:
    """Messages under way. It keeps the tensors of messages alive until they have been sent."""

    def __init__(
        self,
        ranks: TorchRanks,
        receives: list[Any],
        sends: list[Any],
        operations: list[Any],
        received: list[tuple[np.ndarray, torch.Tensor]],
    ) -> None:
        self.ranks, self.receives, self.sends = ranks, receives, sends
        self.operations, self.received = operations, received

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
        self.sends, self.operations = [], []
