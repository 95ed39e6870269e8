"""The loops that the contractions of a tree can share, enumerated by the Z3 solver, smallest workspaces first.

contractions -> precedence of assignments and of loops, fused loops of each intermediate -> fusions by order

The unknowns are a total order of the assignments, in which the maker of an intermediate precedes its reader, and a
total order of the loops of each assignment. Some indices of an intermediate are fused: they are the outermost loops, in
the same order, of its maker, its reader and all assignments between them. The other indices remain in its workspace,
and the order of a fusion is the largest number of indices that remain (Raje et al., CoNST, arXiv:2401.04836). Every "x
comes before y" is a proposition, so that this is a problem of satisfiability with a bound on a count. Operands add no
constraints: each has one reader, and its levels are stored in the order of the reader's loops.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from trnqc.sparse.network.network import Indices
from trnqc.sparse.network.tree import Contraction

# Steps of Z3 per second of time limit. Z3 is limited in steps, so that results do not depend on the machine.
STEPS_PER_SECOND = 4_000_000


@dataclass(frozen=True)
class LoopFusion:
    """The loops that contractions, run in this sequence, share with their readers, outermost first.

    `order` is the largest number of indices of a workspace.
    """

    order: int
    sequence: tuple[int, ...]
    fused: tuple[Indices, ...]


class Fusions:
    """The constraints of one tree.

    Parameters
    ----------
    contractions
        The contractions of the tree in post-order.
    operands
        Number of operands, which is also the number of the tensor that the first contraction computes.
    """

    def __init__(self, contractions: Sequence[Contraction], operands: int) -> None:
        import z3

        self.contractions = tuple(contractions)
        self.makers = range(len(contractions) - 1)
        self.reader = {t - operands: k for k, c in enumerate(contractions) for t in c.operands if t >= operands}
        self._z3: Any = z3
        self._context = z3.Context()
        self._solver = z3.SolverFor("QF_FD", ctx=self._context)
        self._solver.set("random_seed", 0)
        self._sequence = self._precedence("assignment", range(len(self.contractions)))
        self._loops = [self._precedence(f"loops {k}", c.loops) for k, c in enumerate(self.contractions)]
        self._fused = {(k, x): self._bool(f"fused {k} {x}") for k in self.makers for x in self.contractions[k].kept}
        for maker, reader in self.reader.items():
            self._solver.add(self._sequence[maker, reader])
            for k in range(len(self.contractions)):
                apart = [] if k in (maker, reader) else [self._sequence[k, maker], self._sequence[reader, k]]
                self._carry(maker, k, apart)

    def _bool(self, name: str) -> Any:
        return self._z3.Bool(name, ctx=self._context)

    def _precedence(self, name: str, items: Sequence[Any]) -> dict[tuple[Any, Any], Any]:
        """Return the propositions of a total order: (x, y) -> x comes before y."""
        before: dict[tuple[Any, Any], Any] = {}
        for x, y in combinations(items, 2):
            before[x, y] = self._bool(f"{name}: {x} before {y}")
            before[y, x] = self._z3.Not(before[x, y])
        for x, y, z in combinations(items, 3):
            for a, b, c in ((x, y, z), (x, z, y)):
                self._solver.add(self._z3.Or(before[b, a], before[c, b], before[a, c]))
        return before

    def _carry(self, maker: int, k: int, apart: list[Any]) -> None:
        """Require that the fused loops of `maker` are outermost in contraction k, unless one of `apart` holds."""
        z3, kept, loops, before = self._z3, self.contractions[maker].kept, self.contractions[k].loops, self._loops
        for x in kept:
            escape = [*apart, z3.Not(self._fused[maker, x])]
            if x not in loops:
                self._solver.add(z3.Or(escape))
                continue
            for y in loops:
                if y != x:
                    outside = [self._fused[maker, y]] if y in kept else []
                    self._solver.add(z3.Or([*escape, before[k][x, y], *outside]))
                if y != x and y in kept and k != maker:
                    both = [*escape, z3.Not(self._fused[maker, y])]
                    self._solver.add(z3.Or([*both, before[k][y, x], before[maker][x, y]]))

    def smallest_first(self, limit: int, seconds: float) -> Iterator[LoopFusion]:
        """Yield at most `limit` different fusions by increasing order; fewer if `seconds` do not suffice."""
        self._solver.set("rlimit", int(seconds * STEPS_PER_SECOND))
        most = max((len(self.contractions[k].kept) for k in self.makers), default=0)
        for order in range(most + 1):
            self._solver.push()
            for k in self.makers:
                kept = self.contractions[k].kept
                if len(kept) > order:
                    self._solver.add(self._z3.PbGe([(self._fused[k, x], 1) for x in kept], len(kept) - order))
            excluded = []
            while limit and self._solver.check() == self._z3.sat:
                fusion, otherwise = self._read(order)
                excluded.append(otherwise)
                limit -= 1
                yield fusion
                self._solver.add(otherwise)
            self._solver.pop()
            self._solver.add(excluded)

    def _read(self, order: int) -> tuple[LoopFusion, Any]:
        """Return the solver's model as a fusion, and the clause that excludes all models of this fusion."""
        z3, model = self._z3, self._solver.model()
        differences = [z3.BoolVal(False, ctx=self._context)]

        def holds(proposition: Any) -> bool:
            return z3.is_true(model.eval(proposition, model_completion=True))

        fused = []
        for k in self.makers:
            inside = [x for x in self.contractions[k].kept if holds(self._fused[k, x])]
            for x in self.contractions[k].kept:
                differences.append(z3.Not(self._fused[k, x]) if x in inside else self._fused[k, x])
            before = self._loops[k]
            inside.sort(key=lambda x: sum(holds(before[y, x]) for y in self.contractions[k].loops if y != x))
            differences += [before[y, x] for x, y in combinations(inside, 2)]
            fused.append(tuple(inside))
        numbers = range(len(self.contractions))
        sequence = sorted(numbers, key=lambda k: sum(holds(self._sequence[j, k]) for j in numbers if j != k))
        return LoopFusion(order, tuple(sequence), tuple(fused)), z3.Or(differences)
