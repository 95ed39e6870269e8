"""Reduction registers: one fp32 value for each lane of an engine, which persists between instructions."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.instructions import checks
from trnqc.sim.machine import ops
from trnqc.sim.machine.enums import member, reduce_cmd
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.ops import Op
from trnqc.sim.machine.targets import PARTITIONS
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

IDENTITY = {
    ops.add: 0.0,
    ops.subtract: 0.0,
    ops.multiply: 1.0,
    ops.maximum: -np.inf,
    ops.max: -np.inf,
    ops.minimum: np.inf,
    ops.min: np.inf,
}
REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


def registers(run: Run, engine: str) -> np.ndarray:
    """Return the 128 registers of an engine, which are NaN until an instruction sets them."""
    if engine not in run.lanes:
        run.lanes[engine] = np.full(PARTITIONS, np.nan, np.float32)
    return run.lanes[engine]


class Reduction:
    """The effect of one instruction on the reduction registers of the lanes that it uses.

    The constructor checks the operands, `take` folds the results of the instruction into the registers, and `write`
    copies the registers, negated if `negate`, to ``reduce_res``, a (P, 1) tile or None. `engine` is that whose
    registers are used, `data` the operand whose partitions determine the lanes, and `reduce_init` the start value for
    ``load_reduce``. Raises NkiValidationError if `cmd` is not one of ``commands``, `reduce_op` not one of ``allowed``,
    or the instruction does not support an operand.
    """

    def __init__(
        self,
        run: Run,
        op: str,
        engine: str,
        cmd: Any,
        reduce_op: Any,
        reduce_res: NkiTensor | None,
        data: NkiTensor,
        allowed: tuple[Op, ...],
        commands: tuple[reduce_cmd, ...] = (reduce_cmd.idle, reduce_cmd.reduce, reduce_cmd.reset_reduce),
        reduce_init: Any = None,
        negate: bool = False,
    ):
        member(op, "reduce_cmd", cmd, reduce_cmd)
        if cmd not in commands:
            names = ", ".join(c.name for c in commands)
            raise NkiValidationError(f"{op} reduce_cmd must be one of {names}, got {cmd.name}")
        if reduce_op not in allowed:
            names = ", ".join(map(repr, allowed))
            raise NkiValidationError(f"{op} reduce_op must be one of {names}, got {reduce_op!r}")
        self.outputs: tuple[NkiTensor, ...] = ()
        if reduce_res is not None:
            if checks.is_number(reduce_res):
                raise NkiValidationError(f"{op} reduce_res must be a ({data.shape[0]}, 1) tile, got {reduce_res!r}")
            self.outputs = checks.scalar(op, "reduce_res", reduce_res, data, None)
        self.run, self.engine, self.cmd, self.op = run, engine, cmd, reduce_op
        self.negate, self.start = negate, reduce_init
        first = data.start_partition
        self.used = slice(first, first + data.shape[0])

    def start_values(self) -> np.ndarray:
        """Values to which the results of the instruction are added; NaN for ``idle``, because the values are then
        undefined.
        """
        own = registers(self.run, self.engine)[self.used].copy()
        if self.cmd is reduce_cmd.idle:
            own[...] = np.nan
        elif self.cmd in (reduce_cmd.reset, reduce_cmd.reset_reduce):
            own[...] = IDENTITY[self.op]
        elif self.cmd is reduce_cmd.load_reduce:
            start = self.start
            own[...] = widen(start.array()).reshape(-1) if isinstance(start, NkiTensor) else start
        return own

    def take(self, values: np.ndarray) -> None:
        """Reduce ``values`` [P, n] over n into the registers."""
        state = self.start_values()
        if self.cmd in REDUCING:
            with np.errstate(all="ignore"):
                state = self.op.alu(state, self.op.fold(values, axis=1))
        self.keep(state)

    def keep(self, state: np.ndarray) -> None:
        """Set the registers of the used lanes to ``state``."""
        registers(self.run, self.engine)[self.used] = state

    def write(self) -> None:
        """Copy the registers to ``reduce_res``, if the instruction has one."""
        for res in self.outputs:
            own = registers(self.run, self.engine)[self.used]
            store(res.array(), -own if self.negate else own, res.dtype)
