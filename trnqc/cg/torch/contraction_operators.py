"""Symmetric contractions as operators of torch.library: ``trnqc::cg_contraction_value`` and ``.._gradient``.

``value`` is the derivative of B along directions h1, ..., hn, and ``gradient`` returns the gradients of <gb, value>
with respect to x and the coefficients c. Without directions these are B and its gradients. B is linear in c, and
derivatives along directions do not depend on their order, so derivatives of every order are composed of these two. The
directions are stacked in one operand, [n, nodes, components, channels]. Where x, the directions and gb are stored in
half precision, c and its gradient are float32. See `CONTRACTION`.
"""

# No `from __future__ import annotations`, as in operators.py.

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from trnqc.cg.problem.contraction import ContractionProblem, problem_of_text
from trnqc.cg.torch.contraction_derivatives import ContractionCalls
from trnqc.cg.torch.engines import contraction_engine_of, cuda_contraction_engine, no_engine
from trnqc.cg.torch.family import Family
from trnqc.cg.torch.operators import as_array
from trnqc.cg.torch.storage import COMPUTED, HALVES, all_widened, check_type, widened
from trnqc.cg.torch.transforms import active, refuse_dual_level
from trnqc.errors import OperandError

# The operands of each operator that can be differentiated.
OPERANDS = {"value": ("c", "x", "along"), "gradient": ("c", "x", "along", "gb")}


def check(problem: ContractionProblem, tensors: Sequence[Tensor], elements: Tensor) -> None:
    """Check the types, devices and shapes of the operands c, x, along and gb.

    Raises OperandError, or UnsupportedPrecision for other types than float16, bfloat16, float32 and float64.
    """
    (dim_x, dim_b), channels = problem.dims, problem.channels
    x, nodes = tensors[1], tensors[1].shape[0]
    check_type(x)
    shapes: dict[str, tuple[Any, ...]] = {
        "c": (tensors[0].shape[0], len(problem.terms), channels),
        "x": (nodes, dim_x, channels),
        "along": (tensors[2].shape[0], nodes, dim_x, channels),
        "gb": (nodes, dim_b, channels),
    }
    for name, tensor in zip(OPERANDS["gradient"], tensors):
        dtype = torch.float32 if name == "c" and x.dtype in HALVES else x.dtype
        if tensor.layout != torch.strided or tensor.dtype != dtype or tensor.device != x.device:
            raise OperandError(
                f"{name}: expected a dense tensor of {dtype} on {x.device}, where x lies, found {tensor.dtype} on "
                f"{tensor.device} ({tensor.layout})"
            )
        if tuple(tensor.shape) != shapes[name]:
            raise OperandError(f"{name}: expected shape {list(shapes[name])}, found {list(tensor.shape)}")
    if elements.dtype != torch.int64 or elements.dim() != 1 or elements.shape[0] != nodes:
        raise OperandError(
            f"elements: expected torch.int64 [{nodes}], one for each node, found {elements.dtype} "
            f"{list(elements.shape)}"
        )
    if elements.device != x.device:
        raise OperandError(f"elements: expected device {x.device}, where x lies, found {elements.device}")


def _value(c: Tensor, x: Tensor, along: Tensor, elements: Tensor, problem: str) -> Tensor:
    engine = _engine(problem, (c, x, along), elements)
    return _as_tensor(engine.value(*_arrays((c, x, elements, *along)))).to(x.dtype)


def _gradient(
    c: Tensor, x: Tensor, along: Tensor, gb: Tensor, elements: Tensor, problem: str, of_c: bool
) -> tuple[Tensor, Tensor]:
    engine = _engine(problem, (c, x, along, gb), elements)
    arrays = _arrays((c, x, elements, gb, *along))
    if not of_c:
        return _as_tensor(engine.gradient(*arrays)).to(x.dtype), c.new_empty(0)
    gx, gc = engine.gradients(*arrays)
    return _as_tensor(gx).to(x.dtype), _as_tensor(gc)


def _engine(problem: str, tensors: Sequence[Tensor], elements: Tensor) -> Any:
    refuse_dual_level()
    check(problem_of_text(problem), tensors, elements)
    device, dtype = tensors[1].device, COMPUTED[widened(tensors[1]).dtype]
    if device.type == "cuda":
        return cuda_contraction_engine(problem, dtype, device.index)
    if device.type != "cpu":
        raise no_engine(str(device))
    return contraction_engine_of(problem, dtype, torch.get_num_threads())


def _arrays(tensors: Sequence[Tensor]) -> list[Any]:
    """Return operands in the type of the computation; tensors on the CPU as arrays that share their memory."""
    operands = all_widened(tensors)
    return [as_array(t) for t in operands] if operands[0].device.type == "cpu" else operands


