"""Tensors, and sums of products of tensors at indices, built by arithmetic on Python objects.

o, v = Space("o", 5), Space("v", 19)
t, w = Tensor("t", (v, v, o, o), (Symmetry((0, 1), -1), Symmetry((2, 3), -1))), Tensor("w", (v, v, v, v))
ladder = Fraction(1, 2) * w["abcd"] * t["cdij"]
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from math import prod
from numbers import Rational

from trnqc.errors import ExpressionError
from trnqc.expression.spaces import Space, split_labels
from trnqc.expression.symmetry import Exchange, Symmetry, single_exchanges

# Names of identities, which no text declares: the identity over the space o is δ(o), its first block δ(o)₀₀.
IDENTITY = "δ("


@dataclass(frozen=True)
class Tensor:
    """A named array over index spaces, or a function of its indices.

    Attributes
    ----------
    name : str
        Name of the tensor.
    spaces : tuple of Space
        Space of each axis.
    symmetries : tuple of Symmetry
        Axes that may be exchanged one pair at a time.
    cost : int
        Multiply-adds for one element of a function; 0 for a stored array.
    blocks : frozenset of tuple of int, optional
        Block numbers, one per axis, of the blocks that may differ from zero (spin, point group, neighbours); None for
        all blocks.
    conserving : (tuple of int, tuple of int), optional
        Two groups of axes. In blocks that may differ from zero the block numbers over both groups have equal sums.
    exchanges : tuple of Exchange
        Exchanges of several pairs of axes at once, beyond those that `symmetries` implies.

    Raises
    ------
    ExpressionError
        If a symmetry, a block or `conserving` names an axis or a block that the tensor does not have, or if a symmetry
        relates axes over different spaces.
    """

    name: str
    spaces: tuple[Space, ...]
    symmetries: tuple[Symmetry, ...] = ()
    cost: int = 0
    blocks: frozenset[tuple[int, ...]] | None = None
    conserving: tuple[tuple[int, ...], tuple[int, ...]] | None = None
    exchanges: tuple[Exchange, ...] = ()

    def __post_init__(self) -> None:
        if self.cost < 0:
            raise ExpressionError(f"the cost of {self.name} must be at least 0; found {self.cost}")
        for axes in (*(s.axes for s in self.symmetries), *(pair for e in self.exchanges for pair in e.pairs)):
            if max(axes) >= self.rank or min(axes) < 0:
                raise ExpressionError(f"{self.name} has {self.rank} axes; its symmetry names axes {axes}")
            if len({self.spaces[axis].name for axis in axes}) > 1:
                raise ExpressionError(f"axes {axes} of {self.name} run over different spaces and have no symmetry")
        if self.conserving and max(map(max, self.conserving)) >= self.rank:
            raise ExpressionError(f"{self.name} has {self.rank} axes; conserving names axes {self.conserving}")
        if self.blocks is not None and (wrong := sorted(self.blocks - set(self._block_numbers()))):
            raise ExpressionError(f"{self.name} has no block {wrong[0]}")

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.spaces)

    @property
    def every_exchange(self) -> tuple[Exchange, ...]:
        """Exchanges of one pair of axes, which the symmetries imply, and of several pairs at once."""
        return (*single_exchanges(self.symmetries), *self.exchanges)

    def _block_numbers(self) -> Iterator[tuple[int, ...]]:
        """Yield the numbers of all blocks."""
        return product(*(range(max(len(space.blocks), 1)) for space in self.spaces))

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the blocks in which elements may differ from zero."""
        blocks = [numbers for numbers in self._block_numbers() if self.blocks is None or numbers in self.blocks]
        if is_identity(self.name):
            blocks = [numbers for numbers in blocks if numbers[0] == numbers[1]]
        if self.conserving:
            left, right = self.conserving
            blocks = [n for n in blocks if sum(n[axis] for axis in left) == sum(n[axis] for axis in right)]
        return tuple(blocks)

    @property
    def elements(self) -> int:
        """Number of elements in blocks that may differ from zero."""
        parts = [space.blocks or (space.extent or 0,) for space in self.spaces]
        return sum(prod(part[number] for part, number in zip(parts, numbers)) for numbers in self.allowed)

    def __getitem__(self, labels: str | tuple[str, ...]) -> Sum:
        """Return the tensor at indices: ``t["abij"]``, ``t["a,b1"]`` or ``t["a", "b1"]``."""
        return Sum((Term(Fraction(1), (Factor(self.name, split_labels(labels)),)),), (self,))


