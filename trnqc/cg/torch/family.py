"""Operators of torch.library that belong together, registered with derivatives of every order and with vmap.

See `transforms` for the autograd functions that take their place inside the transforms of torch.func.
"""

# No `from __future__ import annotations`: torch reads schemas from annotations as objects.

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from trnqc.cg.torch.transforms import active, function_of


class Family(ABC):
    """Operators by name.

    Parameters
    ----------
    prefix : str
        Start of the names by which torch.library knows them.
    schemas : mapping of str to str
        The arguments and results of each operator.
    """

    # Whether gradients of results that nothing depends on are zeros rather than None.
    materialized = True

    def __init__(self, prefix: str, schemas: Mapping[str, str]) -> None:
        self.operators = {name: self._registered(prefix, name, schema) for name, schema in schemas.items()}
        self.functions = {name: function_of(self, name) for name in schemas}

    def apply(self, name: str, *args: Any) -> Any:
        """Call an operator, with reverse-mode and forward-mode derivatives of every order."""
        return self.functions[name].apply(*args) if active() else self.operators[name](*args)

    @abstractmethod
    def real(self, name: str, args: Sequence[Any]) -> Any:
        """Return the results of an operator."""

    @abstractmethod
    def fake(self, name: str, args: Sequence[Any]) -> Any:
        """Return results without data, after the same checks as `real`."""

    @abstractmethod
    def keep(self, name: str, ctx: Any, inputs: tuple[Any, ...]) -> Sequence[Tensor]:
        """Save the inputs for the derivatives and return the inputs that are tensors."""

    @abstractmethod
    def gradients(self, name: str, saved: Sequence[Tensor], options: Any, grad_outputs: Sequence[Any]) -> Any:
        """Return the gradients of all inputs that `keep` saved, with None for those that have none."""

    @abstractmethod
    def tangents(self, name: str, saved: Sequence[Tensor], options: Any, tangents: Sequence[Any]) -> Any:
        """Return the tangents of the results from the tangents of the inputs, which are None for a constant input."""

    @abstractmethod
    def batched(self, call: Any, name: str, count: int, dims: Sequence[Any], args: Sequence[Any]) -> Any:
        """Apply vmap to `call`, and return its results and their batch dimensions."""

    def _registered(self, prefix: str, name: str, schema: str) -> Any:
        def real(*args: Any) -> Any:
            return self.real(name, args)

        def fake(*args: Any) -> Any:
            return self.fake(name, args)

        def keep(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
            self.keep(name, ctx, inputs)
            ctx.set_materialize_grads(self.materialized)

        def derivative(ctx: Any, *grad_outputs: Tensor) -> tuple[Any, ...]:
            # Read `saved_tensors` only once: under checkpointing they are recomputed and can be read a single time.
            return self.gradients(name, ctx.saved_tensors, ctx.options, grad_outputs)

        def over_a_batch(info: Any, in_dims: Sequence[int | None], *args: Any) -> tuple[Any, Any]:
            return self.batched(self.operators[name], name, info.batch_size, in_dims, args)

        operator = torch.library.custom_op(f"trnqc::{prefix}_{name}", real, mutates_args=(), schema=schema)
        operator.register_fake(fake)
        operator.register_autograd(derivative, setup_context=keep)
        operator.register_vmap(over_a_batch)
        for device in ("cpu", "cuda"):
            operator.register_autocast(device, torch.float32)
        return operator
