"""Tensor expressions as values: index spaces, tensors, sums of products, programs of statements.

    o, v = Space("o", 5), Space("v", 19)
    t, w = Tensor("t", (v, v, o, o), (Symmetry((0, 1), -1), Symmetry((2, 3), -1))), Tensor("w", (v, v, v, v))
    ladder = Statement(Factor("R", tuple("abij")), Fraction(1, 2) * w["abcd"] * t["cdij"])

A label that stands in the target is kept, every other one of a term is summed. Nothing here knows an array.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import combinations, product
from math import prod
from numbers import Rational

from trnqc.errors import ExpressionError


@dataclass(frozen=True)
class Index:
    """A label that runs over 0 .. extent - 1. symbol: what stands for the extent in symbolic counts."""

    label: str
    extent: int
    symbol: str


@dataclass(frozen=True)
class Space:
    """What indices run over. extent: None until it is known. blocks: extents of its parts, such as alpha and beta."""

    name: str
    extent: int | None = None
    blocks: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.extent is not None and self.extent < 0:
            raise ExpressionError(f"the extent of space {self.name} is at least 0; found {self.extent}")
        if self.blocks and (min(self.blocks) < 0 or sum(self.blocks) != self.extent):
            raise ExpressionError(f"the blocks of space {self.name} sum to {self.extent}; found {self.blocks}")

    def sized(self, extent: int | tuple[int, ...]) -> Space:
        """The space with this extent, or with the extents of its blocks."""
        blocks = extent if isinstance(extent, tuple) else self.blocks
        total = sum(extent) if isinstance(extent, tuple) else extent
        if self.extent not in (None, total):
            raise ExpressionError(f"space {self.name} has extent {self.extent}; found {total}")
        return Space(self.name, total, blocks)


@dataclass(frozen=True)
class Symmetry:
    """Exchanging any two of these axes multiplies the tensor by sign (1 or -1)."""

    axes: tuple[int, ...]
    sign: int = 1

    def __post_init__(self) -> None:
        if self.sign not in (1, -1) or len(set(self.axes)) != len(self.axes) or len(self.axes) < 2:
            raise ExpressionError(f"a symmetry has two or more different axes and sign 1 or -1; found {self}")


@dataclass(frozen=True)
class Exchange:
    """Exchanging the axes of all of these pairs at once multiplies the tensor by sign; t_efij = t_feji: (0,1)(2,3)."""

    pairs: tuple[tuple[int, int], ...]
    sign: int = 1

    def __post_init__(self) -> None:
        axes = [axis for pair in self.pairs for axis in pair]
        if self.sign not in (1, -1) or len(set(axes)) != len(axes) or any(len(pair) != 2 for pair in self.pairs):
            raise ExpressionError(f"an exchange has pairs of different axes and sign 1 or -1; found {self}")

    def order(self, rank: int) -> tuple[int, ...]:
        """Which axis stands where after the exchange."""
        other = {x: y for pair in self.pairs for x, y in (pair, pair[::-1])}
        return tuple(other.get(axis, axis) for axis in range(rank))


@dataclass(frozen=True)
class Tensor:
    """A named array over spaces, or a function of its indices.

    cost: multiply-adds for one element of a function; 0 for an array. blocks: the tuples of block numbers, one per
    axis, in which elements may differ from zero (spin, point group, neighbours); None: all of them. conserving: two
    groups of axes whose block numbers have equal sums wherever elements may differ from zero. exchanges: of several
    pairs of axes at once, of which symmetries knows nothing.
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
            raise ExpressionError(f"an element of {self.name} costs at least 0; found {self.cost}")
        for axes in (*(s.axes for s in self.symmetries), *(pair for e in self.exchanges for pair in e.pairs)):
            if max(axes) >= self.rank or min(axes) < 0:
                raise ExpressionError(f"{self.name} has {self.rank} axes; its symmetry names axes {axes}")
            if len({self.spaces[axis].name for axis in axes}) > 1:
                raise ExpressionError(f"axes {axes} of {self.name} run over different spaces: no symmetry")
        if self.conserving and max(map(max, self.conserving)) >= self.rank:
            raise ExpressionError(f"{self.name} has {self.rank} axes; conserving names axes {self.conserving}")
        if self.blocks is not None and (wrong := sorted(self.blocks - set(self._numbers()))):
            raise ExpressionError(f"{self.name} has no block {wrong[0]}")

    @property
    def rank(self) -> int:
        return len(self.spaces)

    @property
    def every_exchange(self) -> tuple[Exchange, ...]:
        """Those of pairs of axes by themselves, which symmetries allow, and those of several pairs at once."""
        return (*single_exchanges(self.symmetries), *self.exchanges)

    def _numbers(self) -> Iterator[tuple[int, ...]]:
        return product(*(range(max(len(space.blocks), 1)) for space in self.spaces))

    @property
    def allowed(self) -> tuple[tuple[int, ...], ...]:
        """Numbers of the blocks in which elements may differ from zero."""
        found = [numbers for numbers in self._numbers() if self.blocks is None or numbers in self.blocks]
        if self.conserving:
            left, right = self.conserving
            found = [n for n in found if sum(n[axis] for axis in left) == sum(n[axis] for axis in right)]
        return tuple(found)

    @property
    def elements(self) -> int:
        """How many elements of the tensor may differ from zero, by its blocks."""
        parts = [space.blocks or (space.extent or 0,) for space in self.spaces]
        return sum(prod(part[number] for part, number in zip(parts, numbers)) for numbers in self.allowed)

    def __getitem__(self, labels: str | tuple[str, ...]) -> Sum:
        """t["abij"], t["a,b1"] or t["a", "b1"]: the tensor at these indices."""
        return Sum((Term(Fraction(1), (Factor(self.name, split_labels(labels)),)),), (self,))


