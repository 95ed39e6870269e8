"""Tensor products and their convolutions as operators of torch.library: ``trnqc::cg_forward`` and its derivatives.

Derivatives of every order are composed of three operators (derivatives.py). torch.compile and torch.export see each
call as one node. For the transforms of torch.func and the dual numbers of torch.autograd.forward_ad, `Family.apply`
calls the same operators through autograd functions that have forward-mode derivatives (transforms.py).

A problem is passed as text (`text_of`). Results are new dense tensors of the operands' dtype. Operands in half
precision are computed in float32 (storage.py). Under autocast they are converted to float32, and the result is float32.
The number of CPU threads is that of torch.get_num_threads.
"""

# No `from __future__ import annotations`: torch reads schemas from annotations as objects.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trnqc.cg.cuda.device_graph import DeviceGraph
from trnqc.cg.derivatives import GRADIENTS, TANGENTS, ProductCalls
from trnqc.cg.problem.graph import graph_of
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import problem_of, weighted_part
from trnqc.cg.programs.directions import DIRECTIONS, Direction
from trnqc.cg.torch.engines import cpu_engine, cuda_engine, nki_engine, no_engine
from trnqc.cg.torch.family import Family
from trnqc.cg.torch.storage import COMPUTED, HALVES, all_widened, by_blocks, check_type, rounded
from trnqc.cg.torch.transforms import refuse_dual_level
from trnqc.errors import EdgeIndexError, OperandError, UnsupportedPrecision
from trnqc.host.memory import require_memory

# Directions that are registered as operators.
OPERATORS = ("forward", "backward", "double_backward")
# Operand names in the order of the arguments; each operator takes the first few of them.
NAMES = DIRECTIONS["double_backward"].reads


@dataclass(frozen=True)
class RowCounts:
    """Numbers of rows of x, y and z: nodes, edges and nodes in a convolution, the batch size for each otherwise."""

    x: Any
    y: Any
    z: Any

    def shape(self, name: str, problem: TPProblem) -> tuple[Any, ...]:
        """Return the shape of the operand with this name."""
        return problem.shape_of(name, self.y if name[-1] == "w" else getattr(self, name[-1]))


def check(problem: TPProblem, tensors: Sequence[Tensor], sizes: RowCounts) -> None:
    """Check the operands.

    Raises OperandError for another shape, dtype, layout or device than expected, and UnsupportedPrecision for other
    types than float16, bfloat16, float32 and float64.
    """
    first = tensors[0]
    check_type(first)
    if problem.dtype is not None and COMPUTED.get(first.dtype) != problem.dtype:
        raise OperandError(f"x: expected torch.{problem.dtype}, which the problem was made for, found {first.dtype}")
    for name, tensor in zip(NAMES, tensors):
        if tensor.layout != torch.strided:
            raise OperandError(f"{name}: expected a dense tensor (torch.strided), found {tensor.layout}")
        if tensor.dtype != first.dtype:
            raise OperandError(f"{name}: expected {first.dtype}, as x has, found {tensor.dtype}")
        if tensor.device != first.device:
            raise OperandError(f"{name}: expected device {first.device}, where x lies, found {tensor.device}")
        expected = sizes.shape(name, problem)
        # Row length and number of rows are checked separately: in a traced program the latter is a symbol.
        if tensor.dim() != len(expected) or tensor.shape[-1] != expected[-1]:
            raise OperandError(f"{name}: expected shape {_shape_text(name, expected)}, found {list(tensor.shape)}")
        if len(expected) == 2 and tensor.shape[0] != expected[0]:
            raise OperandError(f"{name}: expected {expected[0]} rows, as x or y demands, found {list(tensor.shape)}")


def check_edges(x: Tensor, rows: Tensor, cols: Tensor) -> None:
    """Raise EdgeIndexError unless rows and cols are int64 [edges] on the device of x; node numbers are not read."""
    for name, index in (("rows", rows), ("cols", cols)):
        if index.dtype != torch.int64 or index.dim() != 1:
            raise EdgeIndexError(f"{name}: expected torch.int64 [edges], found {index.dtype} {list(index.shape)}")
        if index.device != x.device:
            raise EdgeIndexError(f"{name}: expected device {x.device}, where x lies, found {index.device}")
    if rows.shape[0] != cols.shape[0]:
        raise EdgeIndexError(f"expected as many receivers as senders, found {rows.shape[0]} rows, {cols.shape[0]} cols")


def _shape_text(name: str, expected: tuple[Any, ...]) -> str:
    if len(expected) == 1:
        return f"[{expected[0]}] (weights are shared)"
    return f"[{'edges' if name[-1] in 'yw' else 'rows'}, {expected[1]}]"