@dataclass(frozen=True)
class Factor:
    """A tensor at indices; `reciprocal` takes 1/x of each element."""

    tensor: str
    labels: tuple[str, ...]
    reciprocal: bool = False

    def renamed(self, names: Mapping[str, str]) -> Factor:
        """Return the factor with labels replaced; labels that `names` lacks are kept."""
        return replace(self, labels=tuple(names.get(label, label) for label in self.labels))

    def __str__(self) -> str:
        if is_identity(self.tensor):
            return f"delta({','.join(self.labels)})"
        return f"{self.tensor}[{','.join(self.labels)}]" if self.labels else self.tensor


@dataclass(frozen=True)
class Term:
    """A coefficient times a product of factors, summed over the labels that the target lacks.

    Attributes
    ----------
    coefficient : Fraction
        The exact coefficient.
    factors : tuple of Factor
        The factors in the order in which they are written.
    """

    coefficient: Fraction
    factors: tuple[Factor, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        """Labels in order of appearance."""
        return tuple(dict.fromkeys(label for factor in self.factors for label in factor.labels))

    def renamed(self, names: Mapping[str, str]) -> Term:
        """Return the term with labels replaced; labels that `names` lacks are kept."""
        return replace(self, factors=tuple(factor.renamed(names) for factor in self.factors))

    def __str__(self) -> str:
        above = [factor for factor in self.factors if not factor.reciprocal]
        words = [str(abs(self.coefficient))] if abs(self.coefficient) != 1 or not above else []
        text = " * ".join(words + [str(factor) for factor in above])
        return text + "".join(f" / {factor}" for factor in self.factors if factor.reciprocal)


@dataclass(frozen=True)
class Sum:
    """A sum of terms, the result of arithmetic with tensors at indices, and declarations of the tensors."""

    terms: tuple[Term, ...]
    tensors: tuple[Tensor, ...] = ()

    def __add__(self, other: Sum) -> Sum:
        return Sum(self.terms + other.terms, self.tensors + other.tensors)

    def __neg__(self) -> Sum:
        return -1 * self

    def __sub__(self, other: Sum) -> Sum:
        return self + -other

    def __mul__(self, other: Sum | Rational | float) -> Sum:
        if not isinstance(other, Sum):
            other = Sum((Term(Fraction(other), ()),))
        products = (Term(s.coefficient * t.coefficient, s.factors + t.factors) for s in self.terms for t in other.terms)
        return Sum(tuple(products), self.tensors + other.tensors)

    def __rmul__(self, other: Rational | float) -> Sum:
        return self * other

    def __truediv__(self, other: Sum) -> Sum:
        """Divide by one product of tensors, such as an orbital-energy denominator."""
        if len(other.terms) != 1 or any(factor.reciprocal for factor in other.terms[0].factors):
            advice = (
                "pass a sum as one tensor, or as a function (trnqc.contraction.OuterSum)"
                if len(other.terms) != 1
                else "multiply by its denominator instead"
            )
            divisor = signed(other.terms).removeprefix(" + ").strip()
            raise ExpressionError(f"the divisor must be a product of tensors; found {divisor}: {advice}")
        (term,) = other.terms
        if not term.coefficient:
            raise ExpressionError("the divisor must be a product of tensors; found zero")
        if deltas := [factor for factor in term.factors if is_identity(factor.tensor)]:
            raise ExpressionError(f"nothing is divided by {deltas[0]}, which is zero for indices that differ")
        below = tuple(replace(factor, reciprocal=True) for factor in term.factors)
        return self * Sum((Term(1 / term.coefficient, below),), other.tensors)


def identity(space: Space) -> Tensor:
    """Return the identity over a space, a tensor of programs: ``identity(o)["ij"]`` is Kronecker's delta.

    It is no input of the program: its elements, 1 where both indices are equal and 0 elsewhere, are known.
    """
    # An element costs something, as those of functions, which are not stored either.
    return Tensor(f"{IDENTITY}{space.name})", (space, space), (Symmetry((0, 1), 1),), cost=1)


def is_identity(name: str) -> bool:
    """Return whether a tensor of this name is an identity, or a block of one."""
    return name.startswith(IDENTITY)


def signed(terms: Sequence[Term]) -> str:
    """Return the text of terms, each after its sign, which the text of a term itself lacks."""
    return "".join(f" {'-' if term.coefficient < 0 else '+'} {term}" for term in terms)
