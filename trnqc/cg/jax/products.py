"""Tensor products and their convolutions over a graph as functions of JAX arrays."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod
from typing import Any

import jax.numpy as jnp
from jax import Array

from trnqc.cg.jax.primitives import ProductCall, bind
from trnqc.cg.jax.storage import widened
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import text_of
from trnqc.errors import EdgeIndexError, OperandError, UnsupportedError


@dataclass(frozen=True)
class TensorProduct:
    """z = x ⊗ y with weights, row by row, as a function that JAX can transform.

    Parameters
    ----------
    problem : TPProblem
        The tensor product. Its weights are an argument of the function, also if `internal_weights` is set.

    Notes
    -----
    The function supports `jax.jit`, `jax.vmap`, and forward-mode and reverse-mode derivatives in any nesting, on the
    CPU. Kernels are compiled when the function is lowered.
    """

    problem: TPProblem

    @cached_property
    def _text(self) -> str:
        return text_of(self.problem)

    def __call__(self, x: Any, y: Any, weight: Any = None) -> Array:
        """Compute the product.

        Parameters
        ----------
        x : array
            [..., d1]; the leading dimensions of all operands are broadcast.
        y : array
            [..., d2]
        weight : array, optional
            [..., weight_numel], or [weight_numel] if shared. Omitted if the problem has no weights.

        Returns
        -------
        array
            z [..., d3] in the type of the operands. Half precision is computed in float32 and rounded once.

        Raises
        ------
        OperandError
            For operands of wrong shapes or types.
        UnsupportedPrecision
            For operands of other types than float16, bfloat16, float32 and float64.
        """
        dtype, x, y, w = _operands(self.problem, x, y, weight)
        own = not self.problem.shared_weights
        lead = _common(x, y, *[w] * own)
        x, y, *ws = (jnp.broadcast_to(a, (*lead, a.shape[-1])).reshape(prod(lead), -1) for a in (x, y, *[w] * own))
        (z,) = bind(ProductCall("forward", self._text), x, y, *ws or [w])
        return z.reshape(*lead, self.problem.dims[2]).astype(dtype)


@dataclass(frozen=True)
class TensorProductConv:
    """Graph convolution: z[n] is the sum of x[sender of e] ⊗ y[e] over the edges e that node n receives.

    Parameters
    ----------
    problem : TPProblem
        The tensor product.
    kahan : bool, optional
        Whether sums over edges are compensated (Kahan). This needs paths of mode uvu only.

    Raises
    ------
    UnsupportedError
        For `kahan` with other modes.

    Notes
    -----
    Results have the same bits for any number of threads. The function can be transformed like `TensorProduct`.
    """

    problem: TPProblem
    kahan: bool = False

    def __post_init__(self) -> None:
        if self.kahan and (others := {i.connection_mode for i in self.problem.instructions} - {"uvu"}):
            raise UnsupportedError(f"kahan: expected paths of mode uvu, found {', '.join(sorted(others))} as well")

    @cached_property
    def _text(self) -> str:
        return text_of(self.problem)

    def __call__(self, x: Any, y: Any, weights: Any, rows: Any, cols: Any) -> Array:
        """Compute the convolution.

        Parameters
        ----------
        x : array
            [nodes, d1]
        y : array
            [edges, d2]
        weights : array, optional
            [edges, weight_numel], or [weight_numel] if shared. None if the problem has no weights.
        rows, cols : array
            int32 or int64 [edges], the receiver and the sender of each edge, in any order.

        Returns
        -------
        array
            z [nodes, d3] in the type of the operands. Half precision is computed in float32 and rounded once.

        Raises
        ------
        OperandError
            For operands of wrong shapes or types.
        EdgeIndexError
            For edges of another type. Node numbers out of range are found when the kernels run.
        """
        dtype, x, y, w = _operands(self.problem, x, y, weights)
        edges = tuple(jnp.asarray(index) for index in (rows, cols))
        for name, index in zip(("rows", "cols"), edges):
            if index.dtype not in (jnp.int32, jnp.int64) or index.shape != y.shape[:1]:
                raise EdgeIndexError(
                    f"{name}: expected int32 or int64 {list(y.shape[:1])}, found {index.dtype} {list(index.shape)}"
                )
        if edges[0].dtype != edges[1].dtype:
            raise EdgeIndexError(f"expected rows and cols of one type, found {edges[0].dtype} and {edges[1].dtype}")
        (z,) = bind(ProductCall("forward", self._text, True, self.kahan), x, y, w, *edges)
        return z.astype(dtype)


def _operands(problem: TPProblem, x: Any, y: Any, w: Any) -> tuple[Any, Array, Array, Array]:
    """Return the type of the result, and the operands as arrays that kernels take; absent weights have no elements."""
    x, y = jnp.asarray(x), jnp.asarray(y)
    if w is None:
        if problem.weight_numel:
            raise OperandError(f"w: expected {problem.weight_numel} weights, found none")
        w = jnp.zeros((0,) if problem.shared_weights else (*y.shape[:-1], 0), y.dtype)
    dtype, x, y, w = widened(x=x, y=y, w=jnp.asarray(w))
    return dtype, x, y, w


def _common(*operands: Array) -> tuple[int, ...]:
    try:
        return jnp.broadcast_shapes(*(a.shape[:-1] for a in operands))
    except ValueError:
        shapes = ", ".join(f"{name} {list(a.shape)}" for name, a in zip("xyw", operands))
        raise OperandError(f"expected leading dimensions that can be broadcast; found {shapes}") from None