def _sizes(tensors: Sequence[Tensor], edges: Sequence[Tensor]) -> RowCounts:
    for name, tensor in zip(NAMES[:2], tensors):
        if tensor.dim() != 2:
            raise OperandError(f"{name}: expected two dimensions, found {list(tensor.shape)}")
    if edges:
        check_edges(tensors[0], *edges)
        return RowCounts(tensors[0].shape[0], edges[0].shape[0], tensors[0].shape[0])
    batch = tensors[0].shape[0]
    return RowCounts(batch, batch, batch)


def _run(direction: str, tensors: Sequence[Tensor], edges: Sequence[Tensor], options: Sequence[Any]) -> Any:
    """Run an engine; tensors on the CPU are passed as NumPy arrays that share their memory."""
    refuse_dual_level()
    text, *choices = options
    deterministic, kahan = choices or (True, False)
    sizes = _sizes(tensors, edges)
    check(problem_of(text), tensors, sizes)
    device, stored = tensors[0].device, tensors[0].dtype
    if device.type not in ("cpu", "cuda"):
        raise no_engine(str(device))
    if stored in HALVES and device.type == "cpu" and not edges:
        return _run_half(direction, tensors, text)
    tensors = all_widened(tensors)
    dtype = COMPUTED[tensors[0].dtype]
    name = f"conv_{direction}" if edges else direction
    if device.type == "cuda":
        there = [DeviceGraph(edges[0], edges[1], sizes.x)] if edges else []
        atomic = bool(edges) and not deterministic
        results = getattr(cuda_engine(text, dtype, device.index, kahan, atomic), name)(*tensors, *there)
        return rounded(results, stored)
    rows_cols = [e.numpy() for e in edges]
    graph = [graph_of(rows_cols[0], rows_cols[1], sizes.x)] if edges else []
    engine = cpu_engine(text, dtype, torch.get_num_threads())
    extra = {"kahan": True} if kahan else {}
    results = getattr(engine, name)(*map(as_array, tensors), *graph, **extra)
    return rounded(_as_tensors(results), stored)


def _run_half(direction: str, tensors: Sequence[Tensor], text: str) -> Any:
    """Run a batch that is stored in half precision on the CPU, block by block."""
    engine, shared = cpu_engine(text, "float32", torch.get_num_threads()), problem_of(text).shared_weights

    def run(*operands: Tensor) -> tuple[Tensor, ...]:
        results = _as_tensors(getattr(engine, direction)(*map(as_array, operands)))
        return results if isinstance(results, tuple) else (results,)

    results = by_blocks(run, tensors, [shared and name == "gw" for name in DIRECTIONS[direction].writes])
    return results if len(results) > 1 else results[0]


def _as_tensors(results: Any) -> Any:
    """Return an array, or a tuple of arrays, as tensors that share their memory."""
    return tuple(map(torch.from_numpy, results)) if isinstance(results, tuple) else torch.from_numpy(results)


def _run_nki(direction: str, tensors: Sequence[Tensor], edges: Sequence[Tensor], options: Sequence[Any]) -> Any:
    """Run a convolution by NKI kernels: on the device of the tensors, or, on the CPU, by the backend asked for."""
    refuse_dual_level()
    text, backend = options
    sizes, device = _sizes(tensors, edges), tensors[0].device
    check(problem_of(text), tensors, sizes)
    if tensors[0].dtype != torch.float32:
        raise UnsupportedPrecision(f"x: expected torch.float32, in which NKI kernels compute, found {tensors[0].dtype}")
    from trnqc.cg.nki import tensors as on_device  # imports the simulator

    if on_device.takes(device, backend):
        results = on_device.evaluate(direction, text, tensors, edges)
        return results if len(results) > 1 else results[0]
    rows, cols = (e.numpy() for e in edges)
    graph = graph_of(rows, cols, sizes.x)
    return _as_tensors(getattr(nki_engine(text, backend), f"conv_{direction}")(*map(as_array, tensors), graph))


def as_array(tensor: Tensor) -> Any:
    """Return the tensor as a contiguous, aligned array, copied only where necessary. Raises MemoryLimit."""
    if not tensor.is_contiguous():
        # Expanded tensors can be larger than any memory.
        size = tensor.numel() * tensor.element_size()
        require_memory(size, f"a contiguous copy of {list(tensor.shape)} {COMPUTED[tensor.dtype]}", "split the batch")
        tensor = tensor.contiguous()
    if tensor.data_ptr() % 8 and tensor.data_ptr() % tensor.element_size():
        tensor = tensor.clone()
    return tensor.numpy()