def _as_tensor(result: Any) -> Tensor:
    return result if isinstance(result, Tensor) else torch.from_numpy(result)


def _fake_value(c: Tensor, x: Tensor, along: Tensor, elements: Tensor, problem: str) -> Tensor:
    refuse_dual_level()
    check(problem_of_text(problem), (c, x, along), elements)
    return x.new_empty((x.shape[0], problem_of_text(problem).dims[1], x.shape[2]))


def _fake_gradient(
    c: Tensor, x: Tensor, along: Tensor, gb: Tensor, elements: Tensor, problem: str, of_c: bool
) -> tuple[Tensor, Tensor]:
    refuse_dual_level()
    check(problem_of_text(problem), (c, x, along, gb), elements)
    return x.new_empty(x.shape), c.new_empty(c.shape if of_c else (0,))


class ContractionFamily(Family):
    """Both operators with their derivatives.

    ``value(c, x, along, elements, problem)`` returns B [nodes, M, channels], and
    ``gradient(c, x, along, gb, elements, problem, of_c)`` returns gx of the shape of x, and gc of the shape of c, or
    without numbers if `of_c` is False.
    """

    materialized = False

    def __init__(self) -> None:
        rest = "Tensor elements, str problem"
        value = f"(Tensor c, Tensor x, Tensor along, {rest}) -> Tensor"
        gradient = f"(Tensor c, Tensor x, Tensor along, Tensor gb, {rest}, bool of_c) -> (Tensor, Tensor)"
        super().__init__("cg_contraction", {"value": value, "gradient": gradient})

    def real(self, name: str, args: Sequence[Any]) -> Any:
        return _value(*args) if name == "value" else _gradient(*args)

    def fake(self, name: str, args: Sequence[Any]) -> Any:
        return _fake_value(*args) if name == "value" else _fake_gradient(*args)

    def keep(self, name: str, ctx: Any, inputs: tuple[Any, ...]) -> tuple[Tensor, ...]:
        count = len(OPERANDS[name]) + 1
        # Gradients of the coefficients are computed if they, or something above them, is trained.
        ctx.options = (inputs[count], bool(inputs[0].requires_grad) or active(), *inputs[count + 1 :])
        ctx.save_for_backward(*inputs[:count])
        return inputs[:count]

    def gradients(
        self, name: str, saved: Sequence[Tensor], options: Sequence[Any], grad_outputs: Sequence[Tensor | None]
    ) -> tuple[Any, ...]:
        c, x, along, *_, elements = saved
        calls = ContractionCalls(self.apply, elements, options[0], options[1])
        if name == "value":
            (gb,) = grad_outputs
            return (*calls.gradient_of_value(c, x, along, gb), None, None) if gb is not None else (None,) * 5
        gx, gc = grad_outputs
        gc = gc if options[2] else None
        return (*calls.gradient_of_gradient(c, x, along, saved[3], gx, gc), None, None, None)

    def tangents(
        self, name: str, saved: Sequence[Tensor], options: Sequence[Any], tangents: Sequence[Tensor | None]
    ) -> Any:
        *operands, elements = saved
        along = [torch.zeros_like(t) if h is None else h for t, h in zip(operands, tangents)]
        calls = ContractionCalls(self.apply, elements, options[0], True)
        if name == "value":
            return calls.tangent_of_value(*operands, *along)
        gx, gc = calls.tangent_of_gradient(*operands, *along)
        return gx, gc if options[2] else gc.new_zeros(0)

    def batched(self, call: Any, name: str, count: int, dims: Sequence[Any], args: Sequence[Any]) -> Any:
        """Apply vmap to `call`, with the nodes of all samples in one call.

        If coefficients or their gradients differ by sample, each sample has elements of its own.
        """
        size = len(OPERANDS[name])
        c, x, along, *gb, elements = (
            t.movedim(d, 0) if d is not None else t.expand(count, *t.shape) for d, t in zip(dims, args[: size + 1])
        )
        of_c = name == "gradient" and args[-1]
        own = dims[0] is not None or of_c
        if own:
            elements = elements + c.shape[1] * torch.arange(count, device=elements.device)[:, None]
        operands = [c.flatten(0, 1) if own else args[0], x.flatten(0, 1), along.transpose(0, 1).flatten(1, 2)]
        results = call(*operands, *(t.flatten(0, 1) for t in gb), elements.flatten(), *args[size + 1 :])
        if name == "value":
            return results.unflatten(0, x.shape[:2]), 0
        gx, gc = results
        return (gx.unflatten(0, x.shape[:2]), gc.unflatten(0, c.shape[:2]) if of_c else gc.expand(count, 0)), (0, 0)


CONTRACTION = ContractionFamily()