@dataclass(frozen=True)
class Factor:
    """A tensor at indices; reciprocal: 1/x of each element."""

    tensor: str
    labels: tuple[str, ...]
    reciprocal: bool = False

    def renamed(self, names: Mapping[str, str]) -> Factor:
        return replace(self, labels=tuple(names.get(label, label) for label in self.labels))

    def __str__(self) -> str:
        return f"{self.tensor}[{','.join(self.labels)}]" if self.labels else self.tensor


@dataclass(frozen=True)
class Term:
    """coefficient times the product of the factors, summed over the labels that the target lacks."""

    coefficient: Fraction
    factors: tuple[Factor, ...]

    @property
    def labels(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(label for factor in self.factors for label in factor.labels))

    def renamed(self, names: Mapping[str, str]) -> Term:
        return replace(self, factors=tuple(factor.renamed(names) for factor in self.factors))

    def __str__(self) -> str:
        above = [factor for factor in self.factors if not factor.reciprocal]
        words = [str(abs(self.coefficient))] if abs(self.coefficient) != 1 or not above else []
        text = " * ".join(words + [str(factor) for factor in above])
        return text + "".join(f" / {factor}" for factor in self.factors if factor.reciprocal)


@dataclass(frozen=True)
class Sum:
    """What arithmetic on tensors at indices yields: terms, and the tensors that they name."""

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
        """By one product, such as a denominator."""
        if len(other.terms) != 1 or any(factor.reciprocal for factor in other.terms[0].factors):
            instead = (
                "hand a sum in as one tensor, or as a function (trnqc.contraction.OuterSum)"
                if len(other.terms) != 1
                else "multiply by what stands below it"
            )
            found = _signed(other.terms).removeprefix(" + ").strip()
            raise ExpressionError(f"a division is by a product of tensors; found {found}: {instead}")
        (term,) = other.terms
        if not term.coefficient:
            raise ExpressionError("a division is by a product of tensors; found zero")
        below = tuple(replace(factor, reciprocal=True) for factor in term.factors)
        return self * Sum((Term(1 / term.coefficient, below),), other.tensors)


