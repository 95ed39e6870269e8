"""The identities that the parser's front end makes for transposes on TensorE.

For each ``nc_transpose`` on TensorE the compiler of NKI 0.6 and before makes a tile of 128 x 128 elements: a memset to
zero and an affine_select of the diagonal, both on GpSimd. The transpose is the product with it. Source: the public
source of the front end, ``KLR/Trace/ISA.lean``, nc_transpose.
"""

from __future__ import annotations

from trnqc.sim.machine.machine import TileRecord
from trnqc.sim.timeline.record import Operand, Recorder, Step, Tile

ROWS = 128


class IdentityRecorder(Recorder):
    """A recorder that puts the two instructions of an identity before each transpose on TensorE.

    ``identity_bytes`` is the size of the largest identity, per partition.
    """

    def __init__(self) -> None:
        super().__init__()
        self.identity_bytes = 0

    def append(self, step: Step, scope: tuple[tuple[int, int], ...]) -> None:
        """Add an instruction to the program."""
        if step.op != "nc_transpose" or step.engine != "tensor":
            super().append(step, scope)
            return
        identity = self._identity(step.id, step.inputs[0], scope)
        name = f"identity of {step.name}" if step.name else "identity"
        super().append(Step(step.id, "memset", "gpsimd", (identity,), (), (), name), scope)
        super().append(Step(step.id, "affine_select", "gpsimd", (identity,), (identity,), (), name), scope)
        data, indices = step.data, step.inputs[len(step.data) :]
        super().append(step._replace(inputs=(*data, identity, *indices)), scope)

    def _identity(self, tick: int, data: Operand, scope: tuple[tuple[int, int], ...]) -> Operand:
        """A new tile in SBUF, which lives for one transpose."""
        size, shape = ROWS * data.itemsize, (ROWS, ROWS)
        self.identity_bytes = max(self.identity_bytes, size)
        number = len(self.tiles)
        record = TileRecord(-1, "identity", "sbuf", shape, data.dtype, size, first=tick, last=tick, scope=scope)
        self.tiles.append(Tile("sbuf", "identity", size, None, record))
        whole = (0, ROWS, 0, size, ROWS, data.itemsize, data.dtype, size, data.itemsize, ROWS, False, shape)
        return Operand(number, "sbuf", *whole)
