"""The tensor product by its definition: dense sums in fp64, every derivative by torch's autograd.

    z[w,k] += pw sum_uv W[u,v,w] sum_ij C[i,j,k] x[u,i] y[v,j]      uvw
    z[u,k] += pw sum_v  W[u,v]   sum_ij C[i,j,k] x[u,i] y[v,j]      uvu; W = 1 where an instruction has no weight

and the other modes of e3nn likewise.

A convolution is a gather of x by sender, this product, and a sum by receiver. The functions take and return NumPy
arrays in the shapes of the engine's methods of the same names, and are slow on purpose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch

from trnqc.cg.problem.coefficients import clebsch_gordan

Array = np.ndarray
Apply = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def product(problem: Any, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """z [B, d3] of fp64 tensors x [B, d1], y [B, d2], w [B, weight_numel] or [weight_numel]; differentiable."""
    outputs = [x.new_zeros(x.shape[0], mul_ir.mul, mul_ir.ir.dim) for mul_ir in problem.irreps_out]
    begin = 0
    for ins in problem.instructions:
        count = int(np.prod(ins.path_shape)) if ins.has_weight else 0
        if 0 in ins.path_shape:
            continue
        weight = x.new_ones(ins.path_shape)
        if ins.has_weight:
            weight = w[..., begin : begin + count].reshape(*w.shape[:-1], *ins.path_shape)
        begin += count
        part = _instruction(problem, ins, x, y, weight)
        outputs[ins.i_out] = outputs[ins.i_out] + ins.path_weight * part
    if problem.layout == "ir_mul":
        outputs = [z.transpose(1, 2) for z in outputs]
    return torch.cat([z.flatten(1) for z in outputs], dim=1)


def _instruction(problem: Any, ins: Any, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    slot1, slot2, slot3 = problem.irreps_in1[ins.i_in1], problem.irreps_in2[ins.i_in2], problem.irreps_out[ins.i_out]
    c = torch.tensor(clebsch_gordan(slot1.ir.l, slot2.ir.l, slot3.ir.l))
    xs = _slot(problem, x, problem.slices1[ins.i_in1], slot1)
    ys = _slot(problem, y, problem.slices2[ins.i_in2], slot2)
    mode = ins.connection_mode
    if mode in ("uvu<v", "u<vw"):
        first, second = torch.triu_indices(slot1.mul, slot1.mul, 1)
        xs, ys, mode = xs[:, first], ys[:, second], {"uvu<v": "uuu", "u<vw": "uuw"}[mode]
    paired = mode.startswith("uu")
    terms = torch.einsum("bui,buj,ijk->buk" if paired else "bui,bvj,ijk->buvk", xs, ys, c)
    batch = "" if w.dim() == len(ins.path_shape) else "b"
    rule = {
        "uvu": f"buvk,{batch}uv->buk",
        "uvw": f"buvk,{batch}uvw->bwk",
        "uvv": f"buvk,{batch}uv->bvk",
        "uvuv": f"buvk,{batch}uv->buvk",
        "uuu": f"buk,{batch}u->buk",
        "uuw": f"buk,{batch}uw->bwk",
    }[mode]
    return torch.einsum(rule, terms, w).reshape(len(x), slot3.mul, slot3.ir.dim)


def _slot(problem: Any, x: torch.Tensor, part: slice, mul_ir: Any) -> torch.Tensor:
    """[B, mul, dim] of one slot, whatever the layout."""
    values = x[:, part]
    if problem.layout == "ir_mul":
        return values.reshape(x.shape[0], mul_ir.ir.dim, mul_ir.mul).transpose(1, 2)
    return values.reshape(x.shape[0], mul_ir.mul, mul_ir.ir.dim)


def forward(problem: Any, x: Array, y: Array, w: Array) -> Array:
    """z [B, d3]."""
    return _values(product(problem, *_tensors(x, y, w)))


def backward(problem: Any, x: Array, y: Array, w: Array, gz: Array) -> tuple[Array, ...]:
    """(gx, gy, gw): gradients of <gz, z>."""
    return _backward(lambda *t: product(problem, *t), x, y, w, gz)


def double_backward(problem: Any, x: Array, y: Array, w: Array, gz: Array, *gg: Array) -> tuple[Array, ...]:
    """(gx, gy, gw, ggz): gradients of <ggx, gx> + <ggy, gy> + <ggw, gw> with respect to x, y, w and gz."""
    return _double_backward(lambda *t: product(problem, *t), x, y, w, gz, gg)


def conv_forward(problem: Any, x: Array, y: Array, w: Array, graph: Any) -> Array:
    """z [V, d3] of x [V, d1] and y [E, d2]: messages of edges from graph.cols, summed at graph.rows."""
    return _values(_convolution(problem, graph)(*_tensors(x, y, w)))


def conv_backward(problem: Any, x: Array, y: Array, w: Array, gz: Array, graph: Any) -> tuple[Array, ...]:
    return _backward(_convolution(problem, graph), x, y, w, gz)


def conv_double_backward(
    problem: Any, x: Array, y: Array, w: Array, gz: Array, *gg: Array, graph: Any
) -> tuple[Array, ...]:
    return _double_backward(_convolution(problem, graph), x, y, w, gz, gg)


def error(actual: Array, expected: Array) -> float:
    """Largest deviation over the largest value expected; the largest value found where nothing is expected."""
    if actual.shape != expected.shape:
        raise AssertionError(f"expected shape {expected.shape}, found {actual.shape}")
    if not expected.size:
        return 0.0
    scale = float(np.abs(expected).max()) or 1.0
    return float(np.abs(np.asarray(actual, np.float64) - expected).max()) / scale


def arrays(problem: Any, batch: int, seed: int = 0, dtype: Any = np.float64) -> tuple[Array, Array, Array, Array]:
    """Random x, y, w and gz of a batch, normally distributed."""
    rng = np.random.default_rng(seed)
    d1, d2, d3 = problem.dims
    lead = () if problem.shared_weights else (batch,)
    shapes = ((batch, d1), (batch, d2), (*lead, problem.weight_numel), (batch, d3))
    x, y, w, gz = (rng.standard_normal(shape).astype(dtype) for shape in shapes)
    return x, y, w, gz


@contextmanager
def constants_in_fp64() -> Iterator[None]:
    """e3nn makes its constants in torch's default type."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def _convolution(problem: Any, graph: Any) -> Apply:
    rows, cols = (torch.as_tensor(np.array(index, np.int64)) for index in (graph.rows, graph.cols))

    def apply(x: torch.Tensor, y: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        messages = product(problem, x[cols], y, w)
        return messages.new_zeros(graph.n_nodes, messages.shape[1]).index_add(0, rows, messages)

    return apply


def _backward(apply: Apply, x: Array, y: Array, w: Array, gz: Array) -> tuple[Array, ...]:
    inputs = _tensors(x, y, w, leaves=True)
    return tuple(map(_values, _gradients(apply(*inputs), inputs, _tensors(gz))))


def _double_backward(apply: Apply, x: Array, y: Array, w: Array, gz: Array, gg: Sequence[Array]) -> tuple[Array, ...]:
    inputs, (cotangent,) = _tensors(x, y, w, leaves=True), _tensors(gz, leaves=True)
    first = _gradients(apply(*inputs), inputs, [cotangent], keep=True)
    total = sum((g * weight).sum() for g, weight in zip(first, _tensors(*gg), strict=True))
    if not isinstance(total, torch.Tensor) or not total.requires_grad:
        return tuple(np.zeros(a.shape) for a in (x, y, w, gz))
    return tuple(map(_values, _gradients(total, [*inputs, cotangent], None)))


def _gradients(value: torch.Tensor, inputs: Sequence[torch.Tensor], cotangents: Any, keep: bool = False) -> Any:
    if not value.requires_grad:
        return tuple(torch.zeros_like(t) for t in inputs)
    return torch.autograd.grad(value, inputs, cotangents, create_graph=keep, materialize_grads=True)


def _tensors(*arrays: Array, leaves: bool = False) -> list[torch.Tensor]:
    return [torch.tensor(np.asarray(a, np.float64), requires_grad=leaves) for a in arrays]


def _values(tensor: torch.Tensor) -> Array:
    return tensor.detach().numpy()
