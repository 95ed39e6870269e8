"""The primitive of JAX for symmetric contractions, with rules for every transformation.

`CONTRACTION` has three kinds. With V(c, x, h1..hn), the derivative of B along n directions of x, they are V itself,
the gradient GX(c, x, gb, h1..hn) of <gb, V> with respect to x, and its gradient GC(x, gb, h1..hn) with respect to c.
All are linear in c, gb and every direction, so that their derivatives and transposes are sums of the same three.

===========  ====================  =========================  =========================
transpose    in c                  in gb, for u               in h_i, for u
===========  ====================  =========================  =========================
V            GC(x, u, h)                                      GX(c, x, u, other h)
GX           GC(x, gb, h, u)       V(c, x, h, u)              GX(c, x, gb, other h, u)
GC                                 V(u, x, h)                 GX(u, x, gb, other h)
===========  ====================  =========================  =========================
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

from trnqc.cg.cpu.contraction import kernel_name
from trnqc.cg.cpu.contraction_engine import contraction_engine
from trnqc.cg.jax.library import register
from trnqc.cg.problem.contraction import ContractionProblem, problem_of_text

TARGET = "trnqc_cg_contraction"
CONTRACTION = Primitive(TARGET)
# The kernels of V, GX and GC.
KERNELS = {"V": "value", "GX": "gradient", "GC": "gradients"}
Arrays = Sequence[Any]


@dataclass(frozen=True)
class ContractionCall:
    """The constant arguments of the primitive: kind "V", "GX" or "GC", text of the problem, and number of elements."""

    kind: str
    text: str
    elements: int

    @property
    def problem(self) -> ContractionProblem:
        return problem_of_text(self.text)

    def split(self, args: Arrays) -> tuple[Any, Any, Any, Any, list[Any]]:
        """Return c (None for GC), x, elements, gb (None for V) and the directions."""
        c, *rest = args if self.kind != "GC" else (None, *args)
        x, elements, *rest = rest
        gb, *along = rest if self.kind != "V" else (None, *rest)
        return c, x, elements, gb, along

    def bind(self, c: Any, x: Any, elements: Any, gb: Any, along: Arrays) -> Any:
        """Evaluate the primitive with the arguments that `split` returns."""
        operands = [c] * (self.kind != "GC") + [x, elements] + [gb] * (self.kind != "V")
        return CONTRACTION.bind(*operands, *along, call=self)

    def of(self, kind: str) -> ContractionCall:
        return replace(self, kind=kind)


def _abstract(*args: Any, call: ContractionCall) -> Any:
    _, x, _, _, _ = call.split(args)
    problem = call.problem
    shapes = {
        "V": (x.shape[0], problem.dims[1], problem.channels),
        "GX": x.shape,
        "GC": (call.elements, len(problem.terms), problem.channels),
    }
    return jax.core.ShapedArray(shapes[call.kind], x.dtype)


def _lower(ctx: Any, *args: Any, call: ContractionCall) -> Any:
    """Compile the kernel and call the handler with its file."""
    register(TARGET)
    problem, kernel = call.problem, KERNELS[call.kind]
    _, x, _, _, along = call.split(ctx.avals_in)
    engine = contraction_engine(problem, str(x.dtype))
    file = f"{engine.build(kernel, len(along)).path}\t{kernel_name(kernel, len(along))}"
    sizes = np.array([*problem.dims, len(problem.terms), problem.channels, engine.lanes], np.int64)
    rule = jax.ffi.ffi_lowering(TARGET)
    return rule(ctx, *args, kind=kernel, kernels=file, sizes=sizes)


def _jvp(primals: Arrays, tangents: Arrays, *, call: ContractionCall) -> tuple[Any, Any]:
    c, x, elements, gb, along = call.split(primals)
    dc, dx, _, dgb, dalong = call.split(tangents)
    terms = []
    if not _absent(dx):
        terms.append(call.bind(c, x, elements, gb, [*along, dx]))
    if not _absent(dc):
        terms.append(call.bind(dc, x, elements, gb, along))
    if not _absent(dgb):
        terms.append(call.bind(c, x, elements, dgb, along))
    for i, dh in enumerate(dalong):
        if not _absent(dh):
            terms.append(call.bind(c, x, elements, gb, [*along[:i], dh, *along[i + 1 :]]))
    value = CONTRACTION.bind(*primals, call=call)
    return value, sum(terms[1:], terms[0]) if terms else ad.Zero.from_primal_value(value)


def _absent(tangent: Any) -> bool:
    return tangent is None or isinstance(tangent, ad.Zero)


def _transpose(u: Any, *args: Any, call: ContractionCall) -> list[Any]:
    """Transpose the primitive in the one operand in which it is linear here."""
    place = next(n for n, a in enumerate(args) if ad.is_undefined_primal(a))
    result: list[Any] = [None] * len(args)
    if not isinstance(u, ad.Zero):
        c, x, elements, gb, along = call.split(args)
        result[place] = _transposed(call, c, x, elements, gb, along, u)
    return result


def _transposed(call: ContractionCall, c: Any, x: Any, elements: Any, gb: Any, along: list[Any], u: Any) -> Any:
    """Return the entry of the table above."""
    kind = call.kind
    if ad.is_undefined_primal(c):
        return call.of("GC").bind(None, x, elements, *((gb, [*along, u]) if kind == "GX" else (u, along)))
    if ad.is_undefined_primal(gb):
        value = call.of("V")
        return value.bind(*((c, x, elements, None, [*along, u]) if kind == "GX" else (u, x, elements, None, along)))
    others = [h for h in along if not ad.is_undefined_primal(h)]
    if kind == "V":
        return call.of("GX").bind(c, x, elements, u, others)
    if kind == "GX":
        return call.bind(c, x, elements, gb, [*others, u])
    return call.of("GX").bind(u, x, elements, gb, others)


def _batched(args: Arrays, dims: Sequence[Any], *, call: ContractionCall) -> tuple[Any, int]:
    """Evaluate all samples as nodes of one call. If c or its gradient differs by sample, so do the elements."""
    count = next(a.shape[d] for a, d in zip(args, dims) if d is not None)
    front = [jnp.broadcast_to(a, (count, *a.shape)) if d is None else jnp.moveaxis(a, d, 0) for a, d in zip(args, dims)]
    c, x, elements, gb, along = call.split(front)
    own = call.kind == "GC" or call.split(dims)[0] is not None
    if own:
        elements = elements + call.elements * jnp.arange(count, dtype=elements.dtype)[:, None]
    elif c is not None:
        c = c[:1]
    c, x, elements, gb = (_flat(a) for a in (c, x, elements, gb))
    joined = replace(call, elements=call.elements * (count if own else 1))
    result = joined.bind(c, x, elements, gb, [h.reshape(x.shape) for h in along])
    return result.reshape(count, result.shape[0] // count, *result.shape[1:]), 0


def _flat(a: Any) -> Any:
    """Join the first two dimensions of an array."""
    return None if a is None else a.reshape(a.shape[0] * a.shape[1], *a.shape[2:])


CONTRACTION.def_abstract_eval(_abstract)
CONTRACTION.def_impl(lambda *args, call: jax.jit(partial(CONTRACTION.bind, call=call))(*args))
mlir.register_lowering(CONTRACTION, _lower, platform="cpu")
ad.primitive_jvps[CONTRACTION] = _jvp
ad.primitive_transposes[CONTRACTION] = _transpose
batching.primitive_batchers[CONTRACTION] = _batched
