"""Tensor products as operators of torch.library: ``trnqc::cg_forward`` and its derivatives, a convolution's likewise.

L(x, y, w, gz) = <gz, z(x, y, w)> is linear in each argument (in w up to a constant). forward is its gradient with
respect to gz, backward with respect to x, y and w, double_backward that of a directional derivative; the derivative of
double_backward is composed of the three, so there is one of every order. torch.compile and torch.export see each call
as one node.

A problem is passed as text (`handle.text_of`). Results are new, dense and of the operands' dtype; under autocast
operands of less than single precision are taken as float32. A CPU runs as many threads as torch.set_num_threads says.
"""

# No `from __future__ import annotations`: torch reads schemas from annotations as objects.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from trnqc.cg.graph import graph_of
from trnqc.cg.handle import cpu_engine, cuda_engine, no_engine, problem_of, weighted_part
from trnqc.cg.memory import demand
from trnqc.cg.problem import TPProblem
from trnqc.errors import EdgeIndexError, OperandError, UnsupportedPrecision

NAMES = ("x", "y", "w", "gz", "ggx", "ggy", "ggw")
# Direction -> its operands among NAMES, and which of x, y, w, gz its results are shaped as.
DIRECTIONS = {"forward": (3, ("gz",)), "backward": (4, ("x", "y", "w")), "double_backward": (7, ("x", "y", "w", "gz"))}
SUPPORTED = {torch.float32: "float32", torch.float64: "float64"}


@dataclass(frozen=True)
class Sizes:
    """Rows of x, y and z: nodes, edges, nodes in a convolution; the batch thrice without."""

    x: Any
    y: Any
    z: Any

    def shape(self, name: str, problem: TPProblem) -> tuple[Any, ...]:
        """The shape of an operand by its name."""
        kind = name[-1]
        if kind == "w":
            return (problem.weight_numel,) if problem.shared_weights else (self.y, problem.weight_numel)
        return getattr(self, kind), problem.dims["xyz".index(kind)]


def check(problem: TPProblem, tensors: Sequence[Tensor], sizes: Sizes) -> None:
    """Raises OperandError or UnsupportedPrecision, naming the operand, what was expected and what was found."""
    first = tensors[0]
    if first.dtype not in SUPPORTED:
        raise UnsupportedPrecision(f"x: expected torch.float32 or torch.float64, found {first.dtype}")
    if problem.dtype is not None and SUPPORTED[first.dtype] != problem.dtype:
        raise OperandError(f"x: expected torch.{problem.dtype}, which the problem was made for, found {first.dtype}")
    for name, tensor in zip(NAMES, tensors):
        if tensor.layout != torch.strided:
            raise OperandError(f"{name}: expected a dense tensor (torch.strided), found {tensor.layout}")
        if tensor.dtype != first.dtype:
            raise OperandError(f"{name}: expected {first.dtype}, as x has, found {tensor.dtype}")
        if tensor.device != first.device:
            raise OperandError(f"{name}: expected device {first.device}, where x lies, found {tensor.device}")
        expected = sizes.shape(name, problem)
        # The length is told apart from the rows: while a program is traced, rows are symbols and lengths are numbers.
        if tensor.dim() != len(expected) or tensor.shape[-1] != expected[-1]:
            raise OperandError(f"{name}: expected shape {_words(name, expected)}, found {list(tensor.shape)}")
        if len(expected) == 2 and tensor.shape[0] != expected[0]:
            raise OperandError(f"{name}: expected {expected[0]} rows, as x or y demands, found {list(tensor.shape)}")


def check_edges(x: Tensor, rows: Tensor, cols: Tensor) -> None:
    """Raises EdgeIndexError unless rows and cols are int64 [edges] on x's device; values are read when it runs."""
    for name, index in (("rows", rows), ("cols", cols)):
        if index.dtype != torch.int64 or index.dim() != 1:
            raise EdgeIndexError(f"{name}: expected torch.int64 [edges], found {index.dtype} {list(index.shape)}")
        if index.device != x.device:
            raise EdgeIndexError(f"{name}: expected device {x.device}, where x lies, found {index.device}")
    if rows.shape[0] != cols.shape[0]:
        raise EdgeIndexError(f"expected as many receivers as senders, found {rows.shape[0]} rows, {cols.shape[0]} cols")


