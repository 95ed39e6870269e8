"""Programs: statements that assign sums of products of tensors, over declared spaces, labels and tensors.

Labels of the target of a statement are kept; every other label of a term is summed over.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from trnqc.errors import ExpressionError
from trnqc.expression.spaces import Index, Space, fresh_label, split_labels
from trnqc.expression.terms import Factor, Sum, Tensor, Term, is_identity, signed


@dataclass(frozen=True)
class TensorStatement:
    """An assignment of a sum of terms to a target, or an addition (``+=``) if `accumulate`.

    With a `function`, the target is that function of each element of the sum (`functions.FUNCTIONS`).
    """

    target: Factor
    terms: tuple[Term, ...]
    accumulate: bool = False
    function: str = ""

    def terms_at(
        self, places: tuple[str, ...], labels: dict[str, str], taken: Collection[str] = ()
    ) -> tuple[Term, ...]:
        """Return the terms with the labels of the target replaced by `places`.

        Summed labels are renamed where they are among `places` or `taken`. Labels that are new for that are added to
        `labels`, which maps labels to their spaces.
        """
        placed = []
        for term in self.terms:
            names = dict(zip(self.target.labels, places))
            for label in term.labels:
                if label not in names:
                    used = {*taken, *places, *names.values()}
                    names[label] = fresh_label(labels, label, used) if label in used else label
            placed.append(term.renamed(names))
        return tuple(placed)

    def __str__(self) -> str:
        value = signed(self.terms).removeprefix(" +")
        if self.function:
            value = f" {self.function}({value.strip()})"
        return f"{self.target} {'+=' if self.accumulate else '='}{value}"


@dataclass(frozen=True)
class Program:
    """Statements in order, over declared spaces, labels and tensors.

    Attributes
    ----------
    spaces : tuple of Space
        Index spaces.
    labels : tuple of (str, str)
        Every label with the name of its space.
    tensors : tuple of Tensor
        Declared tensors. Targets of statements need no declaration.
    statements : tuple of TensorStatement
        In the order in which they are computed.

    Raises
    ------
    ExpressionError
        If a name is declared twice or not at all, or if labels of a tensor run over other spaces than its axes.

    Examples
    --------
    >>> o, v = Space("o", 2), Space("v", 3)
    >>> t, w = Tensor("t", (v, v, o, o)), Tensor("w", (v, v, v, v))
    >>> program = Program.of({"abcd": v, "ij": o}, ("R", "abij", w["abcd"] * t["cdij"]))
    >>> print(program)
    R[a,b,i,j] = w[a,b,c,d] * t[c,d,i,j]
    >>> program.inputs, program.targets
    (('w', 't'), ('R',))
    """

    spaces: tuple[Space, ...]
    labels: tuple[tuple[str, str], ...]
    tensors: tuple[Tensor, ...]
    statements: tuple[TensorStatement, ...]

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
        """Return the program of assignments written as Python objects.

        Parameters
        ----------
        labels : mapping
            Labels -> their space: ``{"abcd": v, "ijkl": o}``.
        *assignments : (str, str or tuple of str, Sum)
            Name of the target, its labels and its value. A later assignment to the same target is added to it.
        """
        spaces = tuple(dict.fromkeys(labels.values()))
        pairs = tuple((label, space.name) for group, space in labels.items() for label in split_labels(group))
        tensors = tuple(dict.fromkeys(tensor for _, _, value in assignments for tensor in value.tensors))
        seen: set[str] = set()
        statements = []
        for name, target, value in assignments:
            statements.append(TensorStatement(Factor(name, split_labels(target)), value.terms, accumulate=name in seen))
            seen.add(name)
        return Program(spaces, pairs, tuple(t for t in tensors if t.name not in seen), tuple(statements))

    def space(self, label: str) -> Space:
        """Return the space that the label runs over."""
        name = dict(self.labels)[label]
        return next(space for space in self.spaces if space.name == name)

    def tensor(self, name: str) -> Tensor | None:
        """Return the declared tensor of this name, None if there is none."""
        return next((tensor for tensor in self.tensors if tensor.name == name), None)

    @property
    def inputs(self) -> tuple[str, ...]:
        """Names of the arrays that a run needs: declared tensors that some statement reads or adds to."""
        read = {factor.tensor for s in self.statements for term in s.terms for factor in term.factors}
        read |= {s.target.tensor for s in self.statements if s.accumulate}
        return tuple(t.name for t in self.tensors if t.name in read and not is_identity(t.name))

    @property
    def targets(self) -> tuple[str, ...]:
        """Names of all targets in order of first assignment."""
        return tuple(dict.fromkeys(statement.target.tensor for statement in self.statements))

    def sized(self, **extents: int | tuple[int, ...]) -> Program:
        """Return the program with extents of spaces, or of their blocks, filled in: ``sized(o=10, v=(19, 19))``."""
        names = [space.name for space in self.spaces]
        if unknown := [name for name in extents if name not in names]:
            raise ExpressionError(f"there is no space {unknown[0]}; spaces are {', '.join(names)}")
        spaces = {s.name: s.sized(extents[s.name]) if s.name in extents else s for s in self.spaces}
        tensors = tuple(replace(t, spaces=tuple(spaces[s.name] for s in t.spaces)) for t in self.tensors)
        return replace(self, spaces=tuple(spaces.values()), tensors=tensors)

    def shaped(self, shapes: Mapping[str, tuple[int, ...]]) -> Program:
        """Return the program with extents filled in from the shapes of arrays.

        Parameters
        ----------
        shapes : mapping
            Name of a tensor -> shape of its array.

        Raises
        ------
        ExpressionError
            If there is no such tensor, or if shapes contradict each other or declared extents.
        """
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
        """Return every label with its extent; raises ExpressionError where an extent is unknown."""
        if missing := [space.name for space in self.spaces if space.extent is None]:
            raise ExpressionError(
                f"the extent of space {missing[0]} is not known: state it in the program, or pass the arrays"
            )
        return {label: Index(label, self.space(label).extent or 0, self.space(label).name) for label, _ in self.labels}

    def __str__(self) -> str:
        return "\n".join(map(str, self.statements))


def check_factor(factor: Factor, labels: Mapping[str, str], shapes: Mapping[str, tuple[str, ...]]) -> None:
    """Check a factor against the spaces of labels and of the axes of tensors, by name.

    Raises ExpressionError if a label or the tensor is not declared, or if their spaces differ.
    """
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
            actual = f"index {label} over {labels[label]}"
            raise ExpressionError(f"axis {axis} of {factor.tensor} runs over space {space}; found {actual}", axis)


def check_target(statement: TensorStatement, shapes: Mapping[str, tuple[str, ...]]) -> None:
    """Check the target of a statement against its terms, given the `shapes` of tensors that have a value.

    Raises ExpressionError if a label of the target repeats or is missing in a term, if a term has no tensor, or if the
    statement adds to a target that has no value.
    """
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
    """Check every factor and target against the declarations and the results of earlier statements."""
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
