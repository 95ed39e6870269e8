"""The directions in which a tensor product is evaluated: what each reads and writes, and its terms.

L(x, y, w, gz) = <gz, z> with z = M(w, P(x, y)), where P couples a channel of x and one of y, and M weighs or mixes the
products. P and M are linear in each argument. ``forward`` computes z, ``backward`` the gradients of L with respect to
x, y and w. ``double_backward`` computes the gradients of the derivative of L along (ggx, ggy, ggw),

    ggz = M(w, P(ggx, y) + P(x, ggy)) + M(ggw, P(x, y)),

and those of <gz, ggz> with respect to x, y and w. Every direction is therefore a sum of terms M(w', sum of P(x', y')),
and every mode is stated for one term.

The last letter of an operand's name, x, y, w or z, is its kind: the operand has the shape of x, y, w or z.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class DirectionTerm:
    """One term M(w', t) with t = sum of P(x', y') over `products`.

    A path without weights has no term with w' = ``ggw``. P is differentiated `at` (x', y'): the gradient h of t
    contributes gx += P'(y', h) and gy += P'(x', h).
    """

    w: str
    products: tuple[tuple[str, str], ...]
    at: tuple[str, str]


# Terms of z and its gradients.
FIRST = (DirectionTerm("w", (("x", "y"),), ("x", "y")),)
# Terms of the derivative of z along (ggx, ggy, ggw), and of its gradients.
SECOND = (
    DirectionTerm("w", (("ggx", "y"), ("x", "ggy")), ("ggx", "ggy")),
    DirectionTerm("ggw", (("x", "y"),), ("x", "y")),
)


@dataclass(frozen=True)
class Direction:
    """A direction of a tensor product or of a convolution.

    Operands are in the order of a kernel's parameters; `by` is the end by which the edges of a convolution are sorted,
    empty for a batch of independent edges.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    by: str = ""

    @property
    def key(self) -> str:
        """Key of the direction in `DIRECTIONS`."""
        return "conv_" * bool(self.by) + self.name

    @property
    def operands(self) -> tuple[str, ...]:
        """The operands that are read, followed by the operands that are written."""
        return (*self.reads, *self.writes)

    @property
    def of_edge(self) -> Direction:
        """The direction for a single edge, outside a convolution."""
        return replace(self, by="")

    @property
    def double(self) -> bool:
        """Whether second-order operands are read."""
        return "ggy" in self.reads

    @property
    def output(self) -> str:
        """The operand of the shape of z that is written, or an empty string."""
        return next((name for name in self.writes if name[-1] == "z"), "")

    @property
    def gradients(self) -> bool:
        """Whether gradients of x, y and w are written."""
        return "gx" in self.writes

    def reading(self, kind: str) -> tuple[str, ...]:
        """Return the operands of one kind (x, y, w or z) that are read."""
        return tuple(name for name in self.reads if name[-1] == kind)

    def terms(self, weighted: bool) -> tuple[DirectionTerm, ...]:
        """Return the terms of a path with or without weights."""
        terms = SECOND if self.double else FIRST
        return terms if weighted else terms[:1]


# All directions by key.
DIRECTIONS = {
    direction.key: direction
    for direction in (
        Direction("forward", ("x", "y", "w"), ("z",)),
        Direction("backward", ("x", "y", "w", "gz"), ("gx", "gy", "gw")),
        Direction("double_backward", ("x", "y", "w", "gz", "ggx", "ggy", "ggw"), ("gx", "gy", "gw", "ggz")),
        Direction("forward", ("x", "y", "w"), ("z",), "receiver"),
        Direction("backward", ("x", "y", "w", "gz"), ("gx", "gy", "gw"), "sender"),
        # The double backward of a convolution adds to the nodes at both ends of an edge, so it has two directions.
        Direction("double_outputs", ("x", "y", "w", "ggx", "ggy", "ggw"), ("ggz",), "receiver"),
        Direction("double_inputs", ("x", "y", "w", "gz", "ggx", "ggy", "ggw"), ("gx", "gy", "gw"), "sender"),
    )
}

# Keys of the directions that compute a convolution and its derivatives.
CONVOLUTIONS = {
    "forward": ("conv_forward",),
    "backward": ("conv_backward",),
    "double_backward": ("conv_double_outputs", "conv_double_inputs"),
}
