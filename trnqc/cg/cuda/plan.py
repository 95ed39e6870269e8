"""The plan of a GPU kernel as data: its phases, its arrays in shared memory, and the bytes that it moves.

A warp computes an edge, or the edges of a node one after another, and a lane computes some channels. During a phase one
slot of x and its gradients stay in registers, so that a slot is read and written once for all its paths. Slots of z to
which several phases add, or whose channels are mixed by weights, stay in shared memory. y is small: each phase reads it
again and forms the couplings A[i, k] = sum_j C[i, j, k] y[j] of its paths from it.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import Direction


@dataclass(frozen=True)
class Phase:
    """Paths that read the same slot of x and are computed together, `channels` channels of a lane at a time."""

    i_in1: int
    paths: tuple[int, ...]
    channels: int
    blocks: int


@dataclass(frozen=True)
class KernelPlan:
    """The plan of a kernel for elements of `size` bytes; the `resident` slots of z stay in shared memory."""

    problem: TPProblem
    direction: Direction
    size: int
    lanes: int
    phases: tuple[Phase, ...]
    resident: tuple[int, ...]

    @cached_property
    def minimum(self) -> int:
        """Bytes of all operands of an edge, each of whose elements is moved once."""
        shared = self.problem.shared_weights
        names = [name for name in self.direction.operands if not (shared and name[-1] == "w")]
        return self.size * sum(map(self.problem.row_length, names))

    @cached_property
    def moved(self) -> int:
        """Bytes that the phases move between global memory and a warp for an edge, without the effect of caches.

        The operands of the node by which edges are sorted count as if the node had a single edge.
        """
        elements = 0
        problem = self.problem
        for phase in self.phases:
            paths = [problem.instructions[n] for n in phase.paths]
            elements += sum(n[-1] == "x" for n in self.direction.operands) * problem.irreps_in1[phase.i_in1].dim
            again = phase.blocks * sum(problem.irreps_in2[n].dim for n in {p.i_in2 for p in paths})
            elements += again * len(self.direction.reading("y"))
            elements += 2 * again * self.direction.gradients
            elements += self._weights(paths)
            elements += sum(self._output(n) for n in {p.i_out for p in paths} - set(self.resident))
        together = 1 if not self.direction.by else len(self.phases)
        elements += sum(self._output(n, together) for n in self.resident)
        used = {phase.i_in1 for phase in self.phases}
        idle = sum(slot.dim for n, slot in enumerate(problem.irreps_in1) if n not in used)
        return self.size * (elements + idle * self.direction.gradients + self._unreached())

    def _weights(self, paths: list[PathInstruction]) -> int:
        times = len(self.direction.reading("w")) * (not self.problem.shared_weights) + self.direction.gradients
        return times * sum(p.weight_numel for p in paths)

    def _output(self, slot: int, reads: int = 1) -> int:
        times = len(self.direction.reading("z")) * reads + bool(self.direction.output)
        return times * self.problem.irreps_out[slot].dim

    def _unreached(self) -> int:
        """Number of elements of the output that no path reaches and that are therefore set to zero."""
        reached = {self.problem.instructions[n].i_out for phase in self.phases for n in phase.paths}
        out = sum(slot.dim for n, slot in enumerate(self.problem.irreps_out) if n not in reached)
        return out * bool(self.direction.output)

    @cached_property
    def shared(self) -> dict[str, int]:
        """Number of elements of each array in shared memory."""
        problem, double, wide = self.problem, self.direction.double, self.lanes
        sizes: Counter[str] = Counter()

        def at_least(name: str, elements: int) -> None:
            sizes[name] = max(sizes[name], elements)

        for phase in self.phases:
            for number in phase.paths:
                path = problem.instructions[number]
                d1, _, d3 = (2 * l + 1 for l in problem.degrees(path))
                for d in (d1, d3):
                    at_least("stage", d * phase.channels * wide if problem.layout == "mul_ir" and d > 1 else 0)
                if path.connection_mode == "uvw":
                    for name in ("t", "t2") if double else ("t",):
                        at_least(name, wide * d3)
                    for name in (("tile", "tile2") if double else ("tile",)) if self.direction.gradients else ():
                        at_least(name, wide * (wide + 1))
            for part in phase_parts(problem, phase):
                table = couplings(problem, part)
                for name in ("a", "b") if double else ("a",):
                    at_least(name, -(-len(table.forms) // wide) * wide)
                at_least("partial", wide * table.pitch if self.direction.gradients else 0)
        rows = sum(self.padded(slot) * problem.irreps_out[slot].ir.dim for slot in self.resident)
        for name in ("z", "gz", "ggz"):
            sizes[f"{name}_kept"] = rows * (name in self.direction.operands)
        return {name: n for name, n in sorted(sizes.items()) if n}

    def padded(self, slot: int) -> int:
        """Return the number of channels of a resident slot, padded to the channels of all lanes."""
        mul, wide = self.problem.irreps_out[slot].mul, self.lanes
        steps = [
            wide * phase.channels
            for phase in self.phases
            if any(self.problem.instructions[n].i_out == slot for n in phase.paths)
        ]
        return max(-(-mul // step) * step for step in steps)

    @property
    def shared_bytes(self) -> int:
        return self.size * sum(self.shared.values())

    def __str__(self) -> str:
        problem, kept = self.problem, ", ".join(str(self.problem.irreps_out[n]) for n in self.resident)
        lines = [
            f"{problem.label or problem}: {self.direction.key}, {self.size} bytes a number, {self.lanes} lanes",
            f"  {self.moved} bytes moved an edge, {self.minimum} at least: {self.moved / max(1, self.minimum):.3f}x",
            f"  {self.shared_bytes} bytes shared: {', '.join(f'{k} {v}' for k, v in self.shared.items())}",
            f"  outputs kept in shared memory: {kept or 'none'}",
        ]
        for phase in self.phases:
            slots = ", ".join(str(problem.irreps_out[problem.instructions[n].i_out].ir) for n in phase.paths)
            lines.append(
                f"  x {problem.irreps_in1[phase.i_in1]}: {len(phase.paths)} paths to {slots}; "
                f"{phase.blocks} x {phase.channels} channels a lane"
            )
        return "\n".join(lines)


def phase_parts(problem: TPProblem, phase: Phase) -> tuple[tuple[int, ...], ...]:
    """Return the groups of paths whose couplings are computed together: all with one channel of y, the others alone."""
    single = tuple(n for n in phase.paths if problem.irreps_in2[problem.instructions[n].i_in2].mul == 1)
    return (*([single] if single else []), *((n,) for n in phase.paths if n not in single))
