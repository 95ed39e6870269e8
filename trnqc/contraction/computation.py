"""What a plan computes, as data: assignments of sums of operation trees, and what they cost.

    Computation ─► assignments in order ─► each a sum of parts ─► each an operation tree, with or without fused loops

Everything here is immutable and knows neither arrays nor the machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Any

from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.distribute.distribution import TreeDistribution, distribute
from trnqc.contraction.distribute.placement import Grid
from trnqc.contraction.kernels import LIBRARY, Kernels
from trnqc.contraction.ladder.loops import LadderLoops
from trnqc.contraction.ladder.pattern import Ladder
from trnqc.contraction.lower.axis_orders import axis_orders
from trnqc.contraction.lower.chains import StepChain, chains
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.lower.prepared import Run, prepared
from trnqc.contraction.lower.steps import LoweredStep
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.order.block_sparsity import Blocked
from trnqc.contraction.order.symmetric_pairs import unique
from trnqc.contraction.pair_energy import PairForm
from trnqc.contraction.tape.nests import NestTapes
from trnqc.contraction.tree import Tree
from trnqc.expression.symmetry import Exchange
from trnqc.expression.terms import is_identity


@dataclass(frozen=True)
class Part:
    """One summand of an assignment: an exact coefficient times the result of an operation tree.

    A schedule fuses loops if the steps would hold more than the memory limit. If the tree is a ladder, `loops` over its
    symmetric pairs may replace the steps and the schedule.
    """

    coefficient: Fraction
    tree: Tree
    schedule: TreeSchedule | None = None
    ladder: Ladder | None = None
    loops: LadderLoops | None = None

    @cached_property
    def steps(self) -> tuple[LoweredStep, ...]:
        """The tree as array operations, in order."""
        return lower(self.tree)

    @cached_property
    def chains(self) -> tuple[StepChain, ...]:
        """The pairs of steps that run in turns on NumPy arrays."""
        return chains(self.tree, self.steps)

    @cached_property
    def calls(self) -> Run | None:
        """The steps as calls of NumPy for whole operands in the order of `names`; None if `run_steps` runs them."""
        return None if self.chains else prepared(self.tree, self.steps, self.names)

    @cached_property
    def axis_orders(self) -> dict[str, tuple[str, ...]]:
        """The axes of each temporary of the schedule, slowest first, searched once for all runs."""
        return axis_orders(self.schedule.nest) if self.schedule else {}

    @cached_property
    def tapes(self) -> NestTapes | None:
        """The loops of the schedule as instructions of one compiled function, where their steps are small."""
        return NestTapes(self.schedule, self.axis_orders) if self.schedule else None

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The names of the operands, each once."""
        return tuple(dict.fromkeys(leaf.name for leaf in self.tree.leaves))

    def __getstate__(self) -> dict[str, Any]:
        # Functions are made anew from the tree.
        return {name: value for name, value in self.__dict__.items() if name not in ("calls", "tapes")}

    @property
    def in_loops(self) -> LadderLoops | TreeSchedule | None:
        """The loops that replace the steps, if any."""
        return self.loops or self.schedule

    @property
    def unique_multiply_adds(self) -> int:
        """Multiply-adds with every pair of labels counted once over which a step runs once."""
        if self.loops:
            return self.loops.work
        pairs = {} if self.schedule else dict(self.tree.pairs)
        return sum(unique(self.tree, node.loops, pairs.get(node.name, ())) for node in self.tree.nodes)

    @property
    def executed_multiply_adds(self) -> int:
        """Multiply-adds that a run executes, with those that loops repeat."""
        return self.schedule.work if self.schedule and not self.loops else self.unique_multiply_adds

    def held(self, is_output: bool) -> Iterator[tuple[str, int]]:
        """Yield (name of a step, elements held while it runs), operands not counted.

        The result of the part is counted unless it is an output.
        """
        tree = self.tree
        if loops := self.in_loops:
            yield tree.root.name, loops.memory + (0 if is_output else tree.size(tree.root.indices))
            return
        functions = sum(tree.size(leaf.indices) for leaf in tree.leaves if leaf.cost)
        alive: dict[str, int] = {}
        for step in self.steps:
            node = step.node
            result = 0 if node is tree.root and is_output else tree.size(node.indices)
            yield node.name, functions + sum(alive.values()) + result + step.copies(tree)
            for operand in node.operands:
                alive.pop(operand.name, None)
            alive[node.name] = result


@dataclass(frozen=True)
class SumAssignment:
    """A target and the sum of parts, all with the axes `labels`, that is assigned or (`accumulate`) added to it.

    With a `function`, that of each element of the sum is assigned.
    """

    target: str
    labels: tuple[str, ...]
    parts: tuple[Part, ...]
    accumulate: bool = False
    function: str = ""

    @property
    def reads(self) -> set[str]:
        """Names of the arrays that the assignment needs."""
        names = {leaf.name for part in self.parts for leaf in part.tree.leaves}
        return names | {self.target} if self.accumulate else names


