"""The primitives of JAX for tensor products and their convolutions, with rules for every transformation.

There are two primitives. `PRODUCT` evaluates a direction (forward, backward, double backward) by kernels. `TANGENT` is
its derivative along tangents of all operands, composed of products. It is linear in the tangents together, so that its
transpose is one evaluation of the next direction (trnqc/cg/derivatives.py), and not one for each operand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from trnqc.cg.cpu.engine import compiled_engine
from trnqc.cg.derivatives import GRADIENTS, TANGENTS, ProductCalls
from trnqc.cg.jax.library import register
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.problem.text import problem_of, weighted_part
from trnqc.cg.programs.directions import CONVOLUTIONS, DIRECTIONS
from trnqc.errors import OperandError, UnsupportedPrecision

TARGET = "trnqc_cg"
PRODUCT, TANGENT = Primitive("trnqc_cg"), Primitive("trnqc_cg_tangent")
PRODUCT.multiple_results = TANGENT.multiple_results = True
Arrays = Sequence[Any]


@dataclass(frozen=True)
class ProductCall:
    """The constant arguments of a primitive; of a convolution, receivers and senders of edges follow the operands.

    `kahan` says whether sums over edges are compensated.
    """

    direction: str
    text: str
    convolution: bool = False
    kahan: bool = False

    @property
    def problem(self) -> TPProblem:
        return problem_of(self.text)

    @property
    def reads(self) -> tuple[str, ...]:
        """The names of the operands."""
        return DIRECTIONS[self.direction].reads

    @property
    def writes(self) -> tuple[str, ...]:
        """The names of the results."""
        return DIRECTIONS[self.direction].writes

    def split(self, args: Arrays) -> tuple[Arrays, Arrays, Arrays]:
        """Divide arguments into operands, edges and tangents of the operands."""
        count = len(self.reads)
        cut = count + 2 * self.convolution
        return args[:count], args[count:cut], args[cut:]

    def shape(self, name: str, x: Any, y: Any) -> tuple[int, ...]:
        """Return the shape of an operand or a result."""
        return self.problem.shape_of(name, (x if name[-1] in "xz" else y).shape[0])

    def calls(self, edges: Arrays) -> ProductCalls:
        """Return the functions by which derivatives are composed."""

        def apply(direction: str, *args: Any) -> Any:
            *operands, text = args
            results = bind(replace(self, direction=direction, text=text), *operands, *edges)
            return tuple(results) if len(results) > 1 else results[0]

        return ProductCalls(apply, (self.text,), (weighted_part(self.text),))


def bind(call: ProductCall, *args: Any) -> list[Any]:
    """Evaluate a direction of operands and edges, and return its results."""
    return PRODUCT.bind(*args, call=call)


def _abstract(*args: Any, call: ProductCall) -> list[Any]:
    """Check shapes and types of the operands, and return shapes and types of the results."""
    operands, _, _ = call.split(args)
    x, y = operands[:2]
    if x.dtype not in (np.float32, np.float64):
        raise UnsupportedPrecision(f"x: expected float32 or float64, found {x.dtype}")
    for name, operand in zip(call.reads, operands):
        expected = call.shape(name, x, y)
        if operand.shape != expected or operand.dtype != x.dtype:
            raise OperandError(
                f"{name}: expected {x.dtype}{list(expected)}, found {operand.dtype}{list(operand.shape)}"
            )
    return [jax.core.ShapedArray(call.shape(name, x, y), x.dtype) for name in call.writes]


def _lower(ctx: Any, *args: Any, call: ProductCall) -> Any:
    """Compile the kernels and call the handler with their files."""
    register(TARGET)
    keys = CONVOLUTIONS[call.direction] if call.convolution else (call.direction,)
    names = [key + "_kahan" * call.kahan for key in keys]
    engine = compiled_engine(call.problem, str(ctx.avals_in[0].dtype))
    files = "\n".join(f"{engine.build(name).path}\t{name}" for name in names)
    rule = jax.ffi.ffi_lowering(TARGET)
    return rule(ctx, *args, direction=call.direction, kernels=files, shared=call.problem.shared_weights)


def _tangent(*args: Any, call: ProductCall) -> list[Any]:
    operands, edges, along = call.split(args)
    results = TANGENTS[call.direction](call.calls(edges), operands, along)
    return list(results) if isinstance(results, tuple) else [results]


def _jvp(primals: Arrays, tangents: Arrays, *, call: ProductCall) -> tuple[list[Any], list[Any]]:
    along = [ad.instantiate_zeros(t) for t in tangents[: len(call.reads)]]
    return PRODUCT.bind(*primals, call=call), TANGENT.bind(*primals, *along, call=call)


def _jvp_of_tangent(primals: Arrays, tangents: Arrays, *, call: ProductCall) -> tuple[list[Any], list[Any]]:
    operands, edges, along = call.split(primals)
    of_operands, _, of_along = call.split(tangents)

    def function(*args: Any) -> list[Any]:
        return _tangent(*args[: len(operands)], *edges, *args[len(operands) :], call=call)

    changes = [ad.instantiate_zeros(t) for t in (*of_operands, *of_along)]
    return jax.jvp(function, (*operands, *along), tuple(changes))


def _transpose(cotangents: Arrays, *args: Any, call: ProductCall) -> list[Any]:
    """Transpose a product in the one operand in which it is linear here; the value of this operand has no effect."""
    operands, edges, _ = call.split(args)
    values = [jnp.zeros(a.aval.shape, a.aval.dtype) if ad.is_undefined_primal(a) else a for a in operands]
    cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
    gradients = GRADIENTS[call.direction](call.calls(edges), values, cotangents)
    return [g if ad.is_undefined_primal(a) else None for g, a in zip(gradients, operands)] + [None] * len(edges)


def _transpose_of_tangent(cotangents: Arrays, *args: Any, call: ProductCall) -> list[Any]:
    operands, edges, along = call.split(args)
    cotangents = [ad.instantiate_zeros(ct) for ct in cotangents]
    gradients = GRADIENTS[call.direction](call.calls(edges), operands, cotangents)
    of_along = [g if ad.is_undefined_primal(a) else None for g, a in zip(gradients, along)]
    return [None] * (len(operands) + len(edges)) + of_along


def _batched(primitive: Any, args: Arrays, dims: Sequence[Any], *, call: ProductCall) -> tuple[list[Any], list[int]]:
    """Evaluate all samples as rows of one call, or, if samples have gradients of shared weights, one after another."""
    count = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    front = [a if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims)]
    if call.problem.shared_weights:
        mapped = [d is not None for d in dims]

        def sample(values: Arrays) -> list[Any]:
            own = iter(values)
            return primitive.bind(*(next(own) if m else a for a, m in zip(front, mapped)), call=call)

        results = jax.lax.map(sample, [a for a, m in zip(front, mapped) if m])
        return results, [0] * len(results)
    whole = [jnp.broadcast_to(a, (count, *a.shape)) if d is None else a for a, d in zip(front, dims)]
    nodes = whole[0].shape[1]
    first, stop = len(call.reads), len(call.reads) + 2 * call.convolution
    for n in range(first, stop):
        whole[n] = whole[n] + nodes * jnp.arange(count, dtype=whole[n].dtype)[:, None]
    results = primitive.bind(*(a.reshape(-1, *a.shape[2:]) for a in whole), call=call)
    # A dimension of no elements cannot be inferred.
    rows = [nodes if name[-1] in "xz" else whole[1].shape[1] for name in call.writes]
    return [r.reshape(count, n, *r.shape[1:]) for r, n in zip(results, rows)], [0] * len(results)


def _abstract_tangent(*args: Any, call: ProductCall) -> list[Any]:
    operands, edges, _ = call.split(args)
    return _abstract(*operands, *edges, call=call)


PRODUCT.def_abstract_eval(_abstract)
TANGENT.def_abstract_eval(_abstract_tangent)
mlir.register_lowering(PRODUCT, _lower, platform="cpu")
mlir.register_lowering(TANGENT, mlir.lower_fun(_tangent, multiple_results=True))
ad.primitive_jvps[PRODUCT], ad.primitive_jvps[TANGENT] = _jvp, _jvp_of_tangent
ad.primitive_transposes[PRODUCT], ad.primitive_transposes[TANGENT] = _transpose, _transpose_of_tangent
for _primitive in (PRODUCT, TANGENT):
    _primitive.def_impl(partial(lambda p, *args, call: jax.jit(partial(p.bind, call=call))(*args), _primitive))
    batching.primitive_batchers[_primitive] = partial(_batched, _primitive)
