"""A symmetric contraction on a GPU: kernels (contraction.py) compiled for the device, and launches.

Operands are NumPy arrays, which are copied to the device and back, or PyTorch tensors in the device's memory.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc import backends
from trnqc.cg.cuda.builds import Builds
from trnqc.cg.cuda.contraction import Form, parts, recipe
from trnqc.cg.cuda.device_graph import device_segments, require_numbers
from trnqc.cg.cuda.operands import LaunchOperands, operands_of
from trnqc.cg.cuda.row_sums import sum_segments
from trnqc.cg.cuda.segments import Segments, segments
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import OperandError
from trnqc.jit import TYPES
from trnqc.jit.device import BuiltKernel, Device


class CudaContractionEngine:
    """A symmetric contraction and its derivatives on a GPU, by default the first.

    Shapes are those of `trnqc.cg.cpu.contraction_engine.ContractionEngine`. All arrays of a call are NumPy arrays, or
    PyTorch tensors on the device. Tensors are computed on PyTorch's current stream, and the host does not wait for
    them, so that an element out of range is a device-side assertion. With `atomic`, gradients of the coefficients are
    summed by atomic additions, whose order varies from run to run. Raises BackendUnavailable without a GPU.
    """

    def __init__(
        self, problem: ContractionProblem, dtype: Any, device: Device | None = None, *, atomic: bool = False
    ) -> None:
        self.problem, self.dtype, self.atomic = problem, np.dtype(dtype), atomic
        self.device: Device = backends.devices("cuda")[0] if device is None else device
        self.builds = Builds(self.device)
        self.lanes = self.builds.lanes
        self._forms: dict[tuple[str, int], list[Form]] = {}

    @property
    def ran_on(self) -> str:
        """Description of the machine that runs the calls."""
        return f"generated CUDA on {self.device.name}"

    def value(self, c: Any, x: Any, elements: Any, *along: Any) -> Any:
        """Return B, or its derivative along the directions `along`."""
        (b,) = self._evaluate("value", c, elements, x, *along)
        return b

    def gradient(self, c: Any, x: Any, elements: Any, gb: Any, *along: Any) -> Any:
        """Return the gradient with respect to x of <gb, value>."""
        (gx,) = self._evaluate("gradient", c, elements, x, *along, gb=gb)
        return gx

    def gradients(self, c: Any, x: Any, elements: Any, gb: Any, *along: Any) -> tuple[Any, Any]:
        """Return the gradients with respect to x and c of <gb, value>."""
        gx, gc = self._evaluate("gradients", c, elements, x, *along, gb=gb)
        return gx, gc

    def forms(self, kind: str, directions: int) -> list[Form]:
        """Return the kernels that are launched one after another for a kind and a number of directions."""
        if (kind, directions) not in self._forms:
            # To count the terms of the polynomials takes longer than a launch.
            count, dtype = len(parts(self.problem, directions)), TYPES[self.dtype.name]
            forms = [Form(self.problem, kind, directions, dtype, self.lanes, n) for n in range(count)]
            self._forms[kind, directions] = forms
        return self._forms[kind, directions]

    def build(self, form: Form) -> BuiltKernel:
        """Return a compiled kernel, which is built at the first call."""
        return self.builds.of(form.name, lambda: recipe(form))

    def _evaluate(self, kind: str, c: Any, elements: Any, *rows: Any, gb: Any = None) -> tuple[Any, ...]:
        """Return B or gx, and gc for the kind "gradients"."""
        arrays = {"c": c, "x": rows[0]} | {f"h{n}": row for n, row in enumerate(rows[1:], 1)}
        arrays |= {} if gb is None else {"gb": gb}
        nodes, forms = len(rows[0]), self.forms(kind, len(rows) - 1)
        self._check(arrays, elements, nodes)
        shapes: dict[str, tuple[int, ...]] = {"out": (nodes, self.problem.dims[kind == "value"], self.problem.channels)}
        if kind == "gradients":
            return self._gradients(arrays, elements, forms, shapes)
        check_elements(elements, len(c))
        operands = operands_of(self.device, arrays | {"elements": elements})
        operands.allocate(shapes, set(), {})
        self._launch(operands, forms, nodes, {})
        return (operands.results(shapes)["out"],)

    def _gradients(
        self, arrays: dict[str, Any], elements: Any, forms: list[Form], shapes: dict[str, tuple[int, ...]]
    ) -> tuple[Any, Any]:
        """Return gx and gc. The ranges of nodes have a row of gc each, and these are added up for each element."""
        count, terms = arrays["c"].shape[:2]
        padded = forms[0].blocks * self.lanes
        parts = ranges_of(elements, count, terms * padded * self.dtype.itemsize)
        operands = operands_of(self.device, arrays)
        order = operands.ranges(parts)
        operands.allocate(shapes | {"gc": (count if self.atomic else parts.rows, terms, padded)}, {"gc"}, {})
        self._launch(operands, forms, len(parts), order | ({"target": order["node"]} if self.atomic else {}))
        if len(parts.cut) and not self.atomic:
            cut = {name: order[f"cut_{name}"] for name in ("begin", "end", "row")}
            groups = len(parts.cut) * (terms * forms[0].blocks)
            rows = {"columns": terms * padded, "rows": operands.memories["gc"]}
            operands.launch(self.builds.sum(sum_segments, self.dtype.itemsize), groups, cut | rows)
        results = operands.results(shapes | {"gc": (count, terms, padded)})
        gc = results["gc"][:, :, : self.problem.channels]
        return results["out"], np.ascontiguousarray(gc) if isinstance(gc, np.ndarray) else gc.contiguous()

    def _launch(self, operands: LaunchOperands, forms: list[Form], count: int, order: dict[str, Any]) -> None:
        """Launch kernels for `count` nodes or ranges, one after another."""
        for form in forms if count else ():
            arguments = {**operands.memories, **order, "count": count}
            operands.launch(self.build(form), count * form.blocks, arguments)

    def _check(self, arrays: dict[str, Any], elements: Any, nodes: int) -> None:
        """Raise OperandError for an array of another shape or dtype."""
        (dim_x, dim_b), channels = self.problem.dims, self.problem.channels
        of_x = (nodes, dim_x, channels)
        shapes = {"c": (len(arrays["c"]), len(self.problem.terms), channels), "gb": (nodes, dim_b, channels)}
        for name, array in arrays.items():
            shape = shapes.get(name, of_x)
            if tuple(array.shape) != shape or _name(array) != self.dtype.name:
                raise OperandError(
                    f"{name}: expected {self.dtype.name}{list(shape)}, found {_name(array)}{list(array.shape)}"
                )
        if tuple(elements.shape) != (nodes,) or _name(elements) != "int64":
            raise OperandError(
                f"elements: expected int64[{nodes}], one for each node, found {_name(elements)}{list(elements.shape)}"
            )


def _name(array: Any) -> str:
    return str(array.dtype).removeprefix("torch.")


# Number of ranges, for each of which a GPU has a warp for every block of channels, and the fewest nodes of a range.
RANGES, FEWEST = 256, 8
# What is numbered, in messages of the device.
WHAT = "elements with the numbers"
# Bytes of the rows of all ranges, but not of those of the elements.
KEPT = 1 << 28


def ranges_of(elements: Any, count: int, row: int) -> Segments:
    """Return the ranges of nodes of one element, for rows of gradients of `row` bytes.

    Elements are int64 [nodes], of NumPy or PyTorch; numbers out of range are errors, as in `check_elements`.
    """
    longest = longest_range(len(elements), row)
    if isinstance(elements, np.ndarray):
        check_elements(elements, count)
        return segments(EdgeGraph(elements, elements, count).by_receiver, longest)
    return device_segments(elements, elements, count, longest, what=WHAT)


def longest_range(nodes: int, row: int) -> int:
    """Return the largest number of nodes of a range."""
    return max(FEWEST, -(-nodes // max(1, min(RANGES, KEPT // max(1, row)))))


def check_elements(elements: Any, count: int) -> None:
    """Require numbers from 0 to count - 1: OperandError for an array, an assertion on the device for a tensor."""
    if not isinstance(elements, np.ndarray):
        require_numbers(elements, count, WHAT)
    elif (outside := (elements < 0) | (elements >= count)).any():
        raise OperandError(f"elements: expected numbers from 0 to {count - 1}, found {elements[outside][0]}")
