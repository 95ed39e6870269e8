"""Programs of a symmetric contraction on the CPU: loops over nodes and blocks of channels around a channel's formula.

Features have the layout [node][component][block][lane]: a vector holds one component of a block of channels. The
coefficients have the layout [element][block][term][lane]. Channels are padded to whole blocks.

==============  ================================================================================================
``value``       B, or its derivative along n directions; a group is a range of nodes of one element
``gradient``    gx, or its derivative along n directions; a group is a range of nodes of one element
``gradients``   gx and the gradients of the coefficients, to which nodes are added in their order; a group is a
                block of channels of one element
==============  ================================================================================================

Groups write to different elements, so threads can share them and results do not depend on their number.
"""

from __future__ import annotations

from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.programs import polynomial
from trnqc.cg.programs.polynomial import PolynomialChannel
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.jit import Recipe, Signature

# Number of terms, counted for all sets of directions, of a function. The compiler takes longer than linearly.
TERMS = 1500
BLOCKS, STEP = Var("blocks", "i64"), Var("step", "i64")
# The nodes of group g are nodes[starts[g]] ... nodes[starts[g + 1] - 1], of the element elements[g].
STARTS, ELEMENTS, NODES = Array("starts", "i64"), Array("elements", "i64"), Array("nodes", "i64")


def recipe(problem: ContractionProblem, kind: str, directions: int, dtype: str, lanes: int) -> Recipe:
    """Return the recipe of a program for n `directions` and blocks of `lanes` channels.

    The kind is "value", "gradient" or "gradients", the dtype "f64" or "f32".
    """
    name = kernel_name(kind, directions)
    parameters: tuple[Value | Array, ...] = (BLOCKS, STARTS, ELEMENTS, NODES, *_operands(kind, directions, dtype))
    signature = Signature.declared(name, parameters, ("out", "gc"))
    # The number of channels is not part of a program.
    slots = ["+".join(str(slot.ir) for slot in irreps) for irreps in (problem.irreps_in, problem.irreps_out)]
    variant = f"{slots} {problem.correlation} {directions} {dtype} {lanes}"
    return Recipe(
        name,
        (signature,),
        lambda: (contraction_program(problem, kind, directions, dtype),),
        __name__,
        variant,
        lanes=lanes,
    )


def kernel_name(kind: str, directions: int) -> str:
    """Return the name of the function of a program."""
    return f"cg_contraction_{kind}_{directions}"


def contraction_program(problem: ContractionProblem, kind: str, directions: int, dtype: str) -> st.Function:
    """Return a program; for the arguments see `recipe`.

    Its parameters are the number of blocks, the groups, and the operands: the coefficients c, x, the directions h1, h2,
    ..., and for gradients gb. The results are B or gx in `out`, and gc.
    """
    b, group = Builder(), Var("g", "i64")
    operands = _operands(kind, directions, dtype)
    name = kernel_name(kind, directions)
    parts = [
        _part(f"{name}_part{n}", problem, kind, directions, dtype, components, first=n == 1)
        for n, components in enumerate(polynomial.parts(problem, directions, TERMS), 1)
    ]
    if kind == "gradients":
        element, block = b.let("element", ELEMENTS[group // BLOCKS]), b.let("block", group % BLOCKS)
        _over_nodes(b, problem, parts, operands, group // BLOCKS, element, block)
    else:
        element = b.let("element", ELEMENTS[group])
        with b.loop("block", BLOCKS) as block:
            _over_nodes(b, problem, parts, operands, group, element, block)
    return b.function(name, (BLOCKS, STARTS, ELEMENTS, NODES, *operands), group=group)


def _over_nodes(
    b: Builder,
    problem: ContractionProblem,
    parts: list[st.Function],
    operands: tuple[Array, ...],
    group: Value,
    element: Value,
    block: Value,
) -> None:
    """Write the loop over the nodes of a group for one block of channels."""
    of_coefficients = (element * BLOCKS + block) * len(problem.terms)
    with b.loop("at", STARTS[group + 1], STARTS[group]) as at:
        node = b.let("node", NODES[at])
        places = {
            name: b.let(f"of_{name}", node * (dim * BLOCKS) + block) for name, dim in zip(("x", "b"), problem.dims)
        }
        views = []
        for operand in operands:
            if operand.name in ("c", "gc"):
                views.append(st.View(operand, of_coefficients))
            else:
                views.append(st.View(operand, places["b" if _is_output(operand, operands) else "x"]))
        for part in parts:
            b.call(part, BLOCKS, *views)


def _is_output(operand: Array, operands: tuple[Array, ...]) -> bool:
    """Whether an operand has the components of B rather than the components of x."""
    return operand.name == "gb" or (operand.name == "out" and all(other.name != "gb" for other in operands))


def _operands(kind: str, directions: int, dtype: str) -> tuple[Array, ...]:
    return tuple(Array(name, dtype, lanes=True) for name in polynomial.operands(kind, directions))


def _part(
    name: str, problem: ContractionProblem, kind: str, directions: int, dtype: str, components: range, first: bool
) -> st.Function:
    """Return the function of some components of B for one node and one block. All but the first add to gx."""
    operands = {operand.name: operand for operand in _operands(kind, directions, dtype)}
    b, dim = Builder(), problem.dims[0]
    c, out = operands["c"], operands["out"]
    rows = [operands["x"], *(operands[f"h{n}"] for n in range(1, directions + 1))]
    x, *along = ([b.let(row.name, row[STEP * i]) for i in range(dim)] for row in rows)
    channel = PolynomialChannel(b, x, along, lambda component, m: c[problem.terms[component, m]])
    if kind == "value":
        for component in components:
            value = channel.value(component, problem.components[component])
            b.store(out[STEP * component], 0 if value is None else value)
        return b.function(name, (STEP, *operands.values()))
    gx = [b.declare("gx", const(0, dtype) if first else out[STEP * i]) for i in range(dim)]
    gc = operands.get("gc")
    for component in components:
        gb = b.let("gb", operands["gb"][STEP * component])

        def add(component: int, m: tuple[int, ...], value: Value) -> None:
            assert gc is not None
            b.accumulate(gc[problem.terms[component, m]], value)

        channel.gradient(component, problem.components[component], gb, gx, add if gc is not None else None)
    for i in range(dim):
        b.store(out[STEP * i], gx[i])
    return b.function(name, (STEP, *operands.values()))