@dataclass(frozen=True)
class Statement:
    """target = sum of terms, or target += sum of terms."""

    target: Factor
    terms: tuple[Term, ...]
    accumulate: bool = False

    def __str__(self) -> str:
        return f"{self.target} {'+=' if self.accumulate else '='}{_signed(self.terms).removeprefix(' +')}"


def _signed(terms: Sequence[Term]) -> str:
    """Every term after its sign, which a term itself does not print."""
    return "".join(f" {'-' if term.coefficient < 0 else '+'} {term}" for term in terms)


@dataclass(frozen=True)
class Program:
    """Statements in order over declared spaces, labels and tensors; checked when made.

    labels: (label, name of its space). tensors: the inputs; targets need no declaration.
    """

    spaces: tuple[Space, ...]
    labels: tuple[tuple[str, str], ...]
    tensors: tuple[Tensor, ...]
    statements: tuple[Statement, ...]

    def __post_init__(self) -> None:
        for what, names in (
            ("space", [space.name for space in self.spaces]),
            ("label", [label for label, _ in self.labels]),
            ("tensor", [tensor.name for tensor in self.tensors]),
        ):
            if twice := [name for name in names if names.count(name) > 1]:
                raise ExpressionError(f"{what} {twice[0]} is declared twice")
        known = {space.name for space in self.spaces}
        for label, space in self.labels:
            if space not in known:
                raise ExpressionError(f"label {label} runs over space {space}, which is not declared")
        _check(self)

    @staticmethod
    def of(labels: Mapping[str, Space], *assignments: tuple[str, str | tuple[str, ...], Sum]) -> Program:
        """From objects: {"abcd": v, "ijkl": o}, then (target, its labels, sum); a target that returns is added to."""
        spaces = tuple(dict.fromkeys(labels.values()))
        pairs = tuple((label, space.name) for group, space in labels.items() for label in split_labels(group))
        tensors = tuple(dict.fromkeys(tensor for _, _, value in assignments for tensor in value.tensors))
        seen: set[str] = set()
        statements = []
        for name, target, value in assignments:
            statements.append(Statement(Factor(name, split_labels(target)), value.terms, accumulate=name in seen))
            seen.add(name)
        return Program(spaces, pairs, tuple(t for t in tensors if t.name not in seen), tuple(statements))

    def space(self, label: str) -> Space:
        name = dict(self.labels)[label]
        return next(space for space in self.spaces if space.name == name)

    def tensor(self, name: str) -> Tensor | None:
        return next((tensor for tensor in self.tensors if tensor.name == name), None)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays to be handed in: declared tensors that some statement reads or adds to."""
        read = {factor.tensor for s in self.statements for term in s.terms for factor in term.factors}
        read |= {s.target.tensor for s in self.statements if s.accumulate}
        return tuple(tensor.name for tensor in self.tensors if tensor.name in read)

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of everything assigned to, in order of first assignment."""
        return tuple(dict.fromkeys(statement.target.tensor for statement in self.statements))

    def sized(self, **extents: int | tuple[int, ...]) -> Program:
        """The same program with the extents of these spaces, or those of their blocks: sized(o=10, v=(19, 19))."""
        names = [space.name for space in self.spaces]
        if unknown := [name for name in extents if name not in names]:
            raise ExpressionError(f"there is no space {unknown[0]}; spaces are {', '.join(names)}")
        spaces = {s.name: s.sized(extents[s.name]) if s.name in extents else s for s in self.spaces}
        tensors = tuple(replace(t, spaces=tuple(spaces[s.name] for s in t.spaces)) for t in self.tensors)
        return replace(self, spaces=tuple(spaces.values()), tensors=tensors)

    def shaped(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        """The same program with the extents that arrays of these shapes give to the spaces of tensors."""
        extents: dict[str, int] = {space.name: space.extent for space in self.spaces if space.extent is not None}
        for name, shape in shapes.items():
            tensor = self.tensor(name)
            if tensor is None:
                raise ExpressionError(
                    f"there is no tensor {name}; tensors are {', '.join(t.name for t in self.tensors)}"
                )
            if len(shape) != tensor.rank:
                raise ExpressionError(f"{name} has {tensor.rank} indices; found an array of shape {shape}")
            for axis, (space, extent) in enumerate(zip(tensor.spaces, shape)):
                if extents.setdefault(space.name, extent) != extent:
                    expected = f"space {space.name} of extent {extents[space.name]}"
                    raise ExpressionError(f"axis {axis} of {name} runs over {expected}; found {extent}", axis)
        return self.sized(**extents)

    def indices(self) -> dict[str, Index]:
        """Every label with its extent; all extents must be known."""
        if missing := [space.name for space in self.spaces if space.extent is None]:
            raise ExpressionError(f"the extent of space {missing[0]} is not known: give it, or the arrays")
        return {label: Index(label, self.space(label).extent or 0, self.space(label).name) for label, _ in self.labels}

    def __str__(self) -> str:
        return "\n".join(map(str, self.statements))


def single_exchanges(symmetries: Iterable[Symmetry]) -> tuple[Exchange, ...]:
    return tuple(Exchange((pair,), s.sign) for s in symmetries for pair in combinations(s.axes, 2))


def split_labels(labels: str | tuple[str, ...]) -> tuple[str, ...]:
    """ "abij", "a,b,i,j" or a tuple of labels."""
    if not isinstance(labels, str):
        return tuple(labels)
    return tuple(part.strip() for part in labels.split(",")) if "," in labels else tuple(labels)


def fresh_label(labels: dict[str, str], like: str, taken: Collection[str]) -> str:
    """A label over the same space as `like` that is not taken; one more is declared in `labels` where there is none."""
    for label, space in labels.items():
        if space == labels[like] and label not in taken:
            return label
    label = like
    while label in labels:
        label += "′"
    labels[label] = labels[like]
    return label


def check_factor(factor: Factor, labels: Mapping[str, str], shapes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise where labels (label -> space) or tensors (name -> spaces of its axes) do not know what stands here."""
    for axis, label in enumerate(factor.labels):
        if label not in labels:
            raise ExpressionError(f"index {label} of {factor} is not declared", axis)
    if factor.tensor not in shapes:
        raise ExpressionError(f"{factor.tensor} is neither a declared tensor nor computed before")
    expected = shapes[factor.tensor]
    if len(expected) != len(factor.labels):
        raise ExpressionError(f"{factor.tensor} has {len(expected)} indices; found {len(factor.labels)}")
    for axis, (space, label) in enumerate(zip(expected, factor.labels)):
        if space != labels[label]:
            found = f"index {label} over {labels[label]}"
            raise ExpressionError(f"axis {axis} of {factor.tensor} runs over space {space}; found {found}", axis)


def check_target(statement: Statement, shapes: Mapping[str, tuple[str, ...]]) -> None:
    """Raise where the target does not fit its terms."""
    target = statement.target
    if statement.accumulate and target.tensor not in shapes:
        raise ExpressionError(f"{target} is added to before it has a value")
    for axis, label in enumerate(target.labels):
        if target.labels.index(label) != axis:
            raise ExpressionError(f"index {label} stands twice in the target {target}", axis)
        for term in statement.terms:
            if label not in term.labels:
                raise ExpressionError(f"index {label} of the target {target} is missing in the term {term}", axis)
    for term in statement.terms:
        if not term.factors:
            raise ExpressionError(f"a term has at least one tensor; found {term}")


def _check(program: Program) -> None:
    labels = dict(program.labels)
    shapes = {tensor.name: tuple(space.name for space in tensor.spaces) for tensor in program.tensors}
    for statement in program.statements:
        for term in statement.terms:
            for factor in term.factors:
                check_factor(factor, labels, shapes)
        check_target(statement, shapes)
        target = statement.target
        check_factor(target, labels, shapes | {target.tensor: shapes.get(target.tensor, _spaces(target, labels))})
        shapes.setdefault(target.tensor, _spaces(target, labels))


def _spaces(factor: Factor, labels: Mapping[str, str]) -> tuple[str, ...]:
    return tuple(labels.get(label, "") for label in factor.labels)
