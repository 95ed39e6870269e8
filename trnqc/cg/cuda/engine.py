"""Tensor products on a GPU: plan (schedule.py) -> kernel (program.py) -> compiled for the device (jit) -> launches.

Operands are NumPy arrays, which are copied to the device and back, or PyTorch tensors in the device's memory.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.cg.cuda.builds import Builds
from trnqc.cg.cuda.device_graph import DeviceGraph
from trnqc.cg.cuda.operands import LaunchOperands, operands_of
from trnqc.cg.cuda.plan import KernelPlan
from trnqc.cg.cuda.program import recipe
from trnqc.cg.cuda.row_sums import levels, levels_rows, sum_level, sum_segments
from trnqc.cg.cuda.schedule import plan
from trnqc.cg.engine import Engine
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import CONVOLUTIONS, DIRECTIONS
from trnqc.errors import OperandError, UnsupportedError
from trnqc.gen.statements import Function
from trnqc.jit.device import Argument, BuiltKernel, Device, DeviceArray

# Bytes of gradients of shared weights that are stored before they are summed.
KEPT = 1 << 28


class CudaEngine(Engine):
    """An engine for NumPy arrays or PyTorch tensors on a GPU, by default the first.

    Only `forward` has the option `out`. Sums over the edges of a node are compensated with `kahan`; with `atomic` they
    use atomic additions, whose order varies from run to run. Raises BackendUnavailable without a GPU, UnsupportedError
    if a kernel needs more shared memory than a block has.
    """

    def __init__(
        self, problem: TPProblem, dtype: Any, device: Device | None = None, *, kahan: bool = False, atomic: bool = False
    ) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        self.device: Device = backends.devices("cuda")[0] if device is None else device
        self.builds = Builds(self.device)
        self.lanes = self.builds.lanes
        self.kahan, self.atomic = kahan, atomic

    @property
    def ran_on(self) -> str:
        """Description of the machine that runs the calls."""
        return f"generated CUDA on {self.device.name}"

    @property
    def build_report(self) -> str:
        """The plans of the kernels that were compiled."""
        return (
            "\n".join(str(self.plan(name)) for name in self.builds.built if name in DIRECTIONS)
            or "nothing is built yet"
        )

    def plan(self, name: str) -> KernelPlan:
        """Return the plan of a direction, by its key in `DIRECTIONS`."""
        return plan(self.problem, name, self.dtype.itemsize, self.lanes)

    def _evaluate(
        self, name: str, operands: Sequence[Any], graph: EdgeGraph | DeviceGraph | None = None, out: Any = None
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

    def build(self, name: str) -> BuiltKernel:
        """Return the kernel of a direction, by its key in `DIRECTIONS`; it is built at the first call."""
        by = DIRECTIONS[name].by
        kahan, atomic = self.kahan and by == "receiver", self.atomic and bool(by)
        return self.builds.of(name, lambda: recipe(self.plan(name), kahan, atomic))

    def _run(
        self,
        name: str,
        arrays: dict[str, Any],
        shapes: dict[str, tuple[int, ...]],
        graph: EdgeGraph | DeviceGraph | None,
        outs: dict[str, Any],
    ) -> dict[str, Any]:
        """Return the results of a direction by name."""
        direction, shared = DIRECTIONS[name], self.problem.shared_weights
        operands = operands_of(self.device, arrays)
        rows = {n: shapes[n] for n in direction.writes}
        zeroed = {"gy", "gw"} if shared else {"gy"}
        groups, cuts, summed = len(arrays["x"]), 0, ""
        order: dict[str, DeviceArray] = {}
        if graph is not None:
            parts, order = operands.segments(graph, direction.by)
            groups, cuts = len(parts), 0 if self.atomic else len(parts.cut)
            (summed,) = (n for n in rows if n[-1] == {"sender": "x", "receiver": "z"}[direction.by])
            if self.atomic:
                zeroed.add(summed)
                order = order | {"target": order["node"]}
            else:
                rows[summed] = (parts.rows, shapes[summed][1])
        if shared and "gw" in rows:
            rows["gw"] = (self.weight_rows(groups), *rows["gw"])
        operands.allocate(rows, zeroed, outs)
        if groups:
            self._launch(name, operands, order, groups)
        if cuts:
            ranges = {n: order[f"cut_{n}"] for n in ("begin", "end", "row")}
            self._sum(operands, sum_segments, cuts, shapes[summed][1], ranges | {"rows": operands.memories[summed]})
        return operands.results({n: shapes[n] for n in rows})

    def _launch(self, name: str, operands: LaunchOperands, order: dict[str, DeviceArray], groups: int) -> None:
        built, weights = self.build(name), self.problem.weight_numel
        sums_weights = self.problem.shared_weights and "gw" in built.signature.names and weights > 0
        step = self._groups_together(groups) if sums_weights else groups
        for first in range(0, groups, step):
            count = min(step, groups - first)
            arguments: dict[str, Argument] = {**operands.memories, **order, "first": first}
            operands.launch(built, count, arguments)
            # Row 0 of the gradients of shared weights is the sum of all previous launches.
            for level in levels(1 + count) if sums_weights else ():
                bounds = {"first": level.first, "stop": level.stop, "length": level.length, "to": level.to}
                self._sum(operands, sum_level, len(level), weights, bounds | {"rows": operands.memories["gw"]})

    def weight_rows(self, groups: int) -> int:
        """Return the number of rows that store gradients of shared weights before they are summed."""
        return levels_rows(1 + self._groups_together(groups) if groups else 1)

    def _groups_together(self, groups: int) -> int:
        """Return the number of groups whose gradients of shared weights are stored at the same time."""
        return max(1, min(groups, KEPT // max(1, self.problem.weight_numel * self.dtype.itemsize)))

    def _sum(
        self,
        operands: LaunchOperands,
        function: Callable[[int, int], Function],
        sums: int,
        columns: int,
        arguments: Mapping[str, Argument],
    ) -> None:
        if columns:
            groups = sums * -(-columns // self.lanes)
            operands.launch(self.builds.sum(function, self.dtype.itemsize), groups, {"columns": columns, **arguments})
