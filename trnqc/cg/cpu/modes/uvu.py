"""Functions of uvu paths on a CPU: the lanes of a vector are channels u, and all lanes share the elements of y.

The couplings A[i, k] are formed from y and stored in an array once for an edge. A loop over blocks of channels then
evaluates programs/uvu.py, with x, gx and gz in scratch and w and gw in memory. The gradient of y follows from sums over
the blocks; if these have too many elements (i, k) for the registers, the loop runs once for each part of the
components i.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache, partial

from trnqc.cg.cpu.target import PathShape
from trnqc.cg.cpu.vectors import ZERO, load_vector, memory, store_vector, vectors
from trnqc.cg.programs.coupling import CouplingMatrix, contracted, coupled
from trnqc.cg.programs.directions import Direction
from trnqc.cg.programs.uvu import Update, UvuChannel
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot


@cache
def function(shape: PathShape, direction: Direction, adds: bool = False) -> st.Function:
    """Return the function of a path in a direction.

    Its parameters are the path weight and the operands that `parameters` lists.

    - x, ggx, gx and gz are in scratch. The function adds to gx.
    - gy is in scratch with one sum for each lane, to which the function adds.
    - gw is in memory; the function adds to it if edges share weights, and else writes it.
    - The output is in scratch if `adds`, and the function adds to it; else it is written to memory.
    """
    b, pw, operands = Builder(), Var("pw", shape.dtype), parameters(shape, direction, adds)
    writer = _Writer(b, shape, direction, operands, pw)
    for name in direction.reading("y"):
        writer.couplings[name] = writer.coupling(operands[name])
    if direction.output:
        for block, n in shape.x.each(b):
            writer.outputs(block, n, adds)
    if direction.gradients:
        writer.gradients()
    return b.function(f"uvu_{direction.name}{'_add' * adds}_{shape.name}", (pw, *operands.values()))


def parameters(shape: PathShape, direction: Direction, adds: bool) -> dict[str, Array]:
    """Return the operands of `function` in the order of its parameters: y, x, w, gz, output, gx, gy and gw."""
    weights = [*direction.reading("w")] * shape.weighted
    names = [*direction.reading("y"), *direction.reading("x"), *weights]
    names += [*direction.reading("z")] * direction.gradients + [direction.output] * bool(direction.output)
    names += [n for n in ("gx", "gy", *["gw"] * shape.weighted) if n in direction.writes]
    sizes = {"x": shape.x.size, "z": shape.z.size, "y": shape.dims[1] * shape.step}

    def array(name: str) -> Array:
        in_memory = name[-1] == "w" or name in direction.reading("y") or (name == direction.output and not adds)
        return memory(name, shape.dtype) if in_memory else vectors(name, sizes[name[-1]], shape.dtype)

    return {name: array(name) for name in names}


@dataclass(frozen=True)
class _Writer:
    """Writes the statements of one path."""

    b: Builder
    shape: PathShape
    direction: Direction
    operands: dict[str, Array]
    pw: Value
    couplings: dict[str, CouplingMatrix] = field(default_factory=dict)

    def coupling(self, y: Array) -> CouplingMatrix:
        """Form A from y and store it in an array."""
        b, s = self.b, self.shape
        values = coupled(s.degrees, {j: b.let("y", y[j * s.step] * self.pw) for j in range(s.dims[1])})
        array = b.array("a", s.dtype, (max(1, len(values)),))
        for n, value in enumerate(values.values()):
            b.store(array[n], value)
        return CouplingMatrix({pair: (array[n], 1) for n, pair in enumerate(values)}, s.dtype)

    def channel(self, block: Value, n: int, part: Iterable[int], needs_gz: bool) -> UvuChannel:
        """Load the operands of a block of `n` channels, with the components of x in `part`."""
        b, s = self.b, self.shape
        d1, _, d3 = s.dims
        x = {
            name: {i: b.let(name, self.operands[name][block * d1 + i]) for i in part}
            for name in self.direction.reading("x")
        }
        gz = [b.let("gz", self.operands["gz"][block * d3 + k]) for k in range(d3)] if needs_gz else []
        names = self.direction.reading("w") if s.weighted else ()
        first = block * (s.lanes * s.mul2)
        weights = {name: load_vector(b, self.operands[name], first, n, s.mul2) for name in names}
        return UvuChannel(b, self.direction, self.couplings, x, weights, d3, gz)

    def outputs(self, block: Value, n: int, adds: bool) -> None:
        """Add one block of z to scratch, or write it to memory."""
        b, s, z = self.b, self.shape, self.operands[self.direction.output]
        d1, _, d3 = s.dims
        channel = self.channel(block, n, range(d1), needs_gz=False)
        if adds:
            channel.outputs(lambda k, update: b.accumulate(z[block * d3 + k], update(None)))
            return
        packed = b.array("z", s.dtype, (d3,), lanes=True)
        channel.outputs(lambda k, update: b.store(packed[k], update(None)))
        s.z.pack(b, z, block, packed, ZERO, n)

    def gradients(self) -> None:
        """Write gx, gw and gy in parts of the components of x, each with its sums G over channels."""
        b, s = self.b, self.shape
        # Products for gw, kept from one part to the next.
        kept = b.array("kept", s.dtype, (s.x.blocks,), lanes=True) if s.weighted and len(s.parts) > 1 else None
        for number, part in enumerate(s.parts):
            grams = {(i, k): b.declare(f"g{i}_{k}", const(0, s.dtype)) for i, k in s.pairs if i in part}
            for block, n in s.x.each(b):
                channel = self.channel(block, n, part, needs_gz=True)
                slopes = channel.inputs(partial(self._add_gx, block * s.dims[0]))
                if s.weighted:
                    total = dot(slopes.w, kept[block] if kept and number else None)
                    if kept and number + 1 < len(s.parts):
                        b.store(kept[block], total)
                    else:
                        self._write_gw(block, n, total)
                for (i, k), g in grams.items():
                    b.assign(g, dot([(slopes.left[i], slopes.right[k])], g))
            for j, value in contracted(s.terms, grams).items():
                element = self.operands["gy"][j * s.step]
                b.store(element, dot([(value, self.pw)], element))

    def _add_gx(self, first: Value, i: int, update: Update) -> None:
        element = self.operands["gx"][first + i]
        self.b.store(element, update(element))

    def _write_gw(self, block: Value, n: int, total: Value) -> None:
        s, gw = self.shape, self.operands["gw"]
        first = block * (s.lanes * s.mul2)
        total = total + load_vector(self.b, gw, first, n, s.mul2) if s.summed else total
        store_vector(self.b, gw, first, total, n, s.mul2)
