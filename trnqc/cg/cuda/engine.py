"""Tensor products on a GPU: plan (schedule.py) -> kernel (program.py) -> compiled for the device (jit) -> launches.

Operands are NumPy arrays, which are copied to the device and back, or PyTorch tensors in the device's memory.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.cg.cuda.operands import operands_of
from trnqc.cg.cuda.plan import Plan
from trnqc.cg.cuda.program import function_name, parameters, program
from trnqc.cg.cuda.schedule import plan
from trnqc.cg.cuda.segments import Ranges, Segments, levels, levels_rows, segments, sum_rows
from trnqc.cg.engine import Engine
from trnqc.cg.problem.graph import Graph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import CONVOLUTIONS, DIRECTIONS
from trnqc.errors import OperandError, UnsupportedError
from trnqc.jit import Recipe, Signature
from trnqc.jit.device import Argument, Built, Device, DeviceArray

# Number of lanes of a warp.
WARP = 32
# Blocks per multiprocessor for which the variants of a kernel are compiled, which limits the number of registers. 0
# leaves the limit to the compiler.
BLOCKS = (0, 8)
# Bytes of gradients of shared weights that are stored before they are summed.
KEPT = 1 << 28


def least_spilled(variants: Iterable[Built]) -> Built:
    """Return the first variant that does not spill registers, else the one that spills least.

    Variants are compiled only until one does not spill.
    """
    best: Built | None = None
    for built in variants:
        if best is None or built.stack < best.stack:
            best = built
        if not best.stack:
            break
    assert best is not None
    return best


class CudaEngine(Engine):
    """An engine for NumPy arrays or PyTorch tensors, on a GPU.

    The option `out` is supported by `forward` only.

    Parameters
    ----------
    problem : TPProblem
    dtype : str or type
        float32 or float64.
    device : Device, optional
        By default the first GPU.
    kahan : bool, optional
        Whether sums over the edges of a node are compensated.
    atomic : bool, optional
        Whether sums over the edges of a node use atomic additions, whose order varies from run to run.

    Raises
    ------
    BackendUnavailable
        If there is no GPU.
    UnsupportedError
        If a kernel needs more shared memory than a block has.
    """

    def __init__(
        self, problem: TPProblem, dtype: Any, device: Device | None = None, *, kahan: bool = False, atomic: bool = False
    ) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        self.device: Device = backends.devices("cuda")[0] if device is None else device
        self.lanes = min(WARP, self.device.most_lanes)
        self.kahan, self.atomic = kahan, atomic
        self._built: dict[str, Built] = {}
        self._segments: weakref.WeakKeyDictionary[Graph, dict[str, tuple[Segments, dict[str, DeviceArray]]]]
        self._segments = weakref.WeakKeyDictionary()

    @property
    def ran_on(self) -> str:
        """Description of the machine that runs the calls."""
        return f"generated CUDA on {self.device.name}"

    @property
    def build_report(self) -> str:
        """The plans of the kernels that were compiled."""
        return "\n".join(str(self.plan(name)) for name in self._built if name in DIRECTIONS) or "nothing is built yet"

    def plan(self, name: str) -> Plan:
        """Return the plan of a direction, by its key in `DIRECTIONS`."""
        return plan(self.problem, name, self.dtype.itemsize, self.lanes)

    def _evaluate(
        self, name: str, operands: Sequence[Any], graph: Graph | None = None, out: Any = None
    ) -> tuple[Any, ...]:
        if out is not None and (graph is not None or name != "forward"):
            raise UnsupportedError(f"{name} on a GPU: expected out=None, found arrays for the results")
        arrays = dict(zip(DIRECTIONS[name].reads, operands, strict=True))
        rows = self._rows(operands, graph)
        shapes = {n: self.problem.shape_of(n, rows[n[-1]]) for n in DIRECTIONS[name].operands}
        self._check(arrays, shapes)
        outs = {} if out is None else dict(zip(DIRECTIONS[name].writes, out, strict=True))
        results: dict[str, Any] = {}
        for key in (name,) if graph is None else CONVOLUTIONS[name]:
            results |= self._run(key, {n: arrays[n] for n in DIRECTIONS[key].reads}, shapes, graph, outs)
        return tuple(results[n] for n in DIRECTIONS[name].writes)

    def _check(self, arrays: dict[str, Any], shapes: dict[str, tuple[int, ...]]) -> None:
        """Raise OperandError for an array of another shape or dtype."""
        for name, array in arrays.items():
            kind = str(array.dtype).removeprefix("torch.")
            if tuple(array.shape) != shapes[name] or kind != self.dtype.name:
                raise OperandError(
                    f"{name}: expected {self.dtype.name} of shape {shapes[name]}, found {kind} of shape "
                    f"{tuple(array.shape)}"
                )

    # Kernels

    def _kernel(self, name: str) -> Built:
        if name not in self._built:
            kernel_plan, by = self.plan(name), DIRECTIONS[name].by
            options = {"kahan": self.kahan and by == "receiver", "atomic": self.atomic and bool(by)}
            function = function_name(kernel_plan, **options)
            signature = Signature.declared(function, parameters(kernel_plan), DIRECTIONS[name].writes)
            recipe = Recipe(function, (signature,), lambda: (program(kernel_plan, **options),))
            # On a tie the first variant is used, whose number of registers the compiler chose.
            variants = (self.device.build(recipe, self.lanes, accumulate="plain", min_blocks=n) for n in BLOCKS)
            self._built[name] = least_spilled(variants)
        return self._built[name]

    def _sum_kernel(self) -> Built:
        if "sums" not in self._built:
            function = sum_rows(self.dtype.itemsize, self.lanes)
            self._built["sums"] = self.device.build(Recipe.of(function), self.lanes, accumulate="plain")
        return self._built["sums"]

    # Launches

    def _run(
        self,
        name: str,
        arrays: dict[str, Any],
        shapes: dict[str, tuple[int, ...]],
        graph: Graph | None,
        outs: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the results of a direction by name."""
        direction, shared = DIRECTIONS[name], self.problem.shared_weights
        operands = operands_of(self.device, arrays)
        rows = {n: shapes[n] for n in direction.writes}
        zeroed = {"gy", "gw"} if shared else {"gy"}
        groups, parts, summed = len(arrays["x"]), None, ""
        order: dict[str, DeviceArray] = {}
        if graph is not None:
            parts, order = self._parts(graph, direction.by)
            groups = len(parts)
            (summed,) = (n for n in rows if n[-1] == {"sender": "x", "receiver": "z"}[direction.by])
            if self.atomic:
                zeroed.add(summed)
            else:
                rows[summed] = (parts.rows, shapes[summed][1])
        if shared and "gw" in rows:
            rows["gw"] = (self.weight_rows(groups, parts), *rows["gw"])
        operands.allocate(rows, zeroed, outs)
        if groups:
            self._launch(name, operands.memories | order, groups, parts)
            if parts is not None and len(parts.cut) and not self.atomic:
                self._sum_rows(operands.memories[summed], shapes[summed][1], parts.cut)
        return operands.results({n: shapes[n] for n in rows})

    def _launch(self, name: str, memories: dict[str, DeviceArray], groups: int, parts: Segments | None) -> None:
        built = self._kernel(name)
        names, weights = built.signature.names, self.problem.weight_numel
        sums_weights = self.problem.shared_weights and "gw" in names and weights > 0
        for first, last in self._chunks(groups, parts) if sums_weights else [(0, groups)]:
            edge, stop = (first, last) if parts is None else (int(parts.begin[first]), int(parts.end[last - 1]))
            # Row 0 of the gradients of shared weights is the sum of all previous chunks.
            arguments: dict[str, Argument] = {**memories, "first": first, "origin": edge - 1}
            self.device.launch(built, last - first, arguments)
            for level in levels(stop - edge + 1) if sums_weights else ():
                self._sum_rows(memories["gw"], weights, level)

    def weight_rows(self, groups: int, parts: Segments | None = None) -> int:
        """Return the number of rows that store gradients of shared weights before they are summed."""
        edges = [
            last - first if parts is None else int(parts.end[last - 1] - parts.begin[first])
            for first, last in self._chunks(groups, parts)
        ]
        return levels_rows(1 + max(edges, default=0))

    def _chunks(self, groups: int, parts: Segments | None) -> list[tuple[int, int]]:
        """Return ranges of groups whose gradients of shared weights are stored at the same time."""
        edges = max(1, KEPT // max(1, self.problem.weight_numel * self.dtype.itemsize))
        longest = 1 if parts is None else max(1, int((parts.end - parts.begin).max(initial=0)))
        step = max(1, edges // longest)
        return [(n, min(n + step, groups)) for n in range(0, groups, step)]

    def _sum_rows(self, rows: DeviceArray, columns: int, ranges: Ranges) -> None:
        if not columns:
            return
        bounds = {name: self.device.upload(getattr(ranges, name)) for name in ("begin", "end", "row")}
        groups = len(ranges) * -(-columns // self.lanes)
        self.device.launch(self._sum_kernel(), groups, {"columns": columns, "rows": rows, **bounds})
        self.device.release(*bounds.values())

    def _parts(self, graph: Graph, by: str) -> tuple[Segments, dict[str, DeviceArray]]:
        """Return the segments of a graph and their arrays in the device's memory, which are kept with the graph."""
        kept = self._segments.setdefault(graph, {})
        if by not in kept:
            parts = segments(graph.by_receiver if by == "receiver" else graph.by_sender)
            arrays = {name: getattr(parts, name) for name in ("begin", "end", "node", "order", "far")}
            arrays["target"] = parts.node if self.atomic else parts.target
            kept[by] = parts, {name: self.device.upload(array) for name, array in arrays.items()}
        return kept[by]
