"""Tensor products on a GPU: plans (schedule.py) -> kernels (program.py), built for a device (jit) -> launches.

Operands are NumPy arrays, which are copied there and back, or PyTorch tensors in the device's memory, which are not.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from trnqc import backends
from trnqc.cg.cuda.operands import operands_of
from trnqc.cg.cuda.program import function_name, parameters, program
from trnqc.cg.cuda.schedule import Plan, plan
from trnqc.cg.cuda.segments import Ranges, Segments, levels, levels_rows, segments, sum_rows
from trnqc.cg.problem.graph import Graph
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import OperandError
from trnqc.jit import Recipe, Signature
from trnqc.jit.device import Argument, Built, Device, Memory

WARP = 32
# Blocks of a multiprocessor that a kernel is compiled for; 0 leaves the number of registers to the compiler.
BLOCKS = (0, 8)
# Bytes of gradients of shared weights that are held before they are summed.
KEPT = 1 << 28


def fewest(forms: Iterable[Built]) -> Built:
    """The first form that does not spill registers, else the one that spills least; later forms are built if needed."""
    best: Built | None = None
    for built in forms:
        if best is None or built.stack < best.stack:
            best = built
        if not best.stack:
            break
    assert best is not None
    return best


class CudaEngine:
    """The methods of the CPU's engine, on a device.

    Parameters
    ----------
    problem : TPProblem
    dtype : str or type
        float32 or float64.
    device : Device, optional
        By default the first GPU.
    kahan, atomic : bool
        Whether sums over a node's edges are compensated, and whether they are added up by hardware, in any order.

    Raises
    ------
    BackendUnavailable
        Without a GPU.
    UnsupportedError
        For a kernel that needs more shared memory than a block has.
    """

    def __init__(
        self, problem: TPProblem, dtype: Any, device: Device | None = None, *, kahan: bool = False, atomic: bool = False
    ) -> None:
        self.problem, self.dtype = problem, np.dtype(dtype)
        self.device: Device = backends.devices("cuda")[0] if device is None else device
        self.lanes = min(WARP, self.device.most_lanes)
        self.kahan, self.atomic = kahan, atomic
        self._built: dict[str, Built] = {}
        self._segments: weakref.WeakKeyDictionary[Graph, dict[str, tuple[Segments, dict[str, Memory]]]]
        self._segments = weakref.WeakKeyDictionary()

    @property
    def ran_on(self) -> str:
        return f"generated CUDA on {self.device.name}"

    @property
    def build_report(self) -> str:
        """The plans of what has been built so far."""
        return "\n".join(str(self.plan(name)) for name in self._built if name in DIRECTIONS) or "nothing is built yet"

    def plan(self, name: str) -> Plan:
        return plan(self.problem, name, self.dtype.itemsize, self.lanes)

    def forward(self, x: Any, y: Any, w: Any, out: Any = None) -> Any:
        """z [B, d3]."""
        (z,) = self._batch("forward", {"x": x, "y": y, "w": w}, {} if out is None else {"z": out})
        return z

    def backward(self, x: Any, y: Any, w: Any, gz: Any) -> tuple[Any, ...]:
        """(gx, gy, gw)."""
        return self._batch("backward", {"x": x, "y": y, "w": w, "gz": gz})

    def double_backward(self, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any) -> tuple[Any, ...]:
        """(gx, gy, gw, ggz): gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
        return self._batch("double_backward", {"x": x, "y": y, "w": w, "gz": gz, "ggx": ggx, "ggy": ggy, "ggw": ggw})

    def conv_forward(self, x: Any, y: Any, w: Any, graph: Graph) -> Any:
        """z [V, d3]: products of x at the senders, summed at the receivers."""
        (z,) = self._convolution("conv_forward", {"x": x, "y": y, "w": w}, graph)
        return z

    def conv_backward(self, x: Any, y: Any, w: Any, gz: Any, graph: Graph) -> tuple[Any, ...]:
        """(gx, gy, gw)."""
        return self._convolution("conv_backward", {"x": x, "y": y, "w": w, "gz": gz}, graph)

    def conv_double_backward(
        self, x: Any, y: Any, w: Any, gz: Any, ggx: Any, ggy: Any, ggw: Any, graph: Graph
    ) -> tuple[Any, ...]:
        """(gx, gy, gw, ggz)."""
        arrays = {"x": x, "y": y, "w": w, "gz": gz, "ggx": ggx, "ggy": ggy, "ggw": ggw}
        (ggz,) = self._convolution("conv_double_outputs", {n: a for n, a in arrays.items() if n != "gz"}, graph)
        return (*self._convolution("conv_double_inputs", arrays, graph), ggz)

    # Kernels

    def _kernel(self, name: str) -> Built:
        if name not in self._built:
            kernel_plan, by_node = self.plan(name), bool(DIRECTIONS[name].by)
            options = {"kahan": self.kahan and DIRECTIONS[name].by == "receiver", "atomic": self.atomic and by_node}
            function = function_name(kernel_plan, **options)
            signature = Signature.declared(function, parameters(kernel_plan), DIRECTIONS[name].writes)
            recipe = Recipe(function, (signature,), lambda: (program(kernel_plan, **options),))
            # On a tie the first variant is taken, whose number of registers the compiler chose.
            forms = (self.device.build(recipe, self.lanes, accumulate="plain", min_blocks=n) for n in BLOCKS)
            self._built[name] = fewest(forms)
        return self._built[name]

    def _sums(self) -> Built:
        if "sums" not in self._built:
            function = sum_rows(self.dtype.itemsize, self.lanes)
            self._built["sums"] = self.device.build(Recipe.of(function), self.lanes, accumulate="plain")
        return self._built["sums"]

    # Launches

    def _batch(self, name: str, arrays: dict[str, Any], outs: dict[str, Any] | None = None) -> tuple[Any, ...]:
        batch = len(arrays["x"])
        shapes = self._checked(arrays, batch, batch, batch)
        rows = {n: shapes[n] for n in DIRECTIONS[name].writes}
        if self.problem.shared_weights and "gw" in rows:
            rows["gw"] = (self.weight_rows(batch), *rows["gw"])
        operands = operands_of(self.device, arrays)
        operands.allocate(rows, {"gy", "gw"} if self.problem.shared_weights else {"gy"}, outs or {})
        if batch:
            self._launch(name, operands.memories, batch, None)
        return operands.results({n: shapes[n] for n in rows})

    def _convolution(self, name: str, arrays: dict[str, Any], graph: Graph) -> tuple[Any, ...]:
        direction = DIRECTIONS[name]
        shapes = self._checked(arrays, graph.n_nodes, len(graph.rows), graph.n_nodes)
        operands = operands_of(self.device, arrays)
        cut, order = self._cut(graph, direction.by)
        rows = {n: shapes[n] for n in direction.writes}
        (summed,) = (n for n in rows if n[-1] == {"sender": "x", "receiver": "z"}[direction.by])
        if not self.atomic:
            rows[summed] = (cut.rows, shapes[summed][1])
        if self.problem.shared_weights and "gw" in rows:
            rows["gw"] = (self.weight_rows(len(cut), cut), *rows["gw"])
        zeroed = {"gy", *({summed} if self.atomic else ()), *({"gw"} if self.problem.shared_weights else ())}
        operands.allocate(rows, zeroed, {})
        if len(cut):
            self._launch(name, operands.memories | order, len(cut), cut)
            if len(cut.cut) and not self.atomic:
                self._sum_rows(operands.memories[summed], shapes[summed][1], cut.cut)
        return operands.results({n: shapes[n] for n in rows})

    def _launch(self, name: str, memories: dict[str, Memory], groups: int, cut: Segments | None) -> None:
        built = self._kernel(name)
        names = built.signature.names
        weights = self.problem.weight_numel
        sums_weights = self.problem.shared_weights and "gw" in names and weights > 0
        for first, last in self._chunks(groups, cut) if sums_weights else [(0, groups)]:
            edge, stop = (first, last) if cut is None else (int(cut.begin[first]), int(cut.end[last - 1]))
            # Row 0 of gradients of shared weights is their sum so far.
            arguments: dict[str, Argument] = {**memories, "first": first, "origin": edge - 1}
            self.device.launch(built, last - first, arguments)
            for level in levels(stop - edge + 1) if sums_weights else ():
                self._sum_rows(memories["gw"], weights, level)

    def weight_rows(self, groups: int, cut: Segments | None = None) -> int:
        """Rows that hold gradients of shared weights before they are summed."""
        edges = [
            last - first if cut is None else int(cut.end[last - 1] - cut.begin[first])
            for first, last in self._chunks(groups, cut)
        ]
        return levels_rows(1 + max(edges, default=0))

    def _chunks(self, groups: int, cut: Segments | None) -> list[tuple[int, int]]:
        """Groups whose gradients of shared weights are kept at a time."""
        edges = max(1, KEPT // max(1, self.problem.weight_numel * self.dtype.itemsize))
        longest = 1 if cut is None else max(1, int((cut.end - cut.begin).max(initial=0)))
        step = max(1, edges // longest)
        return [(n, min(n + step, groups)) for n in range(0, groups, step)]

    def _sum_rows(self, rows: Memory, columns: int, ranges: Ranges) -> None:
        if not columns:
            return
        there = {name: self.device.upload(getattr(ranges, name)) for name in ("begin", "end", "row")}
        groups = len(ranges) * -(-columns // self.lanes)
        self.device.launch(self._sums(), groups, {"columns": columns, "rows": rows, **there})
        self.device.release(*there.values())

    def _cut(self, graph: Graph, by: str) -> tuple[Segments, dict[str, Memory]]:
        kept = self._segments.setdefault(graph, {})
        if by not in kept:
            cut = segments(graph.by_receiver if by == "receiver" else graph.by_sender)
            arrays = {name: getattr(cut, name) for name in ("begin", "end", "node", "order", "far")}
            arrays["target"] = cut.node if self.atomic else cut.target
            kept[by] = cut, {name: self.device.upload(array) for name, array in arrays.items()}
        return kept[by]

    def _checked(self, arrays: dict[str, Any], in1: int, edges: int, out: int) -> dict[str, tuple[int, ...]]:
        """Shapes of all operands. Raises OperandError."""
        rows = {"x": in1, "y": edges, "w": edges, "z": out}
        shapes: dict[str, tuple[int, ...]] = {
            name: (n,) if name[-1] == "w" and self.problem.shared_weights else (rows[name[-1]], n)
            for direction in DIRECTIONS.values()
            for name in (*direction.reads, *direction.writes)
            for n in [self.problem.row_length(name)]
        }
        for name, array in arrays.items():
            kind = str(array.dtype).removeprefix("torch.")
            if tuple(array.shape) != shapes[name] or kind != self.dtype.name:
                raise OperandError(
                    f"{name}: expected {self.dtype.name} of shape {shapes[name]}, found {kind} of shape "
                    f"{tuple(array.shape)}"
                )
        return shapes