@dataclass(frozen=True)
class Computation:
    """Assignments in order, with their inputs, outputs and costs.

    Attributes
    ----------
    title : str
        The subscripts or the program.
    assignments : tuple of SumAssignment
        In the order in which they run.
    inputs : tuple of (str, tuple of str)
        Name and labels of every array that a run needs.
    outputs : tuple of str
        Names of the targets that a run returns.
    direct : MonomialSum
        Operations if every product were formed in one loop nest over all of its indices.
    blocked : Blocked or None
        How blocks make up inputs and outputs, if the assignments are over blocks.
    grid : tuple of int
        Processors along each dimension over which the trees are distributed; empty for none.
    pairs : tuple of PairForm
        The pair energies that the outputs are, which one fused kernel may compute.
    kernels : Kernels
        What multiplies matrices and computes pair energies.
    memory : int or None
        The memory limit in bytes for which the plan was made.
    exchanges : tuple of (str, tuple of Exchange)
        Declared symmetry of inputs, by name.
    time_limit : float or None
        Seconds that planning was allowed to take.
    omitted : tuple of str
        Searches that planning left out because the time was over, in words.
    """

    title: str
    assignments: tuple[SumAssignment, ...]
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[str, ...]
    direct: MonomialSum
    blocked: Blocked | None = None
    grid: Grid = ()
    pairs: tuple[PairForm, ...] = ()
    kernels: Kernels = LIBRARY
    memory: int | None = None
    exchanges: tuple[tuple[str, tuple[Exchange, ...]], ...] = ()
    time_limit: float | None = None
    omitted: tuple[str, ...] = ()

    @cached_property
    def parts(self) -> tuple[Part, ...]:
        """The parts of all assignments, in order."""
        return tuple(part for assignment in self.assignments for part in assignment.parts)

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        """The operation trees of all parts, in order."""
        return tuple(part.tree for part in self.parts)

    @property
    def multiply_adds(self) -> int:
        """Sum over all steps of the product of the extents of the step's indices."""
        return sum(tree.multiply_adds for tree in self.trees)

    @property
    def unique_multiply_adds(self) -> int:
        """`multiply_adds` with every pair of labels counted once over which a step runs once."""
        return sum(part.unique_multiply_adds for part in self.parts)

    @property
    def executed_multiply_adds(self) -> int:
        """Multiply-adds that a run executes: what loops within a limit or over slices repeat is counted each time.

        Pairs of labels over which a step runs once are counted once.
        """
        return sum(part.executed_multiply_adds for part in self.parts)

    @property
    def function_cost(self) -> int:
        """Multiply-adds of computing every element of every function once for each step that takes it."""
        return sum(tree.function_cost for tree in self.trees)

    @property
    def applied(self) -> int:
        """Number of elements of which functions such as exp are taken."""
        return sum(a.parts[0].tree.size(a.labels) for a in self.assignments if a.function)

    @property
    def symbolic_multiply_adds(self) -> MonomialSum:
        """`multiply_adds` as a polynomial in the symbols of the spaces."""
        return sum((tree.symbolic_multiply_adds for tree in self.trees), MonomialSum())

    @property
    def operations(self) -> MonomialSum:
        """Multiplications and additions, each counted as one operation."""
        return sum((tree.operations for tree in self.trees), MonomialSum())

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents by the symbols that counts are written in."""
        whole = dict(self.blocked.extents) if self.blocked else {}
        return {index.symbol: index.extent for tree in self.trees for index in tree.indices.values()} | whole

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shapes of the inputs by name."""
        if self.blocked:
            return {name: self.blocked.inputs[name].shape for name, _ in self.inputs}
        extents = {label: index.extent for tree in self.trees for label, index in tree.indices.items()}
        # Steps may read an input at other labels only, as where a product that occurs twice is computed once.
        read = {leaf.name: tuple(tree.extent(x) for x in leaf.indices) for tree in self.trees for leaf in tree.leaves}
        return {
            name: read[name] if name in read else tuple(extents[label] for label in labels)
            for name, labels in self.inputs
        }

    @cached_property
    def distributions(self) -> tuple[TreeDistribution, ...]:
        """How each tree is distributed over the grid; empty without a grid."""
        return tuple(distribute(tree, self.grid) for tree in self.trees) if self.grid else ()

    @cached_property
    def identities(self) -> frozenset[str]:
        """Names of the operands that are identities or blocks of them: functions whose elements are known."""
        return frozenset(leaf.name for tree in self.trees for leaf in tree.leaves if is_identity(leaf.name))

    @cached_property
    def divisors(self) -> frozenset[str]:
        """Inputs that something is divided by."""
        return frozenset(leaf.name for tree in self.trees for leaf in tree.leaves if leaf.reciprocal)

    @cached_property
    def kept(self) -> frozenset[str]:
        """Targets of assignments that are outputs, or blocks of outputs."""
        if self.blocked is None:
            return frozenset(self.outputs)
        return frozenset(block for name in self.outputs for _, block in self.blocked.targets[name].blocks)

    @cached_property
    def read_inputs(self) -> frozenset[str]:
        """Names of the arrays of the caller that steps read; a run that changes one holds it in the same place."""
        return frozenset(leaf.name for tree in self.trees for leaf in tree.leaves if leaf.operand >= 0)

    def last_reads(self) -> dict[str, int]:
        """Return for every array the number of the last assignment that reads it."""
        return {name: k for k, assignment in enumerate(self.assignments) for name in assignment.reads}

    @cached_property
    def peak(self) -> int:
        """Largest number of elements held at once beside inputs and outputs: temporaries and copies of operands."""
        return max((elements for _, elements in self.held()), default=0)

    def held(self) -> Iterator[tuple[str, int]]:
        """Yield (name of a step, elements held while it runs, its result included)."""
        for part, is_output, others in self.parts_in_memory():
            for name, elements in part.held(is_output):
                yield name, elements + others

    def parts_in_memory(self) -> Iterator[tuple[Part, bool, int]]:
        """Yield (part, whether its result is an output, elements that other results hold while it runs)."""
        last = self.last_reads()
        kept = self.kept | self.read_inputs
        alive: dict[str, int] = {}
        for k, assignment in enumerate(self.assignments):
            for number, part in enumerate(assignment.parts):
                yield part, assignment.target in kept and not number, sum(alive.values())
                if assignment.target not in kept:
                    alive[assignment.target] = part.tree.size(assignment.labels)
            for name in [name for name in alive if last.get(name, -1) <= k]:
                del alive[name]
