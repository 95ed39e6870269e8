"""Plans of programs: every term in its best order, and sub-products that terms share computed once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from fractions import Fraction

from trnqc.contraction.computation import Part, SumAssignment
from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.ladder.pattern import Ladder, ladder_of, may_be_ladder
from trnqc.contraction.order.block_sparsity import blocked, has_blocks
from trnqc.contraction.order.canonical import Item, Key
from trnqc.contraction.order.exchanges import exchanges_of
from trnqc.contraction.order.factorisation import factorised
from trnqc.contraction.order.network import LabelNetwork
from trnqc.contraction.order.operations import EXACT, build, minimise
from trnqc.contraction.order.sharing import PlannedTerm, Sharing
from trnqc.contraction.order.symmetric_pairs import symmetric_work, with_pairs
from trnqc.contraction.plan import Plan
from trnqc.contraction.tree import Tree
from trnqc.errors import ExpressionError
from trnqc.expression.deltas import without_summed_deltas
from trnqc.expression.operand import Leaf
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.spaces import Index
from trnqc.expression.symmetry import Exchange, Symmetry
from trnqc.expression.terms import Term


def plan_program(program: Program, outputs: Sequence[str] = (), share: bool = True, factor: bool = True) -> Plan:
    """Return the plan of all statements, whose extents must be known, over blocks where tensors state their blocks.

    By default it returns targets that no later statement reads, shares sub-products between terms and takes out common
    factors.
    """
    outputs = tuple(outputs) or unread(program)
    if unknown := [name for name in outputs if name not in program.targets]:
        raise ExpressionError(f"{unknown[0]} is no target; targets are {', '.join(program.targets)}")
    title, program = str(program), without_summed_deltas(program)
    plan = _planned(program, outputs, share)
    if factor and (other := factorised(program)) != program:
        plan = min(plan, _planned(other, outputs, share), key=lambda candidate: candidate.multiply_adds)
    whole = _Planner(program, share=False)
    declared = tuple((t.name, t.every_exchange) for t in program.tensors if not t.cost)
    return replace(plan, title=title, inputs=whole.arrays(), direct=whole.direct(), exchanges=declared)


def _planned(program: Program, outputs: tuple[str, ...], share: bool) -> Plan:
    """Return the plan of a program as it is written, over blocks if it has any."""
    if not has_blocks(program):
        return _Planner(program, share).plan(outputs)
    over_blocks = blocked(program)
    blocks = tuple(block for name in outputs for _, block in over_blocks.targets[name].blocks)
    return replace(_Planner(over_blocks.program, share).plan(blocks), outputs=outputs, blocked=over_blocks)


def unread(program: Program) -> tuple[str, ...]:
    """Return the targets that no other statement reads; the last target if there are none."""
    read = {
        factor.tensor
        for statement in program.statements
        for term in statement.terms
        for factor in term.factors
        if factor.tensor != statement.target.tensor
    }
    return tuple(name for name in program.targets if name not in read) or program.targets[-1:]


class _Planner:
    """Plans the statements of one program; assignments are collected in order."""

    def __init__(self, program: Program, share: bool) -> None:
        self.program = program
        self.indices = program.indices()
        self.extents = {label: index.extent for label, index in self.indices.items()}
        # Nothing is known about targets, nor about declared tensors that statements change.
        self.symmetries = {t.name: t.symmetries for t in program.tensors if t.name not in program.targets}
        self.exchanges = {t.name: t.every_exchange for t in program.tensors if t.name in self.symmetries}
        self.inputs = {name: number for number, name in enumerate(program.inputs)}
        self.terms: list[list[PlannedTerm]] = []
        self._read(program)
        self.sharing = Sharing([term for terms in self.terms for term in terms]) if share else None
        self.shared: dict[Key, tuple[str, int]] = {}
        self.assignments: list[SumAssignment] = []
        self.temporaries = 0

    def _read(self, program: Program) -> None:
        """Collect the terms. A target is another tensor after each statement that changes it."""
        versions: dict[str, int] = {}
        symmetries: dict[str, tuple[Symmetry, ...]] = {t.name: t.symmetries for t in program.tensors}
        for statement in program.statements:
            terms = []
            for term in statement.terms:
                items = tuple(Item(_versioned(f.tensor, versions), f.labels, f.reciprocal) for f in term.factors)
                terms.append(PlannedTerm(items, statement.target.labels, self.extents, symmetries))
            self.terms.append(terms)
            versions[statement.target.tensor] = versions.get(statement.target.tensor, 0) + 1

    def plan(self, outputs: tuple[str, ...]) -> Plan:
        """Return the plan."""
        for statement, terms in zip(self.program.statements, self.terms):
            parts = []
            for number, (written, term) in enumerate(zip(statement.terms, terms)):
                name = statement.target.tensor + (f".{number + 1}" if len(terms) > 1 or statement.function else "")
                parts.append(self._part(name, written.coefficient, term))
            target = statement.target
            self.assignments.append(
                SumAssignment(target.tensor, target.labels, tuple(parts), statement.accumulate, statement.function)
            )
        return Plan(str(self.program), tuple(self.assignments), self.arrays(), outputs, self.direct())

    def arrays(self) -> tuple[tuple[str, tuple[str, ...]], ...]:
        """Return (name, labels) of the arrays that a run needs."""
        return tuple((name, self._declared(name)) for name in self.inputs)

    def direct(self) -> MonomialSum:
        """Return the operations of one loop nest for every term."""
        statements = self.program.statements
        return sum(
            (self._direct(term, statement) for statement in statements for term in statement.terms), MonomialSum()
        )

    def _declared(self, name: str) -> tuple[str, ...]:
        """Return labels that show the shape of an input: the labels where the input is first used."""
        for statement in self.program.statements:
            for factor in [f for term in statement.terms for f in term.factors] + [statement.target]:
                if factor.tensor == name:
                    return factor.labels
        raise ExpressionError(f"{name} is not used")

    def _direct(self, written: Term, statement: TensorStatement) -> MonomialSum:
        """Return the operations of one term in one loop nest."""
        labels = written.labels
        operations = len(written.factors) - 1 + bool(set(labels) - set(statement.target.labels))
        return operations * MonomialSum.product(self.indices[label].symbol for label in labels)

    def _part(self, name: str, coefficient: Fraction, term: PlannedTerm) -> Part:
        """Return a term as a part of an assignment."""
        everything = term.network.everything
        shared = self.sharing.chosen if self.sharing else frozenset()
        if self.sharing and self.sharing.whole(term, shared):
            leaf, sign = self._shared(term, everything)
            return Part(coefficient * sign, self._tree(name, [leaf], term.kept))
        if not term.parts or not shared & term.keys:
            tree = self._tree(name, [self._leaf(item) for item in term.items], term.kept)
            return Part(coefficient, tree, ladder=self._ladder(tree))
        leaves, splits, sign = self._planned(term, everything, shared)
        return Part(coefficient * sign, self._tree(name, leaves, term.kept, splits))

    def _planned(
        self, term: PlannedTerm, part: int, shared: frozenset[Key]
    ) -> tuple[list[Leaf], dict[int, tuple[int, int]], int]:
        """Return leaves, order and sign of a part of a term in which shared sub-products have become leaves."""
        _, splits, used = term.plan(part, shared)
        atoms = list(used) + [1 << k for k in range(len(term.items)) if part >> k & 1 and not _within(k, used)]
        leaves, sign = [], 1
        for atom in atoms:
            if atom in used:
                leaf, factor = self._shared(term, atom)
                sign *= factor
            else:
                leaf = self._leaf(term.items[atom.bit_length() - 1])
            leaves.append(leaf)

        def renamed(chosen: int) -> int:
            return sum(1 << k for k, atom in enumerate(atoms) if atom & chosen)

        return leaves, {renamed(p): (renamed(a), renamed(b)) for p, (a, b) in splits.items()}, sign

    def _shared(self, term: PlannedTerm, part: int) -> tuple[Leaf, int]:
        """Return the leaf of a shared product and its sign here; the product is planned where it is first needed."""
        assert self.sharing is not None
        form = term.parts[part]
        if form.key not in self.shared:
            home, at = self.sharing.home[form.key]
            home_form = home.parts[at]
            leaves, splits, sign = self._planned(home, at, self.sharing.chosen - {form.key})
            name = self._free_name()
            tree = self._tree(name, leaves, home_form.labels, splits)
            self.assignments.append(SumAssignment(name, home_form.labels, (Part(Fraction(1), tree),)))
            self.shared[form.key] = name, sign * home_form.sign
        name, sign = self.shared[form.key]
        return Leaf(name, form.labels, -1), sign * form.sign

    def _ladder(self, tree: Tree) -> Ladder | None:
        """Return the ladder that a tree computes, if any."""
        names = {leaf.name for leaf in tree.leaves}
        # Symmetry of computed tensors takes time to derive: only where the shapes are those of a ladder.
        if not may_be_ladder(tree):
            return None
        return ladder_of(tree, {name: exchanges_of(self.program, name) for name in names})

    def _free_name(self) -> str:
        """Return a name for a shared product that no tensor has."""
        taken = {tensor.name for tensor in self.program.tensors} | set(self.program.targets)
        number = len(self.shared) + 1
        while f"S{number}" in taken:
            number += len(self.program.targets)
        return f"S{number}"

    def _leaf(self, item: Item) -> Leaf:
        """Return a factor as a leaf."""
        name = item.name.partition("@")[0]
        tensor = self.program.tensor(name)
        cost = tensor.cost if tensor else 0
        return Leaf(name, item.labels, self.inputs.get(name, -1), cost, item.reciprocal)

    def _tree(
        self, name: str, leaves: list[Leaf], kept: tuple[str, ...], splits: dict[int, tuple[int, int]] | None = None
    ) -> Tree:
        """Return the tree of leaves in this order, or in the best one."""
        first = self.temporaries + 1
        symmetries = {leaf.name: self.symmetries.get(leaf.name, ()) for leaf in leaves}
        if splits is None:
            tree = best_tree(leaves, kept, self.indices, name, symmetries, first, self.exchanges)
        else:
            network = LabelNetwork.of([leaf.indices for leaf in leaves], kept, self.extents)
            tree = build(network, splits, leaves, kept, self.indices, name, first)
            tree = with_pairs(tree, symmetries, exchanges=self.exchanges)
        self.temporaries += len(tree.temporaries)
        return tree


def best_tree(
    leaves: list[Leaf],
    kept: tuple[str, ...],
    indices: Mapping[str, Index],
    name: str,
    symmetries: Mapping[str, Sequence[Symmetry]],
    first: int = 1,
    exchanges: Mapping[str, Sequence[Exchange]] | None = None,
) -> Tree:
    """Return the tree of least work, with the pairs of labels over which its steps run once.

    `symmetries` and `exchanges` are by name of leaf; for the other parameters see `minimise`.
    """
    trees = [minimise(leaves, kept, indices, name, (), first)]
    if any(symmetries.values()) and 2 < len(leaves) <= EXACT:
        # With loops over unique pairs another order may be better.
        trees.append(minimise(leaves, kept, indices, name, [symmetries.get(leaf.name, ()) for leaf in leaves], first))
    return min((with_pairs(tree, symmetries, exchanges=exchanges) for tree in trees), key=symmetric_work)


def _within(operand: int, parts: tuple[int, ...]) -> bool:
    """Return whether an operand is in one of the parts."""
    return any(part >> operand & 1 for part in parts)


def _versioned(name: str, versions: Mapping[str, int]) -> str:
    """Return the name of a tensor with the number of times that statements have changed it."""
    return f"{name}@{versions[name]}" if name in versions else name
