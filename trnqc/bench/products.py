"""Tensor products of irreps with their gradients, beside e3nn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnqc.bench.case import OURS, Case, Work

# The first layer of a MACE model: features, filter, output.
MACE = ("128x0e+128x1o", "1x0e+1x1o+1x2e+1x3o", "128x0e+128x1o+128x1o+128x0e+128x2e+128x1o+128x2e")
PATHS = [
    (0, 0, 0, "uvu", True),
    (0, 1, 1, "uvu", True),
    (1, 0, 2, "uvu", True),
    (1, 1, 3, "uvu", True),
    (0, 2, 4, "uvu", True),
    (1, 2, 5, "uvu", True),
    (1, 1, 6, "uvu", True),
]
FULL = ("10x1o+10x1e+48x0e+48x0o", "1x0e+1x1o", "10x1o+10x1e+48x0e+48x0o")
ROWS = 2000


def _tensors(product: Any, rows: int) -> list[Any]:
    """x, y and weights of a product, fp32, the same for both contestants."""
    import torch

    seed = torch.Generator().manual_seed(1)
    sizes = (product.irreps_in1.dim, product.irreps_in2.dim, product.weight_numel)
    return [torch.randn(rows, size, generator=seed).requires_grad_() for size in sizes]


def _step(forward: Callable[[], Any], operands: list[Any]) -> Work:
    """A product and its gradients with respect to all operands, of which the first is returned."""
    import torch

    def work() -> Any:
        z = forward()
        return torch.autograd.grad(z.square().sum(), operands)[0]

    return work


def _uvu(who: str) -> Callable[[], Work]:
    def prepare() -> Work:
        from e3nn import o3

        from trnqc import cg

        options = {"shared_weights": False, "internal_weights": False}
        theirs = o3.TensorProduct(*MACE, PATHS, **options)
        operands = _tensors(theirs, ROWS)
        product = cg.TensorProduct(*MACE, PATHS, **options) if who == OURS else theirs
        return _step(lambda: product(*operands), operands)

    return prepare


def _fully_connected(who: str) -> Callable[[], Work]:
    def prepare() -> Work:
        from e3nn import o3

        from trnqc import cg

        theirs = o3.FullyConnectedTensorProduct(*FULL, shared_weights=False, internal_weights=False)
        operands = _tensors(theirs, ROWS // 4)
        product = (
            cg.FullyConnectedTensorProduct(*FULL, shared_weights=False, internal_weights=False)
            if who == OURS
            else theirs
        )
        return _step(lambda: product(*operands), operands)

    return prepare


def _case(name: str, what: str, job: Callable[[str], Callable[[], Work]]) -> Case:
    both = {who: job(who) for who in ("e3nn", OURS)}
    # Single precision: sums of some thousand rounded terms.
    return Case(name, "Equivariant networks", what, "e3nn", ("torch", "e3nn"), both, 1e-4)


CASES = (
    _case("tensor-product", f"product uvu of a MACE layer and its gradients, {ROWS} rows, fp32", _uvu),
    _case("fully-connected", f"product uvw of DiffDock and its gradients, {ROWS // 4} rows, fp32", _fully_connected),
)
