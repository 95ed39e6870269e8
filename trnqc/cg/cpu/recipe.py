"""The recipes of a tensor product on the CPU: a program over a batch or a graph for each direction."""

from __future__ import annotations

from functools import partial

from trnqc.cg.cpu import batch, convolution, stack
from trnqc.cg.cpu.modes import uvw
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import memory
from trnqc.cg.problem.text import text_of
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.gen import statements as st
from trnqc.jit import Recipe, Signature


def recipe(target: ProductTarget, name: str) -> Recipe:
    """Return the recipe of a direction: its key in `DIRECTIONS`, followed by ``_kahan`` for compensated sums.

    To generate it raises MemoryLimit if its scratch is larger than the stack of a thread.
    """
    direction, make = DIRECTIONS[name.removesuffix("_kahan")], partial(_functions, target, name)
    if not direction.by and uvw.computes_several(target):
        # Only the generated program shows whether its edges have place on the stack together, and so its parameters.
        return Recipe.of(*make(), name=f"cg-{name}", lanes=target.lanes)
    before = convolution.ORDER if direction.by else ()
    behind = (batch.SHARE,) if direction.gradients and not direction.by else ()
    operands = (memory(operand, target.dtype) for operand in direction.operands)
    signature = Signature.declared(name, (*before, *operands, *behind), direction.writes)
    variant = f"{text_of(target.problem.changed(label=None))} {target.dtype} {stack.available()}"
    return Recipe(f"cg-{name}", (signature,), make, __name__, variant, lanes=target.lanes)


def _functions(target: ProductTarget, name: str) -> tuple[st.Function]:
    direction = DIRECTIONS[name.removesuffix("_kahan")]
    if direction.by:
        program = convolution.convolution_program(target, direction, compensated=name.endswith("_kahan"))
    else:
        program = batch.batch_program(target, direction)
    stack.require(program, target.lanes, f"{name} of {target.problem.label or target.problem}")
    return (program,)
