"""Sparse tensors of PyTorch and the values that they store, differentiable any number of times.

PyTorch's own ``values`` and ``sparse_coo_tensor`` drop second derivatives of some layouts. `Values` and `Assembled` are
each other's derivatives.
"""

from __future__ import annotations

from typing import Any

import torch

from trnqc.errors import OperandError

COMPRESSED = {torch.sparse_csr: torch.sparse_csr_tensor, torch.sparse_csc: torch.sparse_csc_tensor}


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """The values that a sparse tensor stores, in the order of ``places(by_values(tensor))``."""
    return Values.apply(by_values(tensor))  # type: ignore[no-untyped-call]


def by_values(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor with one value for each coordinate. Blocked and batched layouts become COO; equal ones are added."""
    if tensor.layout in COMPRESSED and tensor.dim() == 2:
        return tensor
    return (tensor if tensor.layout is torch.sparse_coo else tensor.to_sparse_coo()).coalesce()


def places(data: torch.Tensor) -> torch.Tensor:
    """Coordinates [modes, n] of the values of a COO, CSR or CSC tensor, in their order."""
    if data.layout is torch.sparse_coo:
        return data.coalesce().indices()
    rows = data.layout is torch.sparse_csr
    starts, others = (data.crow_indices(), data.col_indices()) if rows else (data.ccol_indices(), data.row_indices())
    mine = torch.arange(len(starts) - 1, device=starts.device).repeat_interleave(starts.diff())
    return torch.stack([mine, others] if rows else [others, mine])


def assembled(values: torch.Tensor, indices: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """The coalesced COO tensor of values at sorted, distinct indices."""
    return Assembled.apply(values, torch.sparse_coo_tensor(indices, values.detach(), shape, is_coalesced=True))  # type: ignore[no-untyped-call]


class Values(torch.autograd.Function):
    """A COO, CSR or CSC tensor -> its values."""

    @staticmethod
    def forward(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.values().clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        ctx.like = inputs[0].detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        return Assembled.apply(gradient, ctx.like)  # type: ignore[no-untyped-call]


class Assembled(torch.autograd.Function):
    """Values and a tensor -> the tensor with the coordinates of that and these values."""

    @staticmethod
    def forward(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
        if like.layout is torch.sparse_coo:
            return torch.sparse_coo_tensor(like.indices(), values, like.shape, is_coalesced=True)
        lines = (
            (like.crow_indices(), like.col_indices())
            if like.layout is torch.sparse_csr
            else (like.ccol_indices(), like.row_indices())
        )
        return COMPRESSED[like.layout](*lines, values, like.shape)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[torch.Tensor, torch.Tensor], output: torch.Tensor) -> None:
        ctx.like = inputs[1].detach()

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None]:
        return at_places(gradient, ctx.like), None

    @staticmethod
    def jvp(ctx: Any, values: torch.Tensor, like: None) -> torch.Tensor:
        raise OperandError("PyTorch has no forward-mode derivatives of sparse tensors: ask for out='dense'")


def at_places(tensor: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """The elements of a tensor of any layout at the coordinates of `like`, in the order of its values."""
    indices = places(like)
    if tensor.layout is torch.strided:
        return tensor[tuple(indices)]
    tensor = tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor
    values, there = Values.apply(tensor), places(tensor.detach())  # type: ignore[no-untyped-call]
    if there.shape == indices.shape and bool((there == indices).all()):
        return values
    keys, wanted = (_keys(x, like.shape) for x in (there, indices))
    order = keys.argsort()
    at = torch.searchsorted(keys[order], wanted).clamp(max=max(len(keys) - 1, 0))
    if not len(keys):
        return values.new_zeros(len(wanted))
    stored = keys[order][at] == wanted
    return torch.where(stored, values[order[at]], values.new_zeros(()))


def _keys(indices: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    keys = torch.zeros_like(indices[0])
    for row, extent in zip(indices, shape):
        keys = keys * extent + row
    return keys
