"""CPU functions of uvu paths: lanes run over channels u, and y enters as numbers that are the same on every lane.

y -> A[i, k] in an array, once an edge -> for every block of channels: programs/uvu.py with x, gx and gz in scratch and
w and gw in memory -> gy, from sums over the blocks

The gradients of a path with many pairs (i, k) are made for a part of its components i at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache

from trnqc.cg.cpu.slots import ZERO, Channels, Shape, load_vector, memory, store_vector, vectors
from trnqc.cg.programs.coupling import Coupling, contracted, coupled
from trnqc.cg.programs.directions import Direction
from trnqc.cg.programs.uvu import Channel, Update
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot

Parameters = dict[str, Array]


@cache
def load(channels: Channels) -> st.Function:
    """The function that loads a slot from memory into scratch."""
    b, m, t = Builder(), memory("m", channels.dtype), vectors("t", channels.size, channels.dtype)
    for block, n in channels.each(b):
        channels.unpack(b, t, block * channels.dim, m, block, n)
    return b.function(f"load_{channels.name}", (m, t))


@cache
def store(channels: Channels) -> st.Function:
    """The function that stores a slot from scratch into memory."""
    b, m, t = Builder(), memory("m", channels.dtype), vectors("t", channels.size, channels.dtype)
    for block, n in channels.each(b):
        channels.pack(b, m, block, t, block * channels.dim, n)
    return b.function(f"store_{channels.name}", (m, t))


@cache
def add(channels: Channels) -> st.Function:
    """The function that adds a slot in scratch to memory."""
    b, m, t = Builder(), memory("m", channels.dtype), vectors("t", channels.size, channels.dtype)
    for block, n in channels.each(b):
        sums = b.array("sums", channels.dtype, (channels.dim,), lanes=True)
        channels.unpack(b, sums, ZERO, m, block, n)
        for k in range(channels.dim):
            b.accumulate(sums[k], t[block * channels.dim + k])
        channels.pack(b, m, block, sums, ZERO, n)
    return b.function(f"add_{channels.name}", (m, t))


@cache
def function(shape: Shape, direction: Direction, adds: bool = False) -> st.Function:
    """The function of a path in a direction.

    Its parameters are the path's weight and the operands of the direction by kind: those read that are shaped as y, x,
    w and z, then the output, gx, gy and gw. x, gx and gz are in scratch, and gx is added to. gy is added to in scratch
    as a sum for every lane. gw is in memory, and added to if edges share weights. The output is added to in scratch if
    `adds`, and else written to memory.
    """
    b, pw, given = Builder(), Var("pw", shape.dtype), parameters(shape, direction, adds)
    a = {name: _coupling(b, shape, given[name], pw) for name in direction.reading("y")}
    if direction.output:
        for block, n in shape.x.each(b):
            _outputs(b, shape, direction, given, a, block, n, adds)
    if direction.gradients:
        _gradients(b, shape, direction, given, a, pw)
    return b.function(f"uvu_{direction.name}{'_add' * adds}_{shape.name}", (pw, *given.values()))


def parameters(shape: Shape, direction: Direction, adds: bool) -> Parameters:
    """The operands of `function` in the order of its parameters."""
    weights = [*direction.reading("w")] * shape.weighted
    names = [*direction.reading("y"), *direction.reading("x"), *weights]
    names += [*direction.reading("z")] * direction.gradients + [direction.output] * bool(direction.output)
    names += [n for n in ("gx", "gy", *["gw"] * shape.weighted) if n in direction.writes]
    sizes = {"x": shape.x.size, "z": shape.z.size, "y": shape.dims[1] * shape.step}

    def place(name: str) -> Array:
        in_memory = name[-1] == "w" or name in direction.reading("y") or (name == direction.output and not adds)
        return memory(name, shape.dtype) if in_memory else vectors(name, sizes[name[-1]], shape.dtype)

    return {name: place(name) for name in names}


def _coupling(b: Builder, s: Shape, y: Array, pw: Value) -> Coupling:
    """A, stored in an array."""
    values = coupled(s.degrees, {j: b.let("y", y[j * s.step] * pw) for j in range(s.dims[1])})
    array = b.array("a", s.dtype, (max(1, len(values)),))
    for n, value in enumerate(values.values()):
        b.store(array[n], value)
    return Coupling({pair: (array[n], 1) for n, pair in enumerate(values)}, s.dtype)


def _channel(
    b: Builder, s: Shape, direction: Direction, given: Parameters, a: dict[str, Coupling], block: Value, n: int,
    of: Iterable[int], gz: bool,
) -> Channel:  # fmt: skip
    """A block of channels; of x the components `of`."""
    d1, d3 = s.dims[0], s.dims[2]
    x = {name: {i: b.let(name, given[name][block * d1 + i]) for i in of} for name in direction.reading("x")}
    slopes = [b.let("gz", given["gz"][block * d3 + k]) for k in range(d3)] if gz else []
    names = direction.reading("w") if s.weighted else ()
    weights = {name: load_vector(b, given[name], block * (s.lanes * s.mul2), n, s.mul2) for name in names}
    return Channel(b, direction, a, x, weights, d3, slopes)


def _outputs(
    b: Builder, s: Shape, direction: Direction, given: Parameters, a: dict[str, Coupling], block: Value, n: int,
    adds: bool,
) -> None:  # fmt: skip
    """One block of z: added to scratch, or packed into memory."""
    d1, d3, z = s.dims[0], s.dims[2], given[direction.output]
    channel = _channel(b, s, direction, given, a, block, n, range(d1), gz=False)
    held = None if adds else b.array("z", s.dtype, (d3,), lanes=True)

    def put(k: int, update: Update) -> None:
        if held is None:
            b.accumulate(z[block * d3 + k], update(None))
        else:
            b.store(held[k], update(None))

    channel.outputs(put)
    if held is not None:
        s.z.pack(b, z, block, held, ZERO, n)


def _gradients(
    b: Builder, s: Shape, direction: Direction, given: Parameters, a: dict[str, Coupling], pw: Value
) -> None:
    """gx, gw and gy, a part of the components after another, each with its sums G over channels."""
    kept = b.array("kept", s.dtype, (s.x.blocks,), lanes=True) if s.weighted and len(s.parts) > 1 else None
    for number, of in enumerate(s.parts):
        grams = {(i, k): b.declare(f"g{i}_{k}", const(0, s.dtype)) for i, k in s.pairs if i in of}
        for block, n in s.x.each(b):
            channel = _channel(b, s, direction, given, a, block, n, of, gz=True)
            place = block * s.dims[0]

            def put(i: int, update: Update, place: Value = place) -> None:
                b.store(given["gx"][place + i], update(given["gx"][place + i]))

            slopes = channel.inputs(put)
            if s.weighted:
                total = dot(slopes.w, kept[block] if kept and number else None)
                if kept and number + 1 < len(s.parts):
                    b.store(kept[block], total)
                else:
                    gw, first = given["gw"], block * (s.lanes * s.mul2)
                    total = total + load_vector(b, gw, first, n, s.mul2) if s.summed else total
                    store_vector(b, gw, first, total, n, s.mul2)
            for (i, k), g in grams.items():
                b.assign(g, dot([(slopes.left[i], slopes.right[k])], g))
        for j, value in contracted(s.terms, grams).items():
            place = given["gy"][j * s.step]
            b.store(place, dot([(value, pw)], place))
