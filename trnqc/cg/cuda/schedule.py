"""When a GPU's warp moves what: a tensor product cut into phases, as a plan that prints its traffic.

problem, pass, element size, lanes -> phases (a slot of x, the paths that read it, channels a lane) -> Plan

A warp takes an edge, or a node's edges one after another, and a lane takes channels. In a phase one slot of x, with the
gradients that belong to it, stays in registers, so every slot is read and written once however many paths it has. An
output that several phases add to, or whose channels paths mix, stays in shared memory. y is small: each phase reads it
anew and forms from it the couplings A[i, k] = sum_j C[i, j, k] y[j] of its paths.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs.directions import DIRECTIONS, Direction
from trnqc.errors import UnsupportedError, UnsupportedMode

# Registers for values: a multiprocessor with 64 Ki of them then holds 16 warps, addresses and temporaries included.
REGISTERS = 72
# Registers for sums over a node's edges, where those of one channel are more than that.
SUMS = 128
# Shared memory that a block has without asking the driver for more.
SHARED = 48 * 1024
WIDEST = 4


@dataclass(frozen=True)
class Phase:
    """Paths (numbers of instructions) that read one slot of x. channels: of a lane at once; blocks: how often."""

    i_in1: int
    paths: tuple[int, ...]
    channels: int
    blocks: int


@dataclass(frozen=True)
class Plan:
    """The phases of a pass, the output slots that stay in shared memory, and the bytes that an edge moves."""

    problem: TPProblem
    direction: Direction
    size: int
    lanes: int
    phases: tuple[Phase, ...]
    resident: tuple[int, ...]

    @cached_property
    def minimum(self) -> int:
        """Bytes when every element of every operand is moved once for an edge."""
        shared = self.problem.shared_weights
        names = [name for name in self._operands if not (shared and name[-1] == "w")]
        return self.size * sum(map(self.problem.row_length, names))

    @cached_property
    def moved(self) -> int:
        """Bytes that the phases move between global memory and a warp for an edge, nothing taken from caches.

        What lies at the node by which edges are sorted counts as if the node had this edge only.
        """
        elements = 0
        problem = self.problem
        for phase in self.phases:
            paths = [problem.instructions[n] for n in phase.paths]
            in1 = [n for n in self._operands if n[-1] == "x"]
            elements += len(in1) * problem.irreps_in1[phase.i_in1].dim
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

    @property
    def _operands(self) -> tuple[str, ...]:
        return (*self.direction.reads, *self.direction.writes)

    def _weights(self, paths: list[Instruction]) -> int:
        times = len(self.direction.reading("w")) * (not self.problem.shared_weights) + self.direction.gradients
        return times * sum(p.weight_numel for p in paths)

    def _output(self, slot: int, reads: int = 1) -> int:
        times = len(self.direction.reading("z")) * reads + bool(self.direction.output)
        return times * self.problem.irreps_out[slot].dim

    def _unreached(self) -> int:
        """Output elements that are only set to zero."""
        reached = {self.problem.instructions[n].i_out for phase in self.phases for n in phase.paths}
        out = sum(slot.dim for n, slot in enumerate(self.problem.irreps_out) if n not in reached)
        return out * bool(self.direction.output)

    @cached_property
    def shared(self) -> dict[str, int]:
        """Elements of each array in shared memory; see `device_program`."""
        problem, double, wide = self.problem, self.direction.double, self.lanes
        found: Counter[str] = Counter()

        def at_least(name: str, elements: int) -> None:
            found[name] = max(found[name], elements)

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
            found[f"{name}_kept"] = rows * (name in self._operands)
        return {name: n for name, n in sorted(found.items()) if n}

    def padded(self, slot: int) -> int:
        """Channels of a resident slot, with those of lanes that have none of their own."""
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
    """Paths whose couplings are formed together: all with one channel of y; any other alone, channel by channel."""
    single = tuple(n for n in phase.paths if problem.irreps_in2[problem.instructions[n].i_in2].mul == 1)
    return (*([single] if single else []), *((n,) for n in phase.paths if n not in single))


def plan(problem: TPProblem, name: str, size: int, lanes: int = 32) -> Plan:
    """The plan of a pass for numbers of `size` bytes.

    Raises UnsupportedMode for paths of other modes than uvu and uvw, UnsupportedError for what a block cannot hold.
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
    made = Plan(problem, direction, size, lanes, phases, _resident(problem, phases))
    if made.shared_bytes > SHARED:
        raise UnsupportedError(
            f"{name} of {problem.label or problem} needs {made.shared_bytes} bytes of shared memory a warp on a GPU, "
            f"and a block has {SHARED}; use fewer channels a slot"
        )
    return made


def _resident(problem: TPProblem, phases: tuple[Phase, ...]) -> tuple[int, ...]:
    """Output slots that more than one phase reaches, or a path that mixes channels."""
    reached: Counter[int] = Counter()
    for phase in phases:
        modes: dict[int, int] = {}
        for path in (problem.instructions[n] for n in phase.paths):
            modes[path.i_out] = max(modes.get(path.i_out, 1), 2 if path.connection_mode == "uvw" else 1)
        reached.update(modes)
    return tuple(sorted(slot for slot, times in reached.items() if times > 1))


def _parts(problem: TPProblem, numbers: list[int], words: int) -> list[list[int]]:
    """Paths whose sums over a node's edges fit in registers together."""
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
    """As many channels a lane as the registers hold."""
    mul, d1 = problem.irreps_in1[slot].mul, problem.irreps_in1[slot].ir.dim
    paths = [problem.instructions[n] for n in numbers]
    widths = [problem.irreps_out[n].ir.dim for n in sorted({p.i_out for p in paths})]
    mixes = any(p.connection_mode == "uvw" for p in paths)
    most = 1 if mixes else min(WIDEST, -(-mul // lanes))
    # Sums over a node's edges stay in registers for all paths of the phase, other outputs for one path at a time.
    held = sum(widths) if direction.by == "receiver" else max(widths)
    per_channel = words * _values(direction, d1, held, max(widths))
    channels = max([c for c in (4, 2, 1) if c <= most and c * per_channel <= REGISTERS], default=1)
    return Phase(slot, numbers, channels, -(-mul // (lanes * channels)))


def _values(direction: Direction, d1: int, held: int, d3: int) -> int:
    """The approximate number of values of one channel that live at once."""
    if not direction.gradients:
        return d1 * (3 if direction.double else 1) + held + 1
    if not direction.double:
        return 3 * d1 + d3 + 2
    return 5 * d1 + d3 * (2 if direction.output else 1) + 3
