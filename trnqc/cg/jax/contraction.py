"""Symmetric contractions as functions of JAX arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import jax.numpy as jnp
from jax import Array

from trnqc.cg.jax.contraction_primitive import ContractionCall
from trnqc.cg.jax.storage import widened
from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem, contraction_text
from trnqc.errors import OperandError


@dataclass(frozen=True)
class SymmetricContraction:
    """Symmetric contraction of the channels of nodes with weights for each element, as a function JAX can transform.

    Parameters
    ----------
    irreps_in, irreps_out
        The irreps of x and of the results, with equal multiplicities.
    correlation : int or sequence of int
        The largest number of factors, for all slots of the results or for each.

    Raises
    ------
    IrrepsError
        If slots have different multiplicities.
    InputError
        If there is not one degree of at least 1 for each slot of the results.

    Notes
    -----
    The paths, their normalisation and the order of the weights are those of `trnqc.cg.SymmetricContraction`. The
    function supports `jax.jit`, `jax.vmap`, and forward-mode and reverse-mode derivatives in any nesting, on the CPU.
    Gradients with respect to x and to the weights are computed by one kernel each. Results have the same bits for any
    number of threads.
    """

    irreps_in: Any
    irreps_out: Any
    correlation: int | Sequence[int]

    def __post_init__(self) -> None:
        _ = self.problem

    @cached_property
    def problem(self) -> ContractionProblem:
        """The contraction."""
        return contraction_problem(self.irreps_in, self.irreps_out, self.correlation)

    @property
    def weight_numel(self) -> int:
        """The number of weights of a channel for one element."""
        return self.problem.weight_numel

    def __call__(self, x: Any, elements: Any, weight: Any) -> Array:
        """Compute the contraction.

        Parameters
        ----------
        x : array
            [nodes, channels, components], with the components of all slots one after the other.
        elements : array
            int32 or int64 [nodes], the number of the element of each node.
        weight : array
            [elements, weight_numel, channels]

        Returns
        -------
        array
            [nodes, dimension of irreps_out]; in a slot, the component is the fastest index.

        Raises
        ------
        OperandError
            For operands of wrong shapes or types. Numbers of elements out of range are found when the kernels run.
        UnsupportedPrecision
            For operands of other types than float16, bfloat16, float32 and float64.
        """
        x, elements, weight = jnp.asarray(x), jnp.asarray(elements), jnp.asarray(weight)
        dtype, x, weight = widened(x=x, weight=weight)
        self._check(x, elements, weight)
        c = jnp.einsum("tk,ekc->etc", self.problem.folding.astype(x.dtype), weight, precision="highest")
        call = ContractionCall("V", contraction_text(self.problem), weight.shape[0])
        b = call.bind(c, x.swapaxes(1, 2), elements, None, ())
        parts, first = [], 0
        for slot in self.problem.irreps_out:
            parts.append(b[:, first : first + slot.ir.dim].swapaxes(1, 2).reshape(x.shape[0], slot.dim))
            first += slot.ir.dim
        return jnp.concatenate(parts, axis=1).astype(dtype)

    def _check(self, x: Array, elements: Array, weight: Array) -> None:
        problem = self.problem
        if x.ndim != 3 or x.shape[1:] != (problem.channels, problem.dims[0]):
            raise OperandError(f"x: expected [nodes, {problem.channels}, {problem.dims[0]}], found {list(x.shape)}")
        if elements.dtype not in (jnp.int32, jnp.int64) or elements.shape != x.shape[:1]:
            raise OperandError(
                f"elements: expected int32 or int64 [{x.shape[0]}], one for each node, found {elements.dtype} "
                f"{list(elements.shape)}"
            )
        if weight.ndim != 3 or weight.shape[1:] != (self.weight_numel, problem.channels):
            raise OperandError(
                f"weight: expected {x.dtype} [elements, {self.weight_numel}, {problem.channels}], found "
                f"{list(weight.shape)}"
            )
