"""Networks of many small tensors within a tenth of their memory: our loops beside cotengra's slices.

cotengra plans as many seconds as we do, and slices until the most elements that it holds in a slice are within the
limit, as ours are. A run of more multiply-adds than LONG is not timed.

Further networks are read from a folder of JSON files, each with `inputs` (lists of labels), `output` (a list) and
`size_dict` (extents by label), as cotengra has them in examples/benchmarks.
"""

from __future__ import annotations

import json
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import cotengra
import numpy as np

from scripts.measuring import clocked, in_turns, ratio
from trnqc.contraction import Plan, einsum_plan
from trnqc.errors import InputError, MemoryLimit

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

    @property
    def shapes(self) -> list[tuple[int, ...]]:
        """Shapes of the tensors."""
        return [tuple(self.extents[x] for x in labels) for labels in self.inputs]

    def arrays(self) -> list[np.ndarray]:
        """Random tensors whose products stay of the order of one."""
        rng = np.random.default_rng(2)
        return [rng.standard_normal(shape) / np.prod(shape) ** 0.25 for shape in self.shapes]

    def plan(self, limit: int | None = None) -> Plan:
        """Our plan, within a limit in elements."""
        operands = [x for pair in zip(self.shapes, map(list, self.inputs)) for x in pair]
        bytes_of = None if limit is None else 8 * limit
        return einsum_plan(*operands, list(self.output), memory_limit=bytes_of, max_slowdown=None)


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


def slicing(folder: Path | None = None) -> dict[str, Any]:
    cases = CASES if folder is None else {path.stem: partial(read, path) for path in sorted(folder.glob("*.json"))}
    if not cases:
        raise InputError(f"--networks is a folder of networks as JSON files; found none in {folder}")
    return {name: _case(name, make()) for name, make in cases.items()}


def read(path: Path) -> Network:
    """The network of a file. Raises InputError if the file has none."""
    found = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(found, dict) or not {"inputs", "output", "size_dict"} <= set(found):
        fields = ", ".join(found) if isinstance(found, dict) else type(found).__name__
        raise InputError(f"a network has the fields inputs, output and size_dict; found {fields} in {path}")
    return Network(found["inputs"], found["output"], found["size_dict"])


def _case(name: str, net: Network) -> dict[str, Any]:
    """Work, elements and CPU seconds of both for one network; where no loops of ours fit, the error."""
    free, free_seconds = _timed(net.plan)
    limit = free.peak // FRACTION
    row: dict[str, Any] = {"tensors": len(net.inputs), "limit": limit}
    ours: Plan | None = None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of slow plans
        begin = time.process_time()
        try:
            ours = net.plan(limit)
        except MemoryLimit as error:
            row["error"] = str(error)
        seconds = time.process_time() - begin
        peer, peer_seconds = _timed(partial(_peer, net, free_seconds))
        (tree, fits), peer_sliced_seconds = _timed(partial(_sliced, net, limit, seconds))
    row |= {
        "planning_seconds": {
            "trnqc": {"unlimited": free_seconds, "limited": seconds},
            "cotengra": {"unlimited": peer_seconds, "limited": peer_sliced_seconds},
        },
        "unlimited": {
            "multiply_adds": {"trnqc": free.multiply_adds, "cotengra": int(peer.contraction_cost())},
            "peak": {"trnqc": free.peak, "cotengra": int(peer.peak_size())},
        },
        "multiply_adds": {"trnqc": ours and ours.executed_multiply_adds, "cotengra": int(tree.contraction_cost())},
        "peak": {"trnqc": ours and ours.peak, "cotengra": int(tree.peak_size())},
        "slices": int(tree.nslices),
        "cotengra_fits": fits,
        "wall_cpu_s": {},
    }
    if ours and max(row["multiply_adds"].values()) <= LONG:
        arrays = net.arrays()
        runs = {"trnqc": partial(ours.run, *arrays), "cotengra": partial(tree.contract, arrays)}
        here, there = (np.asarray(run()) for run in runs.values())
        assert np.allclose(here, there, rtol=1e-8, atol=1e-12), f"{name}: {here} and {there}"
        row["wall_cpu_s"] = in_turns(ROUNDS, {who: clocked(run) for who, run in runs.items()})
        row["over_cotengra"] = ratio(row["wall_cpu_s"]["trnqc"], row["wall_cpu_s"]["cotengra"])
    print(f"{name}: {row}", flush=True)
    return row


def _timed(plan: Callable[[], Any]) -> tuple[Any, float]:
    """What is planned, and the CPU seconds that it takes."""
    begin = time.process_time()
    return plan(), time.process_time() - begin


def _peer(net: Network, seconds: float, **options: Any) -> Any:
    """cotengra's tree after so many seconds."""
    planner = cotengra.HyperOptimizer(max_time=seconds, parallel=False, progbar=False, **options)
    return planner.search(net.inputs, net.output, net.extents)


def _sliced(net: Network, limit: int, seconds: float) -> tuple[Any, bool]:
    """cotengra's tree with slices after so many seconds, and whether it holds at most `limit` elements."""
    target = limit // 2
    for _ in range(TRIALS):
        tree = _peer(net, seconds, slicing_reconf_opts={"target_size": max(target, 2)})
        if tree.peak_size() <= limit:
            return tree, True
        target //= 2
    return tree, False
