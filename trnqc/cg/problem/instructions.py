"""The paths of a tensor product, called instructions in e3nn, and their selection rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from math import inf, prod
from typing import Any

from trnqc.cg.problem.irreps import Irreps
from trnqc.cg.problem.modes import MODES
from trnqc.errors import InstructionError, UnsupportedMode


@dataclass(frozen=True)
class PathInstruction:
    """A path: slot i_in1 of x times slot i_in2 of y, added to slot i_out of z.

    `path_weight` includes all normalisation, as in e3nn after the square root; `path_shape` is the shape of the
    weights, (mul1, mul2) for uvu and (mul1, mul2, mul3) for uvw, and `weight_offset` their start among all weights in
    e3nn's order.
    """

    i_in1: int
    i_in2: int
    i_out: int
    connection_mode: str
    has_weight: bool
    path_weight: float
    path_shape: tuple[int, ...]
    weight_offset: int

    @property
    def weight_numel(self) -> int:
        return prod(self.path_shape) if self.has_weight else 0

    @property
    def weight_slice(self) -> slice:
        """Slice of the path's weights among all weights; empty for a path without weights."""
        return slice(self.weight_offset, self.weight_offset + self.weight_numel)


def paths_of(instructions: Any, slots: tuple[Irreps, ...]) -> tuple[PathInstruction, ...]:
    """Check instructions, as `TPProblem` takes them, and convert them to paths with their weight offsets.

    The path weights are those of the instructions. Raises InstructionError for slots that do not exist, broken
    selection rules, or multiplicities that a mode does not allow, and UnsupportedMode for a mode that e3nn does not
    have.
    """
    try:
        instructions = list(instructions)
    except TypeError as error:
        raise InstructionError(f"expected a list of instructions, found {instructions!r}") from error
    paths, offset = [], 0
    for n, instruction in enumerate(instructions):
        path = replace(_path(n, instruction, slots), weight_offset=offset)
        paths.append(path)
        offset += path.weight_numel
    return tuple(paths)


def _path(n: int, raw: Any, slots: tuple[Irreps, ...]) -> PathInstruction:
    """Return instruction number n as a path with weight offset 0, after its selection rules are checked."""
    if not isinstance(raw, tuple | list) or len(raw) not in (5, 6):
        raise InstructionError(
            f"instruction {n}: expected (i_in1, i_in2, i_out, mode, has_weight[, path_weight]), found {raw!r}"
        )
    *which, mode, has_weight, path_weight = (*raw, 1.0)[:6]
    for name, i, irreps in zip(("i_in1", "i_in2", "i_out"), which, slots):
        if not hasattr(i, "__index__"):
            raise InstructionError(f"instruction {n}: expected a number of a slot as {name}, found {i!r}")
        if not 0 <= i < len(irreps):
            raise InstructionError(f"instruction {n}: {name} = {i}, but {str(irreps)!r} has {len(irreps)} slots")
    if mode not in MODES:
        raise UnsupportedMode(f"instruction {n}: expected one of the modes {', '.join(MODES)}; found {mode!r}")
    if not 0 <= path_weight < inf:
        raise InstructionError(f"instruction {n}: expected path_weight >= 0, found {path_weight}")
    one, two, three = (irreps[int(i)] for irreps, i in zip(slots, which))
    couples = abs(one.ir.l - two.ir.l) <= three.ir.l <= one.ir.l + two.ir.l
    if one.ir.p * two.ir.p != three.ir.p or not couples:
        raise InstructionError(
            f"instruction {n}: {one.ir} x {two.ir} holds l = {abs(one.ir.l - two.ir.l)} .. {one.ir.l + two.ir.l} "
            f"of parity {'e' if one.ir.p * two.ir.p == 1 else 'o'}; found {three.ir} as its output"
        )
    if fault := MODES[mode].fault(one, two, three, bool(has_weight)):
        raise InstructionError(f"instruction {n}: {mode} {fault}")
    shape = MODES[mode].shape(one.mul, two.mul, three.mul)
    i_in1, i_in2, i_out = map(int, which)
    return PathInstruction(i_in1, i_in2, i_out, mode, bool(has_weight), float(path_weight), shape, 0)