def _words(name: str, expected: tuple[Any, ...]) -> str:
    if len(expected) == 1:
        return f"[{expected[0]}] (weights are shared)"
    return f"[{'edges' if name[-1] in 'yw' else 'rows'}, {expected[1]}]"


def _sizes(tensors: Sequence[Tensor], edges: Sequence[Tensor]) -> Sizes:
    for name, tensor in zip(NAMES[:2], tensors):
        if tensor.dim() != 2:
            raise OperandError(f"{name}: expected two dimensions, found {list(tensor.shape)}")
    if edges:
        check_edges(tensors[0], *edges)
        return Sizes(tensors[0].shape[0], edges[0].shape[0], tensors[0].shape[0])
    batch = tensors[0].shape[0]
    return Sizes(batch, batch, batch)


def _run(direction: str, tensors: Sequence[Tensor], edges: Sequence[Tensor], options: Sequence[Any]) -> Any:
    """One call of an engine on real tensors: those of a CPU as NumPy arrays on the same memory."""
    text, *choices = options
    deterministic, kahan = choices or (True, False)
    sizes = _sizes(tensors, edges)
    check(problem_of(text), tensors, sizes)
    device, dtype = tensors[0].device, SUPPORTED[tensors[0].dtype]
    if device.type not in ("cpu", "cuda"):
        raise no_engine(str(device))
    rows_cols = [e.cpu().numpy() for e in edges]
    graph = [graph_of(rows_cols[0], rows_cols[1], sizes.x)] if edges else []
    name = f"conv_{direction}" if edges else direction
    if device.type == "cuda":
        atomic = bool(edges) and not deterministic
        return getattr(cuda_engine(text, dtype, device.index, kahan, atomic), name)(*tensors, *graph)
    for tensor in tensors:
        if not tensor.is_contiguous():
            # Expanded tensors can be larger than any memory.
            demand(tensor.numel() * tensor.element_size(), f"a contiguous copy of {list(tensor.shape)} {dtype}")
    engine = cpu_engine(text, dtype, torch.get_num_threads())
    extra = {"kahan": True} if kahan else {}
    found = getattr(engine, name)(*(t.contiguous().numpy() for t in tensors), *graph, **extra)
    return tuple(map(torch.from_numpy, found)) if isinstance(found, tuple) else torch.from_numpy(found)


def _fake(direction: str, tensors: Sequence[Tensor], edges: Sequence[Tensor], options: Sequence[Any]) -> Any:
    """Results without contents, after the same checks."""
    problem, sizes = problem_of(options[0]), _sizes(tensors, edges)
    check(problem, tensors, sizes)
    made = [tensors[0].new_empty(sizes.shape(name, problem)) for name in DIRECTIONS[direction][1]]
    return tuple(made) if len(made) > 1 else made[0]


