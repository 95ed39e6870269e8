"""The plan of a GPU kernel: the phases of a tensor product, and the bytes that they move.

problem, direction, element size, lanes -> phases (a slot of x, the paths that read it, channels of a lane) -> Plan

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
from trnqc.cg.problem.instructions import Instruction
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS, Direction
from trnqc.errors import UnsupportedError, UnsupportedMode

# Number of 32-bit registers of a lane for values. With registers for addresses and temporaries, a multiprocessor, which
# has 65536 registers, then runs 16 warps.
REGISTERS = 72
# Number of 32-bit registers of a lane for the sums of one channel over the edges of a node.
SUMS = 128
# Bytes of shared memory of a block, unless more is requested from the driver (CUDA C++ Programming Guide).
SHARED = 48 * 1024
# Largest number of channels that a lane computes at the same time.
WIDEST = 4


@dataclass(frozen=True)
class Phase:
    """Paths that read the same slot of x and are computed together.

    Parameters
    ----------
    i_in1 : int
        Number of the slot.
    paths : tuple of int
        Numbers of the paths.
    channels : int
        Number of channels that a lane computes at the same time.
    blocks : int
        Number of blocks of channels of the slot.
    """

    i_in1: int
    paths: tuple[int, ...]
    channels: int
    blocks: int


@dataclass(frozen=True)
class Plan:
    """The plan of a kernel.

    Parameters
    ----------
    problem : TPProblem
    direction : Direction
    size : int
        Bytes of an element.
    lanes : int
        Number of lanes of a warp.
    phases : tuple of Phase
    resident : tuple of int
        Numbers of the slots of z that stay in shared memory.
    """

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

    def _weights(self, paths: list[Instruction]) -> int:
        times = len(self.direction.reading("w")) * (not self.problem.shared_weights) + self.direction.gradients
        return times * sum(p.weight_numel for p in paths)

    def _output(self, slot: int, reads: int = 1) -> int:
        times = len(self.direction.reading("z")) * reads + bool(self.direction.output)
        return times * self.problem.irreps_out[slot].dim

    def _unreached(self) -> int:
        """Number of elements of the output that are set to zero because no path reaches them."""
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
        """Return the number of channels of a resident slot, padded to those of all lanes."""
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


def plan(problem: TPProblem, name: str, size: int, lanes: int = 32) -> Plan:
    """Return the plan of a direction.

    Parameters
    ----------
    problem : TPProblem
    name : str
        Key of the direction in `DIRECTIONS`.
    size : {4, 8}
        Bytes of an element.
    lanes : int, optional
        Number of lanes of a warp.

    Raises
    ------
    UnsupportedMode
        For paths of other modes than uvu and uvw.
    UnsupportedError
        If a warp needs more shared memory than a block has.
    """
    if others := sorted({path.connection_mode for path in problem.instructions} - {"uvu", "uvw"}):
        raise UnsupportedMode(
            f"on a GPU: expected paths of the modes uvu and uvw, found {', '.join(others)}: move the module's operands "
            "to the CPU, where there are all modes"
        )
    direction, words = DIRECTIONS[name], size // 4
    by_slot: dict[int, list[int]] = {}
    for n, path in sorted(enumerate(problem.instructions), key=lambda entry: entry[1].i_out):
        if 0 not in path.path_shape and problem.irreps_out[path.i_out].mul:
            by_slot.setdefault(path.i_in1, []).append(n)
    phases = tuple(
        _phase(problem, direction, slot, tuple(part), words, lanes)
        for slot, numbers in sorted(by_slot.items())
        for part in (_parts(problem, numbers, words) if direction.by == "receiver" else [numbers])
    )
    result = Plan(problem, direction, size, lanes, phases, _resident(problem, phases))
    if result.shared_bytes > SHARED:
        raise UnsupportedError(
            f"{name} of {problem.label or problem} needs {result.shared_bytes} bytes of shared memory for each warp "
            f"on a GPU, and a block has {SHARED}; use fewer channels in a slot"
        )
    return result


def _resident(problem: TPProblem, phases: tuple[Phase, ...]) -> tuple[int, ...]:
    """Return the slots of z to which paths of several phases, or paths that mix channels, lead."""
    reached: Counter[int] = Counter()
    for phase in phases:
        modes: dict[int, int] = {}
        for path in (problem.instructions[n] for n in phase.paths):
            modes[path.i_out] = max(modes.get(path.i_out, 1), 2 if path.connection_mode == "uvw" else 1)
        reached.update(modes)
    return tuple(sorted(slot for slot, times in reached.items() if times > 1))


def _parts(problem: TPProblem, numbers: list[int], words: int) -> list[list[int]]:
    """Divide paths into parts whose sums over the edges of a node fit in registers."""
    parts: list[list[int]] = []
    held = SUMS
    for n in numbers:
        width = words * problem.irreps_out[problem.instructions[n].i_out].ir.dim
        if held + width > SUMS:
            parts, held = [*parts, []], 0
        parts[-1].append(n)
        held += width
    return parts


def _phase(
    problem: TPProblem, direction: Direction, slot: int, numbers: tuple[int, ...], words: int, lanes: int
) -> Phase:
    """Return the phase of some paths, with as many channels of a lane as fit in registers."""
    mul, d1 = problem.irreps_in1[slot].mul, problem.irreps_in1[slot].ir.dim
    paths = [problem.instructions[n] for n in numbers]
    widths = [problem.irreps_out[n].ir.dim for n in sorted({p.i_out for p in paths})]
    mixes = any(p.connection_mode == "uvw" for p in paths)
    most = 1 if mixes else min(WIDEST, -(-mul // lanes))
    # Sums over the edges of a node are in registers for all paths of the phase, other outputs for one path at a time.
    held = sum(widths) if direction.by == "receiver" else max(widths)
    per_channel = words * _values(direction, d1, held, max(widths))
    channels = max([c for c in (4, 2, 1) if c <= most and c * per_channel <= REGISTERS], default=1)
    return Phase(slot, numbers, channels, -(-mul // (lanes * channels)))


def _values(direction: Direction, d1: int, held: int, d3: int) -> int:
    """Return the approximate number of values of one channel that are in registers at the same time."""
    if not direction.gradients:
        return d1 * (3 if direction.double else 1) + held + 1
    if not direction.double:
        return 3 * d1 + d3 + 2
    return 5 * d1 + d3 * (2 if direction.output else 1) + 3
