"""The choice of a plan: which paths a phase computes, and how many channels a lane computes at the same time.

problem, direction, element size, lanes -> phases (a slot of x, the paths that read it, channels a lane) -> KernelPlan
"""

from __future__ import annotations

from collections import Counter

from trnqc.cg.cuda.plan import KernelPlan, Phase
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


def plan(problem: TPProblem, name: str, size: int, lanes: int = 32) -> KernelPlan:
    """Return the plan of the direction `name` for elements of `size` bytes, 4 or 8.

    Raises UnsupportedMode for paths of other modes than uvu and uvw, UnsupportedError if a warp needs more shared
    memory than a block has.
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
    result = KernelPlan(problem, direction, size, lanes, phases, _resident(problem, phases))
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
