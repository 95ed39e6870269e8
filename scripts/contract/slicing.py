"""Networks of many small tensors within a tenth of their memory: our loops beside cotengra's slices.

cotengra plans as many seconds as we do, and slices until the most elements that it holds in a slice are within the
limit, as ours are. A run of more multiply-adds than LONG is not timed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import cotengra
import numpy as np

from scripts.measuring import clocked, in_turns, ratio
from trnqc.contraction import einsum_plan

LONG = 2 * 10**8
# Part of the peak memory without a limit that is allowed.
FRACTION = 10
# Slices of cotengra are made smaller so often until they are within the limit.
TRIALS = 6
ROUNDS = 3


class Network(NamedTuple):
    """Labels of each tensor and of the result, and extents."""

    inputs: Sequence[Sequence[str]]
    output: Sequence[str]
    extents: Mapping[str, int]

    def arrays(self) -> list[np.ndarray]:
        """Random tensors whose products stay of the order of one."""
        rng = np.random.default_rng(2)
        shapes = [tuple(self.extents[x] for x in labels) for labels in self.inputs]
        return [rng.standard_normal(shape) / np.prod(shape) ** 0.25 for shape in shapes]


def circuit(rows: int, columns: int, depth: int) -> Network:
    """The amplitude of a circuit on a grid of qubits: in turns, gates of all neighbours in four directions."""
    wires = {(r, c): cotengra.get_symbol(r * columns + c) for r in range(rows) for c in range(columns)}
    inputs: list[tuple[str, ...]] = [(label,) for label in wires.values()]
    fresh = rows * columns
    for layer in range(depth):
        down, first = layer % 2, layer // 2 % 2
        for r, c in list(wires):
            other = (r + 1, c) if down else (r, c + 1)
            if (r if down else c) % 2 == first and other in wires:
                new = cotengra.get_symbol(fresh), cotengra.get_symbol(fresh + 1)
                inputs.append((*new, wires[r, c], wires[other]))
                wires[r, c], wires[other] = new
                fresh += 2
    inputs += [(label,) for label in wires.values()]
    return Network(inputs, (), dict.fromkeys((x for labels in inputs for x in labels), 2))


def lattice(length: int, bond: int) -> Network:
    """A square lattice of tensors with one bond to each neighbour."""
    inputs, output, _, extents = cotengra.utils.lattice_equation([length, length], d_min=bond, d_max=bond)
    return Network(inputs, output, extents)


def regular(tensors: int, bond: int) -> Network:
    """A random network of tensors with three bonds each."""
    inputs, output, _, extents = cotengra.utils.rand_equation(tensors, 3, seed=1, d_min=bond, d_max=bond)
    return Network(inputs, output, extents)


CASES: dict[str, Callable[[], Network]] = {
    "lattice 6 x 6, bond 4": partial(lattice, 6, 4),
    "lattice 8 x 8, bond 3": partial(lattice, 8, 3),
    "lattice 10 x 10, bond 2": partial(lattice, 10, 2),
    "random regular, 40 tensors": partial(regular, 40, 3),
    "circuit 4 x 4, depth 12": partial(circuit, 4, 4, 12),
    "circuit 1 x 20, depth 20": partial(circuit, 1, 20, 20),
}


def slicing() -> dict[str, Any]:
    return {name: _case(name, make()) for name, make in CASES.items()}


def _case(name: str, net: Network) -> dict[str, Any]:
    """Work, elements and CPU seconds of both for one network."""
    arrays = net.arrays()
    operands = [x for pair in zip(arrays, map(list, net.inputs)) for x in pair] + [list(net.output)]
    free = einsum_plan(*operands)
    limit = free.peak // FRACTION
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow plans
        begin = time.process_time()
        ours = einsum_plan(*operands, memory_limit=8 * limit, max_slowdown=None)
        seconds = time.process_time() - begin
        tree = _sliced(net, limit, seconds)
    work = {"trnqc": ours.executed_multiply_adds, "cotengra": int(tree.contraction_cost())}
    row: dict[str, Any] = {
        "tensors": len(net.inputs),
        "limit": limit,
        "planning_seconds": seconds,
        "unlimited": {"multiply_adds": free.multiply_adds, "peak": free.peak},
        "multiply_adds": work,
        "peak": {"trnqc": ours.peak, "cotengra": int(tree.peak_size())},
        "slices": int(tree.nslices),
        "wall_cpu_s": {},
    }
    if max(work.values()) <= LONG:
        runs = {"trnqc": partial(ours.run, *arrays), "cotengra": partial(tree.contract, arrays)}
        here, there = (np.asarray(run()) for run in runs.values())
        assert np.allclose(here, there, rtol=1e-8, atol=1e-12), f"{name}: {here} and {there}"
        row["wall_cpu_s"] = in_turns(ROUNDS, {who: clocked(run) for who, run in runs.items()})
        row["over_cotengra"] = ratio(row["wall_cpu_s"]["trnqc"], row["wall_cpu_s"]["cotengra"])
    print(f"{name}: {row}", flush=True)
    return row


def _sliced(net: Network, limit: int, seconds: float) -> Any:
    """cotengra's tree after so many seconds, with slices that hold at most `limit` elements if it finds some."""
    target = limit // 2
    for _ in range(TRIALS):
        planner = cotengra.HyperOptimizer(
            max_time=seconds, parallel=False, progbar=False, slicing_reconf_opts={"target_size": max(target, 2)}
        )
        tree = planner.search(net.inputs, net.output, net.extents)
        if tree.peak_size() <= limit:
            break
        target //= 2
    return tree