class Family:
    """The operators of one kind and how they are each other's derivatives.

    edges: names of the index tensors. options: (type, name) of what follows them, the problem's text first.
    """

    def __init__(self, prefix: str, edges: tuple[str, ...], options: tuple[tuple[str, str], ...]) -> None:
        self.edges = edges
        self.tail = ", ".join([*(f"Tensor {name}" for name in edges), *(f"{kind} {name}" for kind, name in options)])
        self.operators = {direction: self._operator(prefix, direction) for direction in DIRECTIONS}

    def _operator(self, prefix: str, direction: str) -> Any:
        count, results = DIRECTIONS[direction]

        def parts(args: Sequence[Any]) -> tuple[Sequence[Tensor], Sequence[Tensor], Sequence[Any]]:
            cut = count + len(self.edges)
            return args[:count], args[count:cut], args[cut:]

        def real(*args: Any) -> Any:
            return _run(direction, *parts(args))

        def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            tensors, edges, ctx.options = parts(inputs)
            ctx.save_for_backward(*tensors, *edges)

        def derivative(ctx: Any, *given: Tensor) -> tuple[Any, ...]:
            # Read once: checkpointing computes them anew and hands them out a single time.
            saved = ctx.saved_tensors
            tensors, edges = saved[:count], saved[count:]
            found = self._derivatives[direction](self, tensors, given, (*edges, *ctx.options))
            return (*found, *[None] * (len(edges) + len(ctx.options)))

        def over_a_batch(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
            return self._batched(direction, info.batch_size, parts(in_dims), parts(args))

        operands = ", ".join(f"Tensor {name}" for name in NAMES[:count])
        returned = "Tensor" if len(results) == 1 else f"({', '.join(['Tensor'] * len(results))})"
        schema = f"({operands}, {self.tail}) -> {returned}"
        operator = torch.library.custom_op(f"trnqc::{prefix}_{direction}", real, mutates_args=(), schema=schema)
        operator.register_fake(lambda *args: _fake(direction, *parts(args)))
        operator.register_autograd(derivative, setup_context=keep)
        operator.register_vmap(over_a_batch)
        for device in ("cpu", "cuda"):
            operator.register_autocast(device, torch.float32)
        return operator

    def _of_forward(self, t: Sequence[Tensor], given: Sequence[Tensor], rest: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return self.operators["backward"](*t, *given, *rest)

    def _of_backward(self, t: Sequence[Tensor], given: Sequence[Tensor], rest: tuple[Any, ...]) -> tuple[Tensor, ...]:
        return self.operators["double_backward"](*t, *given, *rest)

    def _of_double(self, t: Sequence[Tensor], given: Sequence[Tensor], rest: tuple[Any, ...]) -> tuple[Tensor, ...]:
        """Gradients of S = sum over i of x, y, w and j != i of x, y, w, gz of L with ggi at i and given hj at j."""
        forward, backward, double = (self.operators[name] for name in DIRECTIONS)
        x, y, w, gz, ggx, ggy, ggw = t
        hx, hy, hw, hz = given
        # With ggw or hw at w only paths with weights count: a path without is constant in w, all others are linear.
        at = len(self.edges)
        linear = (*rest[:at], weighted_part(rest[at]), *rest[at + 1 :])
        # S is the derivative of <ggx, gx> + <ggy, gy> + <ggw, gw> along (hx, hy, hw, hz).
        along = double(x, y, w, gz, hx, hy, hw, *rest)[:3]
        beside = backward(x, y, w, hz, *rest)
        # Its terms with x, y or w as they are: hz at gz, or gz as it is and h at another.
        at_hz = double(x, y, w, hz, ggx, ggy, ggw, *rest)[:3]
        crossed = double(ggx, ggy, ggw, gz, hx, hy, hw, *linear)[:3]
        of_gz = forward(hx, ggy, w, *rest) + forward(ggx, hy, w, *rest)
        for pair in ((hx, y, ggw), (ggx, y, hw), (x, hy, ggw), (x, ggy, hw)):
            of_gz = of_gz + forward(*pair, *linear)
        of_gg = (a + b for a, b in zip(along, beside))
        return *(a + b for a, b in zip(at_hz, crossed)), of_gz, *of_gg

    _derivatives: dict[str, Callable[..., tuple[Tensor, ...]]] = {  # noqa: RUF012
        "forward": _of_forward,
        "backward": _of_backward,
        "double_backward": _of_double,
    }

    def _batched(self, direction: str, count: int, dims: tuple[Any, ...], args: tuple[Any, ...]) -> tuple[Any, Any]:
        """vmap: rows of all samples as one batch where every operand is rows of its own, else sample after sample."""
        operator, results = self.operators[direction], DIRECTIONS[direction][1]
        flat_dims, flat = [*dims[0], *dims[1], *dims[2]], [*args[0], *args[1], *args[2]]
        if not self.edges and not problem_of(args[2][0]).shared_weights:
            rows = [t.movedim(d, 0) if d is not None else t.expand(count, *t.shape) for d, t in zip(dims[0], args[0])]
            found = operator(*(t.reshape(-1, t.shape[-1]) for t in rows), *args[2])
            made = [t.reshape(count, -1, t.shape[-1]) for t in (found if len(results) > 1 else (found,))]
        else:
            samples = [
                operator(*(a if d is None else a.select(d, n) for d, a in zip(flat_dims, flat))) for n in range(count)
            ]
            made = [torch.stack(t) for t in (zip(*samples) if len(results) > 1 else (samples,))]
        return (tuple(made), (0,) * len(made)) if len(made) > 1 else (made[0], 0)


BATCH = Family("cg", (), (("str", "problem"),))
CONVOLUTION = Family("cg_conv", ("rows", "cols"), (("str", "problem"), ("bool", "deterministic"), ("bool", "kahan")))