def _fake(direction: str, tensors: Sequence[Tensor], edges: Sequence[Tensor], options: Sequence[Any]) -> Any:
    """Return results without data, after the same checks as `_run`."""
    refuse_dual_level()
    problem, sizes = problem_of(options[0]), _sizes(tensors, edges)
    check(problem, tensors, sizes)
    results = [tensors[0].new_empty(sizes.shape(name, problem)) for name in DIRECTIONS[direction].writes]
    return tuple(results) if len(results) > 1 else results[0]


class ProductFamily(Family):
    """The operators of tensor products or of convolutions, one for each direction in `OPERATORS`.

    Parameters
    ----------
    prefix : str
        Start of the operators' names.
    edges : tuple of str
        Names of the index tensors, which follow the operands.
    options : tuple of (str, str)
        Type and name of the arguments that follow the index tensors. The first is the text of the problem.
    run : callable
        Evaluates a direction: run(direction, operands, edges, options).
    """

    def __init__(
        self,
        prefix: str,
        edges: tuple[str, ...],
        options: tuple[tuple[str, str], ...],
        run: Callable[..., Any] = _run,
    ) -> None:
        self.edges, self.run = edges, run
        tail = [*(f"Tensor {name}" for name in edges), *(f"{kind} {name}" for kind, name in options)]
        super().__init__(prefix, {name: _schema(DIRECTIONS[name], tail) for name in OPERATORS})

    def parts(self, direction: str, args: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], Sequence[Any]]:
        """Split the arguments of an operator into operands, edges and options."""
        count = len(DIRECTIONS[direction].reads)
        cut = count + len(self.edges)
        return args[:count], args[count:cut], args[cut:]

    def real(self, direction: str, args: Sequence[Any]) -> Any:
        return self.run(direction, *self.parts(direction, args))

    def fake(self, direction: str, args: Sequence[Any]) -> Any:
        return _fake(direction, *self.parts(direction, args))

    def keep(self, direction: str, ctx: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        tensors, edges, ctx.options = self.parts(direction, inputs)
        ctx.save_for_backward(*tensors, *edges)
        return (*tensors, *edges)

    def gradients(
        self, direction: str, saved: Sequence[Tensor], options: Any, grad_outputs: Sequence[Any]
    ) -> tuple[Any, ...]:
        tensors, calls = self._kept(direction, saved, options)
        return (*GRADIENTS[direction](calls, tensors, grad_outputs), *[None] * len(calls.rest))

    def tangents(self, direction: str, saved: Sequence[Tensor], options: Any, tangents: Sequence[Any]) -> Any:
        tensors, calls = self._kept(direction, saved, options)
        along = [torch.zeros_like(t) if h is None else h for t, h in zip(tensors, tangents)]
        return TANGENTS[direction](calls, tensors, along)

    def _kept(self, direction: str, saved: Sequence[Tensor], options: Any) -> tuple[Sequence[Tensor], ProductCalls]:
        count, (text, *others) = len(DIRECTIONS[direction].reads), options
        tensors, edges = saved[:count], saved[count:]
        return tensors, ProductCalls(self.apply, (*edges, text, *others), (*edges, weighted_part(text), *others))

    def batched(self, call: Any, direction: str, count: int, dims: Sequence[Any], args: Sequence[Any]) -> Any:
        """Apply vmap to `call`: as one batch of all samples if they share no weights or nodes, else one by one."""
        tensors, _, options = self.parts(direction, args)
        if self.edges or problem_of(options[0]).shared_weights:
            samples = [call(*(a if d is None else a.select(d, n) for d, a in zip(dims, args))) for n in range(count)]
            if len(DIRECTIONS[direction].writes) == 1:
                return torch.stack(samples), 0
            return tuple(map(torch.stack, zip(*samples))), (0,) * len(samples[0])
        rows = [t.movedim(d, 0) if d is not None else t.expand(count, *t.shape) for d, t in zip(dims, tensors)]
        results = call(*(t.reshape(count * t.shape[1], t.shape[2]) for t in rows), *options)
        if isinstance(results, Tensor):
            return results.reshape(count, rows[0].shape[1], results.shape[-1]), 0
        return tuple(t.reshape(count, rows[0].shape[1], t.shape[-1]) for t in results), (0,) * len(results)


def _schema(direction: Direction, tail: Sequence[str]) -> str:
    operands = ", ".join([*(f"Tensor {name}" for name in direction.reads), *tail])
    results = ", ".join(["Tensor"] * len(direction.writes))
    return f"({operands}) -> " + (f"({results})" if len(direction.writes) > 1 else results)


BATCH = ProductFamily("cg", (), (("str", "problem"),))
CONVOLUTION = ProductFamily(
    "cg_conv", ("rows", "cols"), (("str", "problem"), ("bool", "deterministic"), ("bool", "kahan"))
)
NKI_CONVOLUTION = ProductFamily("cg_nki_conv", ("rows", "cols"), (("str", "problem"), ("str", "backend")), _run_nki)
