"""The tensors of a program by number: operands, workspaces of the intermediates, and the result."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from trnqc.gen import Array, Value
from trnqc.sparse.lower.append import Appended
from trnqc.sparse.lower.state import Extents, LoweringState, OperandArrays
from trnqc.sparse.lower.workspace import WorkspaceArrays
from trnqc.sparse.network.loops import stored
from trnqc.sparse.network.nest import Assignment, Format, Nest, Workspace
from trnqc.sparse.network.network import Indices

OUT = Array("out", "f64")


@dataclass(frozen=True)
class ProgramTensors:
    """The tensors of a program.

    The nest computes the result in its stored order; `lanes` are the doubles of a vector, `workspaces` are by number of
    tensor, and `appended` is None for a dense result. If turns of an outermost loop are `concurrent`, as on a GPU, they
    add to tensors of all turns by operations that no other turn can interrupt.
    """

    nest: Nest
    lanes: int
    extents: Extents
    operands: tuple[OperandArrays, ...]
    workspaces: Mapping[int, WorkspaceArrays]
    appended: Appended | None
    concurrent: bool = False

    @property
    def result(self) -> int:
        """The number of the result."""
        return len(self.operands) + len(self.workspaces)

    def target(self, member: int) -> int:
        """Return the number of the tensor that an assignment computes."""
        return self.nest.assignments[member].target

    def order(self, tensor: int) -> Indices:
        """Return the indices of a tensor in stored order, outermost first."""
        if tensor in self.workspaces:
            return self.workspaces[tensor].spec.order
        return self.nest.formats[min(tensor, len(self.operands))].order

    def is_array(self, tensor: int) -> bool:
        """Whether all elements of a tensor are stored, in row-major order."""
        if tensor in self.workspaces:
            return self.workspaces[tensor].spec.space == "dense"
        f = self.nest.formats[min(tensor, len(self.operands))]
        return not f.sparse and not f.ones

    def is_row(self, tensor: int, index: str) -> bool:
        """Whether an operand or a workspace is contiguous along an index."""
        if tensor in self.workspaces:
            return self.is_array(tensor) and self.order(tensor)[-1] == index
        f = self.nest.formats[tensor]
        return f.order[-1] == index and f.kinds[-1] == "dense" and not f.ones

    def array(self, tensor: int) -> Array:
        """Return the values of a tensor of which all elements are stored."""
        if tensor in self.workspaces:
            return self.workspaces[tensor].array
        return self.operands[tensor].values if tensor < len(self.operands) else OUT

    def of_all_turns(self, tensor: int) -> bool:
        """Whether concurrent turns add to the tensor, which is the result or a workspace of several functions."""
        return self.concurrent and (tensor == self.result or self.workspaces[tensor].kept)

    def element(self, tensor: int, bound: Mapping[str, Value]) -> Value:
        """Return an element of a tensor of which all elements are stored. bound: values of the indices."""
        return self.array(tensor)[self.extents.offset(self.order(tensor), bound)]

    def row(self, tensor: int, index: str, at: Value, state: LoweringState) -> tuple[Array, Value]:
        """Return the array and the position of the element at value `at` of `index`, along which it is contiguous."""
        if tensor in self.workspaces:
            return self.array(tensor), self.extents.offset(self.order(tensor), {**state.bound, index: at})
        level, position = state.at[tensor]
        return self.array(tensor), position * self.extents.value(index) + at if level else at


def tensors_of(nest: Nest, lanes: int, concurrent: bool = False) -> ProgramTensors:
    """Return the tensors of a nest that computes its result in stored order."""
    extents = Extents(nest.network.extents, _innermost(nest))
    count = len(nest.network.inputs)
    operands = tuple(OperandArrays(t, f, extents) for t, f in enumerate(nest.formats[:-1]))
    workspaces = {
        t: WorkspaceArrays(extents, t, spec, nest.fused(t) == 0, concurrent, _in_order(nest, t, spec, concurrent))
        for t, spec in enumerate(nest.workspaces, count)
    }
    result = count + len(nest.workspaces)
    appended = Appended(extents, result, stored(nest)) if nest.formats[-1].sparse else None
    return ProgramTensors(nest, lanes, extents, operands, workspaces, appended, concurrent)


def _in_order(nest: Nest, t: int, spec: Workspace, concurrent: bool) -> bool:
    """Whether only a sparse result reads a workspace with a list, in the order of its elements.

    The other factors of the result are operands that store all values of the indices of the workspace.
    """
    last, shared = nest.assignments[-1], nest.fused(t)
    if not nest.formats[-1].sparse or t not in last.operands or spec.space != "listed" or not spec.order:
        return False
    if concurrent and not shared:
        # Turns that run at the same time add to it. Bits of two elements of a word would get lost.
        return False
    others = [nest.formats[x] if x < len(nest.network.inputs) else None for x in last.operands if x != t]
    all_values = all(f is not None and not _compressed(f) & set(spec.order) for f in others)
    return all_values and last.loops == nest.formats[-1].order and last.loops[shared:] == spec.order


def _compressed(f: Format) -> set[str]:
    return {index for index, kind in zip(f.order, f.kinds) if kind == "compressed"}


def _innermost(nest: Nest) -> frozenset[str]:
    """Return the indices of innermost loops over all values, whose extents are constants in the program."""

    def driven(a: Assignment, index: str) -> bool:
        inputs = (nest.formats[t] for t in a.operands if t < len(nest.network.inputs))
        return any(dict(zip(f.order, f.kinds)).get(index) == "compressed" for f in inputs)

    return frozenset(index for a in nest.assignments for index in a.loops[-1:] if not driven(a, index))
