"""Programs of a symmetric contraction on a GPU: a lane has a channel, and a group a node and a block of channels.

Features have the layout [node][component][channel], and the coefficients [element][term][channel], so that the lanes of
a group read neighbouring numbers.

==============  ================================================================================================
``value``       B, or its derivative along n directions; a group is a node
``gradient``    gx, or its derivative along n directions; a group is a node
``gradients``   gx and the gradients of the coefficients; a group is a segment, a range of nodes of one element
==============  ================================================================================================

Each with a block of channels. Groups of one block follow each other, so that those that run at the same time share its
coefficients in the cache. The gradients of the coefficients have a row for each segment, to which its nodes are added
in order, and which `row_sums.sum_segments` adds up for each element. If segments share the row of their element
instead, they are added in any order. These rows are padded to whole blocks, and must be zero before the launch.

Lanes beyond the last channel repeat it and store nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from trnqc.cg.cuda.kernel import GROUP, SEGMENTS
from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.problem.polynomials import Monomial
from trnqc.cg.programs import polynomial
from trnqc.cg.programs.polynomial import PolynomialChannel
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lane, lt, minimum
from trnqc.jit import Recipe, Signature

# Number of terms, counted for all sets of directions, of a kernel. The compiler takes longer than linearly.
TERMS = 1000
# The number of nodes or segments, and the element of each node.
COUNT, ELEMENTS = Var("count", "i64"), Array("elements", "i64")
# The arrays of `segments.Segments` that are used.
RANGES = tuple(SEGMENTS[name] for name in ("begin", "end", "node", "target", "order"))


@dataclass(frozen=True)
class Form:
    """What distinguishes the kernels of a problem.

    A group has `lanes` channels; `part` is the number among the kernels of the same kind, each of which has some
    components of B, see `parts`.
    """

    problem: ContractionProblem
    kind: str
    directions: int
    dtype: str
    lanes: int
    part: int = 0

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return f"cg_contraction_{self.kind}_{self.directions}_{self.dtype}" + f"_part{self.part}" * bool(self.part)

    @property
    def rows(self) -> tuple[str, ...]:
        """The operands with a row for each node, by name."""
        return tuple(name for name in polynomial.operands(self.kind, self.directions) if name not in ("c", "gc"))

    @property
    def parameters(self) -> tuple[Value | Array, ...]:
        """The parameters of the kernel: COUNT, the elements or segments of the nodes, and the operands."""
        operands = (Array(name, self.dtype) for name in polynomial.operands(self.kind, self.directions))
        return (COUNT, *(RANGES if self.kind == "gradients" else (ELEMENTS,)), *operands)

    @property
    def components(self) -> range:
        """The components of B that the kernel computes."""
        return parts(self.problem, self.directions)[self.part]

    @property
    def blocks(self) -> int:
        """The number of blocks of channels."""
        return -(-self.problem.channels // self.lanes)


def parts(problem: ContractionProblem, directions: int) -> list[range]:
    """Return ranges of components of B whose formulas are short enough for one kernel."""
    return polynomial.parts(problem, directions, TERMS)


def recipe(form: Form) -> Recipe:
    """Return the recipe of a kernel."""
    signature = Signature.declared(form.name, form.parameters, ("out", "gc"))
    variant = f"{form.problem} {form.components} {form.lanes}"
    return Recipe(form.name, (signature,), lambda: (contraction_kernel(form),), __name__, variant, lanes=form.lanes)


def contraction_kernel(form: Form) -> st.Function:
    """Return a kernel; every part of a gradient but the first adds to `out`."""
    k = _Kernel(form)
    b = k.b
    which, block = b.let("which", GROUP % COUNT), b.let("block", GROUP // COUNT)
    k.place_lane(block)
    if form.kind == "gradients":
        begin, end, element, target = (b.let(a.name, a[which]) for a in RANGES[:4])
        with b.loop("p", end, begin=begin) as p:
            k.write_node(b.let("of_node", SEGMENTS["order"][p]), element, target)
    else:
        k.write_node(which, b.let("element", ELEMENTS[which]), None)
    return b.function(form.name, form.parameters, group=GROUP, title=str(form.problem))


@dataclass
class _Kernel:
    """A kernel under construction."""

    form: Form
    b: Builder = field(default_factory=Builder)
    # The channel of a lane, the same limited to those that exist, and whether it exists; None if all do.
    own: Value = field(default_factory=lane)
    channel: Value = field(default_factory=lane)
    valid: Value | None = None

    def place_lane(self, block: Value) -> None:
        """Set the channel of a lane in a block."""
        channels, lanes = self.form.problem.channels, self.form.lanes
        self.own = self.channel = self.b.let("own", block * lanes + lane())
        if channels % lanes:
            self.channel = self.b.let("channel", minimum(self.own, channels - 1))
            self.valid = lt(self.own, channels)

    def write_node(self, node: Value, element: Value, target: Value | None) -> None:
        """Write the results of a lane for a node; gradients of the coefficients are added to row `target`."""
        form, b, problem = self.form, self.b, self.form.problem
        terms, channels = len(problem.terms), problem.channels
        at_c = b.declare("at_c", element * (terms * channels) + self.channel)
        if target is not None:
            # Without it the compiler loads all coefficients before the loop over nodes, which no registers hold.
            b.add(st.Fence((at_c,)))
        c = Array("c", form.dtype)

        def coefficient(component: int, m: Monomial) -> Value:
            return c[at_c + problem.terms[component, m] * channels]

        x, *along = (self._loaded(name, node) for name in form.rows[: 1 + form.directions])
        formula = PolynomialChannel(b, x, along, coefficient)
        if form.kind == "value":
            for component in form.components:
                value = formula.value(component, problem.components[component])
                self._store(node, 1, component, const(0, form.dtype) if value is None else value)
        else:
            self._gradient(formula, node, target)

    def _gradient(self, formula: PolynomialChannel, node: Value, target: Value | None) -> None:
        form, b, problem = self.form, self.b, self.form.problem
        padded, gc = form.blocks * form.lanes, Array("gc", form.dtype)
        at_gc = b.let("at_gc", target * (len(problem.terms) * padded) + self.own) if target is not None else None

        def add(component: int, m: Monomial, value: Value) -> None:
            assert at_gc is not None
            b.accumulate(gc[at_gc + problem.terms[component, m] * padded], value)

        before = self._loaded("out", node) if form.part else [const(0, form.dtype)] * problem.dims[0]
        gx = [b.declare("gx", value) for value in before]
        gb = Array("gb", form.dtype)
        for component in form.components:
            seed = b.let("gb", gb[self._place(node, 1, component)])
            formula.gradient(component, problem.components[component], seed, gx, add if at_gc is not None else None)
        if form.part and self.valid is not None:
            # All lanes have read the last channel before one of them writes it.
            b.barrier()
        for i, value in enumerate(gx):
            self._store(node, 0, i, value)

    def _place(self, node: Value, kind: int, component: int) -> Value:
        """Return the element of a component of x (kind 0) or B (kind 1)."""
        channels, dim = self.form.problem.channels, self.form.problem.dims[kind]
        return node * (dim * channels) + self.channel + component * channels

    def _loaded(self, name: str, node: Value) -> list[Value]:
        """Load the components of x, or of another operand of its shape."""
        array = Array(name, self.form.dtype)
        return [self.b.let(name, array[self._place(node, 0, i)]) for i in range(self.form.problem.dims[0])]

    def _store(self, node: Value, kind: int, component: int, value: Value) -> None:
        self.b.store(Array("out", self.form.dtype)[self._place(node, kind, component)], value, self.valid)
