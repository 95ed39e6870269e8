"""Block sparsity: a program over whole spaces becomes a program over their blocks, without blocks that are zero.

Spaces with blocks (alpha and beta, irreducible representations, neighbours) are divided. Labels, spaces and tensors of
the new program carry the numbers of their blocks as subscripts: t₀₁₀₁[a₀,b₁,i₀,j₁]. Which blocks of an input may differ
from zero is declared; those of computed tensors are derived. Of blocks that are equal by symmetry only one is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product
from types import ModuleType
from typing import Any

from trnqc.contraction.order.canonical import variants
from trnqc.contraction.products.arrays import Array
from trnqc.errors import ExpressionError
from trnqc.expression.functions import FUNCTIONS
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Factor, Tensor, Term

# Number of the block of each axis.
Numbers = tuple[int, ...]
# Digits -> subscript digits, for names of blocks.
SUBSCRIPTS = str.maketrans("0123456789", "₀₁₂₃₄₅₆₇₈₉")


@dataclass(frozen=True)
class Cut:
    """An array of the whole program as blocks, each with its position and name."""

    shape: tuple[int, ...]
    blocks: tuple[tuple[tuple[slice, ...], str], ...]

    def split(self, value: Any) -> dict[str, Any]:
        """Return the blocks by name, as views; for a function, functions of the slices of one block."""
        return {
            name: _shifted(value, slices) if callable(value) else value[(*slices, ...)] for slices, name in self.blocks
        }

    def join(self, library: ModuleType, values: Mapping[str, Array], like: Array) -> Array:
        """Return the whole array, zero outside of its blocks `values`.

        Without blocks it has the type and device of `like`.
        """
        blocks = [values[name] for _, name in self.blocks]
        like = blocks[0] if blocks else like
        whole = library.zeros(self.shape, dtype=like.dtype, device=like.device)
        for (slices, _), block in zip(self.blocks, blocks):
            whole[(*slices, ...)] = block
        return whole


@dataclass(frozen=True)
class Blocked:
    """A program over blocks, extents of the whole spaces, and how blocks make up its inputs and targets."""

    program: Program
    extents: Mapping[str, int]
    inputs: Mapping[str, Cut]
    targets: Mapping[str, Cut]


def has_blocks(program: Program) -> bool:
    """Return whether some tensor has blocks that are zero."""
    return any(space.blocks for space in program.spaces) and any(
        tensor.blocks is not None or tensor.conserving for tensor in program.tensors
    )


def blocked(program: Program) -> Blocked:
    """Return the program over blocks; all extents must be known."""
    return _Blocker(program).result()


def subscripted(name: str, numbers: Numbers) -> str:
    """Return a name with block numbers as subscripts."""
    text = ("·" if max(numbers, default=0) > 9 else "").join(map(str, numbers))
    return name + text.translate(SUBSCRIPTS)


def _shifted(function: Callable[..., Array], slices: tuple[slice, ...]) -> Callable[..., Array]:
    """Return a function of the slices of one block."""

    def block(*cuts: slice) -> Array:
        return function(*(slice(c.start + s.start, c.stop + s.start) for c, s in zip(cuts, slices)))

    return block


class _Blocker:
    """Translates a program statement by statement, and knows the blocks that may differ from zero so far."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.parts = {space.name: space.blocks or (space.extent or 0,) for space in program.spaces}
        self.labels = dict(program.labels)
        self.spaces: dict[str, tuple[str, ...]] = {}
        self.names: dict[str, dict[Numbers, str]] = {}
        self.unchanged = {tensor.name: tensor for tensor in program.tensors}
        self.statements: list[TensorStatement] = []
        for tensor in program.tensors:
            self.spaces[tensor.name] = tuple(space.name for space in tensor.spaces)
            self.names[tensor.name] = {numbers: self._named(tensor.name, numbers) for numbers in tensor.allowed}
        self.input_names = {name: dict(blocks) for name, blocks in self.names.items()}

    def result(self) -> Blocked:
        """Return the program over blocks."""
        for statement in self.program.statements:
            self._statement(statement)
        spaces = [Space(self._sub(s, (k,)), n) for s, parts in self.parts.items() for k, n in enumerate(parts)]
        labels = [
            (self._sub_label(label, k), self._sub(space, (k,)))
            for label, space in self.labels.items()
            for k in range(len(self.parts[space]))
        ]
        tensors = [block for tensor in self.program.tensors for block in self._blocks(tensor)]
        program = Program(tuple(spaces), tuple(labels), tuple(tensors), tuple(self.statements))
        inputs = {name: self._cut(name, self.input_names[name]) for name in self.program.inputs}
        targets = {name: self._cut(name, self.names[name]) for name in self.program.targets}
        return Blocked(program, {name: sum(parts) for name, parts in self.parts.items()}, inputs, targets)

    def _all(self, spaces: tuple[str, ...]) -> Iterator[Numbers]:
        """Yield the numbers of all blocks of a tensor over these spaces."""
        return product(*(range(len(self.parts[space])) for space in spaces))

    def _sub(self, space: str, numbers: Numbers) -> str:
        """Return the name of a block of a space."""
        return subscripted(space, numbers) if len(self.parts[space]) > 1 else space

    def _sub_label(self, label: str, number: int) -> str:
        """Return the name of a label within a block."""
        return self._sub(self.labels[label], (number,)).replace(self.labels[label], label, 1)

    def _named(self, name: str, numbers: Numbers) -> str:
        """Return the name of a block of a tensor, with subscripts only for axes that are divided."""
        cut = tuple(k for k, space in zip(numbers, self.spaces[name]) if len(self.parts[space]) > 1)
        return subscripted(name, cut) if cut else name

    def _blocks(self, tensor: Tensor) -> Iterator[Tensor]:
        """Yield the blocks of an input as tensors."""
        sized = {name: [Space(self._sub(name, (k,)), n) for k, n in enumerate(p)] for name, p in self.parts.items()}
        for numbers, name in self.input_names[tensor.name].items():
            symmetries = []
            for symmetry in tensor.symmetries:
                for number in sorted({numbers[axis] for axis in symmetry.axes}):
                    axes = tuple(axis for axis in symmetry.axes if numbers[axis] == number)
                    symmetries += [Symmetry(axes, symmetry.sign)] if len(axes) > 1 else []
            spaces = tuple(sized[space][k] for space, k in zip(self.spaces[tensor.name], numbers))
            yield Tensor(name, spaces, tuple(symmetries), tensor.cost)

    def _cut(self, name: str, blocks: Mapping[Numbers, str]) -> Cut:
        """Return how blocks make up an array."""
        parts = [self.parts[space] for space in self.spaces[name]]
        cuts = []
        for numbers, block in blocks.items():
            starts = [sum(part[:k]) for part, k in zip(parts, numbers)]
            slices = tuple(slice(start, start + part[k]) for start, part, k in zip(starts, parts, numbers))
            cuts.append((slices, block))
        return Cut(tuple(sum(part) for part in parts), tuple(cuts))

    def _statement(self, statement: TensorStatement) -> None:
        """Append the statements of all blocks of a target."""
        target = statement.target
        spaces = tuple(self.labels[label] for label in target.labels)
        self.spaces.setdefault(target.tensor, spaces)
        before = self.names.get(target.tensor, {}) if statement.accumulate else {}
        after = dict(before)
        # A statement that reads its own target must not see blocks that it has just changed.
        reads_itself = any(f.tensor == target.tensor for term in statement.terms for f in term.factors)
        for numbers in self._all(spaces):
            chosen = dict(zip(target.labels, numbers))
            terms = [new for term in statement.terms for new in self._terms(term, chosen)]
            if not terms:
                if statement.function and not FUNCTIONS[statement.function].is_zero_at_zero:
                    raise ExpressionError(
                        f"{statement.function} is not 0 at 0, but block {numbers} of its argument is: {statement}; "
                        "declare tensors of the argument without blocks"
                    )
                continue
            labels = tuple(self._sub_label(label, chosen[label]) for label in target.labels)
            adds = numbers in before
            name = before[numbers] if adds else self._named(target.tensor, numbers)
            if reads_itself:
                name = self.names.get(target.tensor, {}).get(numbers, name) + "′"
                if adds:
                    terms.insert(0, Term(Fraction(1), (Factor(before[numbers], labels),)))
            adding = adds and not reads_itself
            self.statements.append(TensorStatement(Factor(name, labels), tuple(terms), adding, statement.function))
            after[numbers] = name
        self.names[target.tensor] = after
        self.unchanged.pop(target.tensor, None)

    def _terms(self, term: Term, chosen: Mapping[str, int]) -> Iterator[Term]:
        """Yield the terms over blocks that contribute to a block of the target; chosen: block of each of its labels."""
        summed = [label for label in term.labels if label not in chosen]
        for numbers in product(*(range(len(self.parts[self.labels[label]])) for label in summed)):
            block_term = self._term(term, {**chosen, **dict(zip(summed, numbers))})
            if block_term is not None:
                yield block_term

    def _term(self, term: Term, chosen: Mapping[str, int]) -> Term | None:
        """Return the term for one block of every label; None if a factor is zero there."""
        places = [tuple(chosen[label] for label in factor.labels) for factor in term.factors]
        nonzero = [numbers in self.names[factor.tensor] for factor, numbers in zip(term.factors, places)]
        if not all(ok or factor.reciprocal for ok, factor in zip(nonzero, term.factors)):
            return None
        factors, sign = [], 1
        for factor, numbers, ok in zip(term.factors, places, nonzero):
            if not ok:
                raise ExpressionError(f"{term} divides by a block of {factor} that is zero: {numbers}")
            labels, numbers, odd = self._representative(factor, numbers)
            sign *= odd
            names = tuple(self._sub_label(label, chosen[label]) for label in labels)
            factors.append(replace(factor, tensor=self.names[factor.tensor][numbers], labels=names))
        return Term(term.coefficient * sign, tuple(factors))

    def _representative(self, factor: Factor, numbers: Numbers) -> tuple[tuple[str, ...], Numbers, int]:
        """Return labels, numbers and sign of the first of all blocks that are equal to this one by symmetry."""
        tensor = self.unchanged.get(factor.tensor)
        if tensor is None or not tensor.symmetries:
            return factor.labels, numbers, 1
        axes = tuple(map(str, range(len(numbers))))
        orders = []
        for order, sign in variants(axes, tensor.symmetries):
            turned = [int(axis) for axis in order]
            orders.append((tuple(numbers[axis] for axis in turned), tuple(turned), sign))
        least, turned_axes, sign = min(orders, key=lambda item: item[:2])
        if least not in self.names[factor.tensor]:
            return factor.labels, numbers, 1
        return tuple(factor.labels[axis] for axis in turned_axes), least, sign
