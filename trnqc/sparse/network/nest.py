"""Nests of fused loops over a sparse tensor network: assignments in order, their loops, and which loops they share.

Tensors have numbers: first the operands, then the target of each assignment. The last assignment computes the result.
Two consecutive assignments may run inside the same outer loops. An intermediate that one computes (its maker) and the
other reads (its reader) is then needed during one turn of the shared loops only, and its workspace has the remaining
indices.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from trnqc.errors import ProgramError
from trnqc.sparse.network.network import Indices, Network

Kind = Literal["dense", "compressed"]
Space = Literal["dense", "listed", "hashed"]


@dataclass(frozen=True)
class Format:
    """How a tensor is stored: its indices, outermost first, and the kind of each level.

    With `ones` every stored element is 1 (a 0/1 map), and no values are stored.
    """

    order: Indices
    kinds: tuple[Kind, ...]
    ones: bool = False

    @property
    def sparse(self) -> bool:
        """Whether a level is compressed."""
        return "compressed" in self.kinds

    def __str__(self) -> str:
        levels = " ".join(f"{index}:{kind}" for index, kind in zip(self.order, self.kinds, strict=True))
        return f"({levels}{' ones' * self.ones})"


@dataclass(frozen=True)
class Workspace:
    """The memory of an intermediate during one turn of the loops that its maker and its reader share.

    `order` has its remaining indices, outermost first; none for a scalar. ``"dense"`` is an array of all elements,
    cleared in each turn; ``"listed"`` an array with a list of the elements that were written, so that only these are
    cleared and read; ``"hashed"`` a hash table of the elements that were written.
    """

    order: Indices
    space: Space = "dense"


@dataclass(frozen=True)
class Assignment:
    """target[...] += product of operands in `loops`, outermost first. Tensors are given by number."""

    target: int
    operands: tuple[int, ...]
    loops: Indices


@dataclass(frozen=True)
class Nest:
    """A way to compute a network.

    Parameters
    ----------
    network
        The product that is computed.
    assignments
        The k-th computes tensor ``len(network.inputs) + k``. All but the last compute intermediates, each of which one
        later assignment reads.
    shared
        For each assignment but the last, how many of its outermost loops it shares with the next one.
    formats
        The formats of the operands in order, and of the result.
    workspaces
        One for each intermediate.
    crowded
        Whether many elements of each row of a sparse result are expected to occur. If rows are computed out of order,
        they are then collected in an array that is read whole, not in a list of the elements that were written, and
        zeros are left out.
    """

    network: Network
    assignments: tuple[Assignment, ...]
    shared: tuple[int, ...]
    formats: tuple[Format, ...]
    workspaces: tuple[Workspace, ...]
    crowded: bool = False

    @cached_property
    def indices(self) -> tuple[Indices, ...]:
        """The indices of every tensor. An intermediate has the indices that the result or a later assignment needs."""
        known = list(self.network.inputs)
        waiting = list(range(len(known)))
        for assignment in self.assignments:
            waiting = [t for t in waiting if t not in assignment.operands]
            later = {index for t in waiting for index in known[t]} | set(self.network.output)
            known.append(tuple(index for index in assignment.loops if index in later))
            waiting.append(assignment.target)
        return tuple(known)

    def reader(self, tensor: int) -> int:
        """Return the number of the assignment that reads a tensor."""
        return next(k for k, assignment in enumerate(self.assignments) if tensor in assignment.operands)

    def fused(self, tensor: int) -> int:
        """Return the number of outermost loops that the maker of an intermediate shares with its reader."""
        maker = tensor - len(self.network.inputs)
        return min(self.shared[maker : self.reader(tensor)])

    @property
    def order(self) -> int:
        """The largest number of indices of a workspace."""
        return max((len(w.order) for w in self.workspaces), default=0)

    def check(self) -> Nest:
        """Return the nest itself. Raises ProgramError if the nest does not compute its network."""
        n = len(self.network.inputs)
        reads = sorted(t for a in self.assignments for t in a.operands)
        if reads != list(range(n + len(self.assignments) - 1)):
            raise ProgramError(f"every operand and intermediate must be read once; the assignments read {reads}")
        if len(self.shared) != len(self.assignments) - 1 or len(self.workspaces) != len(self.assignments) - 1:
            raise ProgramError(
                "a nest must have one entry of `shared` and one workspace for every assignment but the last"
            )
        for k, a in enumerate(self.assignments):
            wanted = {index for t in a.operands for index in self.indices[t]}
            if a.target != n + k or set(a.loops) != wanted or len(set(a.loops)) != len(a.loops):
                raise ProgramError(
                    f"assignment {k} must compute tensor {n + k} in loops over {sorted(wanted)}; found {a}"
                )
        for k, depth in enumerate(self.shared):
            if self.assignments[k].loops[:depth] != self.assignments[k + 1].loops[:depth]:
                raise ProgramError(f"the first {depth} loops of assignments {k} and {k + 1} must be equal to be shared")
        for k, workspace in enumerate(self.workspaces):
            outer = self.assignments[k].loops[: self.fused(n + k)]
            rest = [index for index in self.indices[n + k] if index not in outer]
            if not set(outer) <= set(self.indices[n + k]) or sorted(rest) != sorted(workspace.order):
                raise ProgramError(
                    f"tensor {n + k} has the indices {self.indices[n + k]} and shares loops {outer} with its reader; "
                    f"a workspace over {rest} was expected, found {workspace.order}"
                )
        for t, f in zip((*range(n), n + len(self.assignments) - 1), self.formats, strict=True):
            if sorted(f.order) != sorted(self.indices[t]):
                raise ProgramError(f"the format of tensor {t} must have the indices {self.indices[t]}; found {f.order}")
        return self
