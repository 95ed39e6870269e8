"""Start the ranks of a job over torch.distributed, and end them together.

    with started("cpu") as ranks:              gloo between CPUs; nccl for "cuda", the vendor's backend for "neuron"
        total = ranks.sum(array)

If one rank is killed, is stopped or fails, all ranks end with one error message (watch.py).
"""

from __future__ import annotations

import datetime
import importlib
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from trnqc.errors import BackendUnavailable, CommunicationError, InputError, TrnqcError
from trnqc.ranks.launch import TRANSPORTS, Transport, missing_variables
from trnqc.ranks.neighbours import connected
from trnqc.ranks.torch_ranks import TorchRanks
from trnqc.ranks.watch import POLL, Watch

# Seconds for which a rank waits for another one that is alive but does not arrive.
TIMEOUT = 1800.0
# Seconds without a heartbeat after which a rank counts as lost.
SILENCE = 30.0
# Seconds for which rank 0 keeps the store open for the other ranks at the end.
LEAVING = 10.0
# Not empty after ranks have been started. The store remembers the arrivals of ranks, so it can be used only once.
_used: list[bool] = []


@contextmanager
def started(device: str = "cpu", timeout: float = TIMEOUT) -> Iterator[TorchRanks]:
    """A context with the ranks of this job. An error in its block also ends the other ranks.

    It can be entered once per process.

    Parameters
    ----------
    device
        The device whose memory holds the arrays that ranks exchange, a key of `TRANSPORTS`.
    timeout
        Seconds for which a rank waits for another one that is alive. A rank without a heartbeat for a quarter of this
        time, but at most 30 seconds, counts as lost.

    Yields
    ------
    TorchRanks
        The job as this rank sees it.

    Raises
    ------
    InputError
        If the process was not started as a rank, the device is unknown, or ranks were started before.
    BackendUnavailable
        If the device or its package is missing.
    CommunicationError
        If the ranks cannot connect to each other.
    """
    transport = _transport(device)
    if missing := missing_variables():
        raise InputError(f"the environment variables {', '.join(missing)} are not set: start the ranks with torchrun")
    if _used:
        raise InputError("ranks can be started only once in a process: put all their common work into one block")
    _used.append(True)
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    local = os.environ.get("LOCAL_RANK", "0")
    # A process that opens the vendor's runtime takes all cores that it sees, so that each rank may see only one.
    os.environ.setdefault("NEURON_RT_VISIBLE_CORES", local)
    try:
        if transport.device == "cuda":
            torch.cuda.set_device(int(local))
        dist.init_process_group(transport.name, timeout=datetime.timedelta(seconds=timeout))
        stores = [_store(timeout) for _ in range(2)]
    except (RuntimeError, ValueError) as error:
        raise CommunicationError(
            f"rank {rank} of {size} cannot connect to the others at "
            f"{os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']} over {transport.name}: "
            f"{str(error).splitlines()[0]}; start all of them again"
        ) from error
    with Watch(stores[0], rank, size, min(SILENCE, timeout / 4)) as watch:
        try:
            messages = None
            if transport.device == "cpu":
                messages = connected(rank, size, stores[1], partial(_all_at, stores[1], size), timeout)
            yield TorchRanks(rank, size, transport, stores[1], watch, messages)
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
    # Rank 0 may host the store, so it has to be the last to end.
    _all_at(stores[1], size, "silence", patience=LEAVING if rank == 0 else 0.0)
    dist.destroy_process_group()


def _transport(device: str) -> Transport:
    if device not in TRANSPORTS:
        raise InputError(f"ranks communicate over one of the devices {', '.join(TRANSPORTS)}; found {device!r}")
    transport = TRANSPORTS[device]
    if device == "cuda" and not torch.cuda.is_available():
        raise BackendUnavailable(
            "ranks over cuda need a GPU and a PyTorch that was built for it; no GPU can be used here"
        )
    if transport.module:
        try:
            importlib.import_module(transport.module)
        except ImportError as error:
            raise BackendUnavailable(f"ranks over {device} need {transport.module}: {error}") from error
    return transport


def _store(timeout: float) -> Any:
    """Open another connection to the store of the job. Entries from before a restart are not visible."""
    address, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(address, port, is_master=False, timeout=datetime.timedelta(seconds=timeout))
    return dist.PrefixStore(f"attempt {os.environ.get('TORCHELASTIC_RESTART_COUNT', '0')}", store)


def _all_at(store: Any, size: int, place: str, patience: float = math.inf) -> None:
    """Announce that this rank has reached a place, and wait for all others, but at most `patience` seconds."""
    store.add(f"trnqc/at/{place}", 1)
    until = time.monotonic() + patience
    while time.monotonic() < until and store.add(f"trnqc/at/{place}", 0) < size:
        time.sleep(POLL)
