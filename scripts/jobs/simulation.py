"""Discrete-event simulation of a DF-MP2 job on many devices, with the seconds of every task and message.

The plan that is simulated is the one that jobs run by (trnqc/mp2/pairs/rounds.py); seconds of tasks come from
measured ones, scaled by modelled cost, with the measured scatter about it.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np

from trnqc.mp2.pairs.rounds import Rounds
from trnqc.mp2.partition.distribution import AHEAD, RowDistribution
from trnqc.ranks import balanced, dearest_first


@dataclass(frozen=True)
class Network:
    """bandwidth: bytes/s of one device in each direction; latency: s of a message or of a request to the store.

    files: bytes/s of the shared file system for all devices together.
    """

    bandwidth: float
    latency: float
    files: float


class Cyclic(Rounds):
    """Blocks by turns to the holders of their rows and of their columns, whatever they cost."""

    @cached_property
    def owners(self) -> tuple[int, ...]:
        found = []
        for block in self.blocks:
            (_, a), (_, b) = self.sets(block)
            holders, shards = self.left.holders(a if (a + b) % 2 else b), self.left.shards
            found.append(holders[(a // shards + b // shards) % len(holders)])
        return tuple(found)


@dataclass(frozen=True)
class Workload:
    """A job's sizes; seconds of its tasks on a device `speed` times as fast as the core they were measured on."""

    nao: int
    nocc: int
    nvir: int
    naux: int
    width: int
    measured: dict[str, Any]
    speed: float = 1.0

    @cached_property
    def columns(self) -> np.ndarray:
        """Seconds by block of auxiliary functions."""
        m = self.measured
        functions = sum(c["functions"] for c in m["columns"])
        integrals = sum(c["integrals_s"] for c in m["columns"]) / (functions * m["nao"] ** 2)
        transformation = sum(c["transformation_s"] for c in m["columns"]) / (functions * _half(m))
        count = -(-self.naux // self.width)
        wide = np.diff(np.linspace(0, self.naux, count + 1).astype(int))
        each = integrals * self.nao**2 + transformation * _half(vars(self))
        means = [(c["integrals_s"] + c["transformation_s"]) / c["functions"] for c in m["columns"]]
        return wide * each * _scatter(means, count) / self.speed

    @property
    def replicated(self) -> float:
        """Seconds of the metric, which every device factorises for itself."""
        return self.measured["metric_s"] * (self.naux / self.measured["naux"]) ** 3 / self.speed

    def fitting(self, rows: int) -> float:
        m = self.measured
        return m["fit_s"] / (m["nocc"] * m["nvir"] * m["naux"] ** 2) * rows * self.nvir * self.naux**2 / self.speed

    def pairs(self, costs: Sequence[float]) -> np.ndarray:
        m = self.measured["blocks"]
        rate = sum(b["seconds"] for b in m) / sum(b["cost"] for b in m)
        scatter = _scatter([b["seconds"] / b["cost"] for b in m if b["cost"] > 0], len(costs))
        return rate * np.array(costs) * scatter / self.speed

    @property
    def row_bytes(self) -> int:
        return 8 * self.nvir * self.naux


def _half(sizes: dict[str, Any]) -> float:
    """Operations of the two transformations for one auxiliary function."""
    return float(sizes["nao"] * sizes["nocc"] * (sizes["nao"] + sizes["nvir"]))


def _scatter(values: Sequence[float], count: int) -> np.ndarray:
    """Factors drawn from those measured, of mean one."""
    found = np.random.default_rng(0).choice(np.array(values) / np.mean(values), count)
    return found / found.mean()


def factors_seconds(work: Workload, devices: int, net: Network, dynamic: bool) -> float:
    """Integrals, exchange, metric, fitting."""
    distribution = RowDistribution(work.nocc, work.nvir, work.naux, devices)
    last = _taken(work.columns, devices, net.latency) if dynamic else _settled(work.columns, devices)
    rows = max(sum(len(distribution.sets[n]) for n in distribution.holds(rank)) for rank in range(devices))
    # In every step a device sends to one and receives from one.
    exchanged = rows * work.row_bytes * (devices - 1) / devices / net.bandwidth + (devices - 1) * net.latency
    return last + exchanged + work.replicated + work.fitting(rows)


def visits_seconds(work: Workload, rounds: Rounds, net: Network) -> float:
    """Pairs with visiting rows, as trnqc/mp2/pairs/ranks.py asks for them."""
    distribution = rounds.left
    seconds = dict(zip(rounds.blocks, work.pairs([b.cost(work.nvir, work.naux) for b in rounds.blocks])))
    out, into, entered = np.zeros((3, distribution.ranks))
    # When ranks came to each round: messages of a round start when both sides are within AHEAD rounds of it.
    came = deque([entered] * AHEAD, maxlen=AHEAD + 1)
    sent: deque[np.ndarray] = deque(maxlen=AHEAD + 1)
    for round in range(rounds.count):
        came.append(entered)
        asked, there, gone = came[0], entered.copy(), np.zeros(distribution.ranks)
        for sender, receiver, (_, number) in rounds.messages(round):
            begin = max(asked[sender], asked[receiver], out[sender], into[receiver])
            end = begin + net.latency + len(distribution.sets[number]) * work.row_bytes / net.bandwidth
            out[sender] = into[receiver] = gone[sender] = end
            there[receiver] = max(there[receiver], end)
        sent.append(gone)
        if len(sent) > AHEAD:
            there = np.maximum(there, sent[0])
        done = [sum(seconds[b] for b in v[round].blocks) if round < len(v) else 0.0 for v in rounds.visits]
        entered = there + done
    return float(entered.max())


def files_seconds(work: Workload, devices: int, net: Network) -> float:
    """Pairs taken from one counter, dearest first, their rows read ahead from the shared file system."""
    distribution = RowDistribution(work.nocc, work.nvir, work.naux, 1)
    costs = [b.cost(work.nvir, work.naux) for b in Rounds(distribution).blocks]
    seconds = work.pairs(costs)
    read = 2 * distribution.width * work.row_bytes
    free, counter, disk = [(0.0, device) for device in range(devices)], 0.0, 0.0
    last = 0.0
    for n in dearest_first(costs):
        at, device = heapq.heappop(free)
        counter = max(counter, at) + net.latency / 10  # requests overlap in the network, not in the store
        disk = max(disk, counter) + read / net.files
        # Rows are read while the block before is computed.
        end = max(at + net.latency + seconds[n], disk, at + read / net.bandwidth)
        last = max(last, end)
        heapq.heappush(free, (end, device))
    return last


def _settled(seconds: np.ndarray, devices: int) -> float:
    owners = balanced([1.0] * len(seconds), devices)
    return float(np.bincount(owners, weights=seconds, minlength=devices).max())


def _taken(seconds: np.ndarray, devices: int, latency: float) -> float:
    free = [0.0] * devices
    for one in seconds:
        heapq.heappush(free, heapq.heappop(free) + latency + one)
    return max(free)


@cache
def _rounds(kind: type[Rounds], nocc: int, nvir: int, naux: int, devices: int) -> Rounds:
    return kind(RowDistribution(nocc, nvir, naux, devices))


def projected(work: Workload, devices: int, net: Network) -> dict[str, dict[str, float]]:
    """Seconds by way of sharing: of factors, of pairs, of both."""
    sizes = (work.nocc, work.nvir, work.naux, devices)
    found = {}
    ways: tuple[tuple[str, Callable[[], float]], ...] = (
        ("static", lambda: visits_seconds(work, _rounds(Rounds, *sizes), net)),
        ("cyclic", lambda: visits_seconds(work, _rounds(Cyclic, *sizes), net)),
        ("dynamic", lambda: files_seconds(work, devices, net)),
    )
    for name, pairs in ways:
        factors, rest = factors_seconds(work, devices, net, name == "dynamic"), pairs()
        found[name] = {"factors_s": factors, "pairs_s": rest, "mp2_s": factors + rest}
    return found
