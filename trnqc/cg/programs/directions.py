"""The directions in which a tensor product is evaluated: what each reads and writes, and its terms.

L(x, y, w, gz) = <gz, z> with z = M(w, P(x, y)), where P couples a channel of x and one of y, and M weighs or mixes the
products. P and M are linear in each argument. ``forward`` computes z, ``backward`` the gradients of L with respect to
x, y and w. ``double_backward`` computes the gradients of the derivative of L along (ggx, ggy, ggw),

    ggz = M(w, P(ggx, y) + P(x, ggy)) + M(ggw, P(x, y)),

and those of <gz, ggz> with respect to x, y and w. Every direction is therefore a sum of terms M(w', sum of P(x', y')),
and every mode is stated for one term.

The last letter of an operand's name, x, y, w or z, says what it is shaped as.
"""

from __future__ import annotations

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Term:
    """One term M(w', t) with t = sum of P(x', y').

    Parameters
    ----------
    w : str
        The operand that stands for the weights. A path without weights has no term of ``ggw``.
    products : tuple of (str, str)
        The pairs (x', y') whose products are added to t.
    at : (str, str)
        The pair at which the gradient h of t is continued to those of x and y: gx += P'(y', h), gy += P'(x', h).
    """

    w: str
    products: tuple[tuple[str, str], ...]
    at: tuple[str, str]


FIRST = (Term("w", (("x", "y"),), ("x", "y")),)
SECOND = (
    Term("w", (("ggx", "y"), ("x", "ggy")), ("ggx", "ggy")),
    Term("ggw", (("x", "y"),), ("x", "y")),
)


@dataclass(frozen=True)
class Direction:
    """A direction of a tensor product or of a convolution.

    Parameters
    ----------
    name : str
        The direction for one edge.
    reads, writes : tuple of str
        The operands, in the order of a kernel's parameters.
    by : {"", "receiver", "sender"}
        The end of an edge by which a convolution's edges are sorted; empty for a batch of independent edges.
    """

    name: str
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    by: str = ""

    @property
    def key(self) -> str:
        """The name in `DIRECTIONS`."""
        return "conv_" * bool(self.by) + self.name

    @property
    def of_edge(self) -> Direction:
        """The same direction for one edge."""
        return replace(self, by="")

    @property
    def double(self) -> bool:
        """Whether second-order operands are read."""
        return "ggy" in self.reads

    @property
    def output(self) -> str:
        """The written operand that is shaped as z; empty if there is none."""
        return next((name for name in self.writes if name[-1] == "z"), "")

    @property
    def gradients(self) -> bool:
        """Whether gradients of x, y and w are written."""
        return "gx" in self.writes

    def reading(self, kind: str) -> tuple[str, ...]:
        """The operands read that are shaped as x, y, w or z."""
        return tuple(name for name in self.reads if name[-1] == kind)

    def terms(self, weighted: bool) -> tuple[Term, ...]:
        """The terms of a path with weights or without."""
        terms = SECOND if self.double else FIRST
        return terms if weighted else terms[:1]


DIRECTIONS = {
    direction.key: direction
    for direction in (
        Direction("forward", ("x", "y", "w"), ("z",)),
        Direction("backward", ("x", "y", "w", "gz"), ("gx", "gy", "gw")),
        Direction("double_backward", ("x", "y", "w", "gz", "ggx", "ggy", "ggw"), ("gx", "gy", "gw", "ggz")),
        Direction("forward", ("x", "y", "w"), ("z",), "receiver"),
        Direction("backward", ("x", "y", "w", "gz"), ("gx", "gy", "gw"), "sender"),
        # A double backward adds to both ends of an edge, so a convolution has one direction for each end.
        Direction("double_outputs", ("x", "y", "w", "ggx", "ggy", "ggw"), ("ggz",), "receiver"),
        Direction("double_inputs", ("x", "y", "w", "gz", "ggx", "ggy", "ggw"), ("gx", "gy", "gw"), "sender"),
    )
}
