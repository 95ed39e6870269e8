"""Reduction registers: one fp32 value for each lane of an engine, kept from one instruction to the next."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.sim.faults import NkiValidationError
from trnqc.sim.functions import ops
from trnqc.sim.functions.enums import member, reduce_cmd
from trnqc.sim.functions.ops import Op
from trnqc.sim.instructions import checks
from trnqc.sim.launch.machine import Run
from trnqc.sim.launch.targets import PARTITIONS
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.memory.values import store, widen

IDENTITY = {ops.add: 0.0, ops.subtract: 0.0, ops.multiply: 1.0, ops.maximum: -np.inf, ops.max: -np.inf,
            ops.minimum: np.inf, ops.min: np.inf}  # fmt: skip
REDUCING = (reduce_cmd.reduce, reduce_cmd.reset_reduce, reduce_cmd.load_reduce)


def registers(run: Run, engine: str) -> np.ndarray:
    """The 128 registers of an engine, NaN until set."""
    if engine not in run.lanes:
        run.lanes[engine] = np.full(PARTITIONS, np.nan, np.float32)
    return run.lanes[engine]


class Reduction:
    """What one instruction does with the registers of the lanes that it uses.

    Checked when made; ``take`` folds the results of the instruction in, ``write`` reads the registers out into
    ``reduce_res``. ``reduce_init`` is the value that ``load_reduce`` starts from.
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
        """The registers' values before this instruction's results; NaN after ``idle``, which leaves them undefined."""
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
        """Fold ``values`` [P, n] into the registers."""
        state = self.start_values()
        if self.cmd in REDUCING:
            with np.errstate(all="ignore"):
                state = self.op.alu(state, self.op.fold(values, axis=1))
        self.keep(state)

    def keep(self, state: np.ndarray) -> None:
        """Leave ``state`` in the registers."""
        registers(self.run, self.engine)[self.used] = state

    def write(self) -> None:
        """Read the registers out into ``reduce_res``, where there is one."""
        for res in self.outputs:
            own = registers(self.run, self.engine)[self.used]
            store(res.array(), -own if self.negate else own, res.dtype)
