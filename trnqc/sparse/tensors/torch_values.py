"""The values of PyTorch's sparse tensors, and sparse tensors from values, with derivatives of every order.

PyTorch's own ``values`` and ``sparse_coo_tensor`` drop second derivatives for some layouts. Here, `Values` and
`Assembled` are the derivatives of one another.
"""

from __future__ import annotations

from typing import Any

import torch

from trnqc.arrays import untransformed
from trnqc.errors import OperandError
from trnqc.sparse.network.views import OperandView
from trnqc.sparse.tensors.convert import example

COMPRESSED = {torch.sparse_csr: torch.sparse_csr_tensor, torch.sparse_csc: torch.sparse_csc_tensor}


def values_of(tensor: torch.Tensor) -> torch.Tensor:
    """Return the values that a sparse tensor stores, in the order of ``places(by_values(tensor))``."""
    return Values.apply(by_values(tensor))  # type: ignore[no-untyped-call]


def by_values(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor with one value for each coordinate.

    Blocked and batched layouts are converted to COO, and values at equal coordinates are added.
    """
    if tensor.layout in COMPRESSED and tensor.dim() == 2:
        return tensor
    return (tensor if tensor.layout is torch.sparse_coo else tensor.to_sparse_coo()).coalesce()


def places(data: torch.Tensor) -> torch.Tensor:
    """Return the coordinates [modes, n] of the values of a COO, CSR or CSC tensor, in the order of the values."""
    if data.layout is torch.sparse_coo:
        return data.coalesce().indices()
    rows = data.layout is torch.sparse_csr
    starts, others = (data.crow_indices(), data.col_indices()) if rows else (data.ccol_indices(), data.row_indices())
    mine = torch.arange(len(starts) - 1, device=starts.device).repeat_interleave(starts.diff())
    return torch.stack([mine, others] if rows else [others, mine])


def sorted_elements(tensor: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the values of a sparse tensor, with their derivatives, and indices [modes, n] in increasing order."""
    values = values_of(tensor)
    with untransformed():
        indices = places(by_values(example(tensor).detach()))
        order = _keys(indices, tuple(tensor.shape)).argsort() if tensor.layout is torch.sparse_csc else None
    return (values, indices) if order is None else (values[order], indices[:, order])


def viewed_values(tensor: torch.Tensor, view: OperandView) -> torch.Tensor:
    """Return a view of a sparse tensor, such as a diagonal, with its derivatives: a COO tensor, or a number."""
    values, indices = sorted_elements(tensor)
    kept = torch.ones_like(indices[0], dtype=torch.bool)
    for axis, mode in enumerate(view.modes):
        if mode is not None:
            kept &= indices[axis] == indices[view.axes[mode]]
    if not view.axes:
        return values[kept].sum()
    shape = tuple(view.shape[axis] for axis in view.axes)
    return assembled(values[kept], indices[list(view.axes)][:, kept], shape)


def assembled(values: torch.Tensor, indices: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
    """Return the coalesced COO tensor of values at sorted, distinct indices."""
    return Assembled.apply(values, torch.sparse_coo_tensor(indices, values.detach(), shape, is_coalesced=True))  # type: ignore[no-untyped-call]


class Values(torch.autograd.Function):
    """The autograd function from a COO, CSR or CSC tensor to its values."""

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
    """The autograd function from values, and a tensor `like`, to the tensor with its coordinates and these values."""

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
    """Return the elements of a tensor of any layout at the coordinates of `like`, in the order of its values."""
    indices = places(like)
    if tensor.layout is torch.strided:
        return tensor[tuple(indices)]
    tensor = tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor
    values, stored_at = Values.apply(tensor), places(tensor.detach())  # type: ignore[no-untyped-call]
    if stored_at.shape == indices.shape and bool((stored_at == indices).all()):
        return values
    keys, wanted = (_keys(x, like.shape) for x in (stored_at, indices))
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
