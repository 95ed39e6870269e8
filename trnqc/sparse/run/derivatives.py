"""Networks over tensors of PyTorch. Every derivative of a network is a network as well, and is planned and run as one.

    result[out] = sum prod X_s     ->    gradient of X_t [its indices] = sum G[out] prod of the other X_s

If X_t is sparse, its gradient is computed at its stored coordinates only. For a network with one sparse operand, the
derivatives are MTTKRPs (by dense operands) and an SDDMM (by the sparse operand). A batch of ``torch.func.vmap`` is one
more index of the network.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.autograd import forward_ad

from trnqc.arrays import is_tensor, untransformed
from trnqc.errors import OperandError
from trnqc.expression.subscripts import is_index
from trnqc.sparse.network.network import Indices
from trnqc.sparse.run.operands import NetworkOperands, same
from trnqc.sparse.tensors.convert import as_tensor, example
from trnqc.sparse.tensors.patterns import Pattern, pattern_of
from trnqc.sparse.tensors.storage import SparseTensor, from_dense
from trnqc.sparse.tensors.torch_values import assembled, by_values, places, values_of

if TYPE_CHECKING:
    from trnqc.sparse.run.plan import Plan

# Seconds for the search of the loops of one derivative. It is short because a training step needs several derivatives.
SEARCH = 0.25


@dataclass(frozen=True, eq=False)
class Slot:
    """An operand or the result of a network.

    The variables are the values at the coordinates `pattern` if it is sparse; `constant` is an operand without
    derivative.
    """

    labels: Indices
    pattern: Pattern | None = None
    constant: SparseTensor | None = None


@dataclass(frozen=True, eq=False)
class NetworkJob:
    """A network over tensors of PyTorch, or a derivative of one.

    `planner`, `trnqc.sparse.plan`, plans derivatives, which `plans` keeps by network once needed. `plan` and `packed`
    are the caller's; `ready` has the values of a sparse result, which were computed with its pattern.
    """

    slots: tuple[Slot, ...]
    out: Slot
    extents: dict[str, int]
    dtype: torch.dtype
    planner: Callable[..., Plan]
    plans: dict[Any, Plan]
    threads: int
    plan: Plan | None = None
    packed: NetworkOperands | None = None
    ready: np.ndarray | None = None

    @property
    def variables(self) -> tuple[int, ...]:
        """Numbers of the slots whose values are passed in every call."""
        return tuple(t for t, slot in enumerate(self.slots) if slot.constant is None)

    def numbers(self, tensors: Sequence[torch.Tensor]) -> np.ndarray:
        """Compute the result in float64: an array, or the values at the pattern of the result."""
        if self.ready is not None:
            return self.ready
        if self.plan is not None:
            packed = self.packed or self.plan.operands.exchanged(self._shared(tensors))
            return _dense(self.plan.computed(packed, self.threads))
        return self._planned(self._operands(tensors))

    def _operands(self, tensors: Sequence[torch.Tensor]) -> list[SparseTensor]:
        remaining = iter(tensors)
        return [slot.constant or _packed(slot, next(remaining)) for slot in self.slots]

    def _shared(self, tensors: Sequence[torch.Tensor]) -> list[SparseTensor]:
        """Return the operands, one object for all operands of the plan that are the same tensor."""
        assert self.plan is not None
        operands = self._operands(tensors)
        return [operands[first] for first in self.plan.network.same]

    def _planned(self, operands: list[SparseTensor]) -> np.ndarray:
        labels = [slot.labels for slot in self.slots]
        pattern = self.out.pattern
        if pattern is not None and not any(s.pattern is pattern and s.labels == self.out.labels for s in self.slots):
            operands, labels = [*operands, pattern.map], [*labels, self.out.labels]
        text = ",".join(map("".join, labels)) + "->" + "".join(self.out.labels)
        key = (text, tuple(x.shape for x in operands), same(operands))
        if key not in self.plans:
            alike = [x if slot.constant else _alike(x) for slot, x in zip(self.slots, operands)]
            alike += operands[len(self.slots) :]
            self.plans[key] = self.planner(
                text, *alike, out="dense" if pattern is None else "sparse", time_limit=SEARCH
            )
        result = self.plans[key].run(*operands, threads=self.threads)
        return _dense(result) if pattern is None else pattern.sampled(result)

    def without(self, slot: int, dtype: torch.dtype) -> NetworkJob:
        """Return the network of the derivative by a slot. Its first operand is the derivative by the result."""
        mine = self.slots[slot]
        others = (self.out, *(s for t, s in enumerate(self.slots) if t != slot))
        shared = {x for s in others for x in s.labels}
        # The derivative does not depend on indices that only this operand has, over which the network sums.
        constant = () if mine.pattern is not None else tuple(x for x in mine.labels if x not in shared)
        ones = tuple(Slot((x,), None, from_dense(np.ones(self.extents[x]))) for x in constant)
        slots, out = (*others, *ones), Slot(mine.labels, mine.pattern)
        return replace(self, slots=slots, out=out, dtype=dtype, plan=None, packed=None, ready=None)

    def batched(self, count: int, which: Sequence[bool]) -> NetworkJob:
        """Return the network with one more index, which the result and the variables chosen by `which` have."""
        letter = next(x for x in map(chr, range(ord("a"), 0x110000)) if is_index(x) and x not in self.extents)

        def widened(slot: Slot) -> Slot:
            pattern = slot.pattern and slot.pattern.batched(count)
            return Slot((letter, *slot.labels), pattern)

        chosen = {t for t, batched in zip(self.variables, which) if batched}
        slots = tuple(widened(s) if t in chosen else s for t, s in enumerate(self.slots))
        extents = self.extents | {letter: count}
        return replace(self, slots=slots, out=widened(self.out), extents=extents, plan=None, packed=None, ready=None)


def differentiable(plan: Plan, operands: Sequence[Any], packed: NetworkOperands | None, threads: int) -> torch.Tensor:
    """Compute the result of a plan as a tensor of PyTorch with its derivatives.

    At least one operand is a tensor of PyTorch; `packed` are the same operands if they are packed already. Raises
    OperandError for tensors on several devices, or as `Plan.run` does.
    """
    devices = {x.device for x in operands if is_tensor(x)}
    if len(devices) > 1:
        raise OperandError(f"all tensors must be on one device; found {', '.join(sorted(map(str, devices)))}")
    packed = packed or plan.exchanged(operands)
    parts = [_slot(labels, x, tensor) for labels, x, tensor in zip(plan.network.inputs, operands, packed.tensors)]
    slots, tensors = tuple(slot for slot, _ in parts), [x for _, x in parts if x is not None]
    assert plan.planner is not None
    out, extents, dtype = Slot(plan.network.output), plan.network.extents, result_type(operands)
    job = NetworkJob(slots, out, extents, dtype, plan.planner, plan.derivatives, threads)
    (device,) = devices
    if plan.dense or not plan.network.output:
        return (
            NetworkFunction.apply(replace(job, plan=plan, packed=packed), *tensors)  # type: ignore[no-untyped-call]
            if tensors
            else _constant(job, plan, packed, device)
        )
    result = plan.computed(packed, threads)
    assert isinstance(result, SparseTensor)
    pattern, ready = pattern_of(result)
    job = replace(job, out=Slot(job.out.labels, pattern), ready=ready)
    values = NetworkFunction.apply(job, *tensors) if tensors else torch.as_tensor(ready, dtype=job.dtype, device=device)  # type: ignore[no-untyped-call]
    return assembled(values, torch.as_tensor(pattern.coordinates, device=device), pattern.shape)


def _constant(job: NetworkJob, plan: Plan, packed: NetworkOperands, device: torch.device) -> torch.Tensor:
    return torch.as_tensor(_dense(plan.computed(packed, job.threads)), dtype=job.dtype, device=device)


def _slot(labels: Indices, operand: Any, tensor: SparseTensor) -> tuple[Slot, torch.Tensor | None]:
    """Return the slot of an operand, and the variable of its derivatives: the tensor, or the values that it stores."""
    if not is_tensor(operand):
        return Slot(labels, None, tensor), None
    if operand.layout is torch.strided:
        return Slot(labels), operand
    if not operand.requires_grad:
        return Slot(labels, None, tensor), None
    values = values_of(operand)
    with untransformed():
        indices = places(by_values(example(operand).detach())).cpu().numpy()
    return Slot(labels, Pattern(tuple(operand.shape), indices)), values


class NetworkFunction(torch.autograd.Function):
    """The autograd function of a job: its variables -> the result, or the values of a sparse result at its pattern."""

    @staticmethod
    def forward(job: NetworkJob, *tensors: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(job.numbers(tensors)).to(device=tensors[0].device, dtype=job.dtype, copy=True)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.job, *tensors = inputs
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(*tensors)
        ctx.save_for_forward(*tensors)

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor | None) -> tuple[torch.Tensor | None, ...]:
        tensors, job = ctx.saved_tensors, ctx.job
        gradients: list[torch.Tensor | None] = [None] * len(tensors)
        for n, slot in enumerate(job.variables):
            if gradient is not None and ctx.needs_input_grad[n + 1]:
                others = [x for m, x in enumerate(tensors) if m != n]
                gradients[n] = NetworkFunction.apply(job.without(slot, tensors[n].dtype), gradient, *others)  # type: ignore[no-untyped-call]
        return None, *gradients

    @staticmethod
    def jvp(ctx: Any, _: None, *tangents: torch.Tensor | None) -> torch.Tensor:
        # The caller's plan cannot be used: it may rely on operands that are the same tensor, or on 0/1 maps.
        job = replace(ctx.job, plan=None, packed=None, ready=None)
        # PyTorch calls this function with forward mode disabled, so that tangents of an outer level would be zero.
        # Enable it, and remove the tangents of this level from the saved tensors.
        with forward_ad._set_fwd_grad_enabled(True):
            tensors = [forward_ad.unpack_dual(x).primal for x in ctx.saved_tensors]
            terms = [
                NetworkFunction.apply(job, *(tangent if m == n else x for m, x in enumerate(tensors)))  # type: ignore[no-untyped-call]
                for n, tangent in enumerate(tangents)
                if tangent is not None
            ]
            return reduce(torch.add, terms)

    @staticmethod
    def vmap(info: Any, in_dims: tuple[Any, ...], job: NetworkJob, *tensors: torch.Tensor) -> tuple[torch.Tensor, int]:
        if job.ready is not None:
            raise OperandError("a sparse result has no batches: under torch.func.vmap ask for out='dense'")
        dims, count = in_dims[1:], info.batch_size
        first = [x if dim is None else x.movedim(dim, 0) for x, dim in zip(tensors, dims)]
        patterns = [job.slots[t].pattern for t in job.variables]
        batch_first = [
            x if dim is None or pattern is None else x.reshape(-1) for x, dim, pattern in zip(first, dims, patterns)
        ]
        values = NetworkFunction.apply(job.batched(count, [dim is not None for dim in dims]), *batch_first)  # type: ignore[no-untyped-call]
        return values if job.out.pattern is None else values.reshape(count, -1), 0


def _packed(slot: Slot, tensor: torch.Tensor) -> SparseTensor:
    if slot.pattern is None:
        return as_tensor(tensor)
    return slot.pattern.tensor(tensor.detach().cpu().to(torch.float64).numpy())


def _alike(tensor: SparseTensor) -> SparseTensor:
    """Return a tensor of the same levels without zeros and ones, so that a kept plan does not rely on them."""
    return replace(tensor, values=np.full(tensor.size, 0.5), _counts={})


def _dense(result: SparseTensor | np.ndarray) -> np.ndarray:
    return result.to_dense() if isinstance(result, SparseTensor) else result


def result_type(operands: Sequence[Any]) -> torch.dtype:
    """Return the common real or complex type of operands, some of which are tensors of PyTorch. 0/1 maps have none."""
    kinds = [_kind(x) for x in operands if not isinstance(x, SparseTensor) or x.values is not None]
    widest = reduce(torch.promote_types, kinds)
    return widest if widest.is_floating_point or widest.is_complex else torch.float64


def _kind(operand: Any) -> torch.dtype:
    if is_tensor(operand):
        return operand.dtype
    return torch.from_numpy(np.empty(0, operand.dtype.newbyteorder("="))).dtype
