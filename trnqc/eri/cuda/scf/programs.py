"""Programs for the matrices of an SCF in the memory of a device. A lane has one element, and groups follow each other.

combine      out = alpha x + beta y
clear        out = 0
commutator   out = P^T - P
gather       elements of densities in another order (jk/layout.py)
maxima       the largest |element| of each block of two shells
largest      the largest of these, as the screening reads it
potential    sums of the quartets by pairs and by blocks -> J and V
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from trnqc.eri.jk.batch import REALS
from trnqc.gen.arrays import Array
from trnqc.gen.build import Builder
from trnqc.gen.statements import Function
from trnqc.gen.values import Value, Var, const, lane, le, lt, maximum, minimum, select
from trnqc.jit import Recipe, Signature
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.device import Argument, BuiltKernel, Device

# Lanes of a group, and of the only group of `largest`, whose lanes share all blocks.
LANES, MOST_LANES = 128, 1024

_GROUP = Var("group", "i64")
_ELEMENTS, _OUT_AT, _PERIOD = (Var(name, "i64") for name in ("elements", "out_at", "period"))
_N, _COUNT, _STEP, _WIDEST, _SHELLS = (Var(name, "i64") for name in ("n", "count", "step", "widest", "shells"))
_ALPHA, _BETA, _SHARE = Var("alpha"), Var("beta"), Var("share")
_X, _Y, _OUT, _DM, _DM_MAX, _REALS = (Array(name, "f64") for name in ("x", "y", "out", "dm", "dm_max", "reals"))
_VJ, _VK, _J, _V = (Array(name, "f64") for name in ("vj", "vk", "j", "v"))
_ORDER, _BEGINS, _PAIRS, _BLOCKS = (Array(name, "i64") for name in ("order", "begins", "pairs", "blocks"))

PARAMETERS: dict[str, tuple[tuple[Value | Array, ...], tuple[str, ...]]] = {
    "combine": ((_ELEMENTS, _PERIOD, _OUT_AT, _ALPHA, _BETA, _X, _Y, _OUT), ("out",)),
    "clear": ((_ELEMENTS, _OUT), ("out",)),
    "commutator": ((_ELEMENTS, _N, _OUT_AT, _X, _OUT), ("out",)),
    "gather": ((_ELEMENTS, _COUNT, _STEP, _ORDER, _X, _OUT), ("out",)),
    "maxima": ((_SHELLS, _N, _COUNT, _WIDEST, _BEGINS, _DM, _DM_MAX), ("dm_max",)),
    "largest": ((_SHELLS, _DM_MAX, _REALS), ("reals",)),
    "potential": ((_N, _COUNT, _STEP, _SHARE, _PAIRS, _BLOCKS, _VJ, _VK, _J, _V), ("j", "v")),
}
"""The parameters of each program without its groups, and the arrays that it writes."""


class ScfPrograms:
    """The programs of a device, compiled when they are first launched on it, on its first stream."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._built: dict[str, BuiltKernel] = {}

    def __call__(self, name: str, elements: int, **arguments: Argument) -> None:
        """Launch a program for so many elements, which `largest` shares among the lanes of one group."""
        if not elements:
            return
        built = self._built.get(name) or self._build(name)
        groups = 1 if name == "largest" else -(-elements // built.lanes)
        self.device.launch(built, groups, arguments | {"elements": elements})

    def _build(self, name: str) -> BuiltKernel:
        self._built[name] = build(self.device, name)
        return self._built[name]


def build(device: Device | CubinBuilder, name: str) -> BuiltKernel:
    """Build a program for a device, or where kernels are only compiled."""
    lanes = min(MOST_LANES if name == "largest" else LANES, device.most_lanes)
    return device.build(recipe(name, lanes), lanes)


def recipe(name: str, lanes: int) -> Recipe:
    """Return the recipe of a program for groups of so many lanes."""
    parameters, written = PARAMETERS[name]
    signature = Signature.declared(f"scf_{name}", parameters, written)
    return Recipe(f"scf_{name}", (signature,), lambda: (_function(name, lanes),), __name__, variant=str(lanes))


def _function(name: str, lanes: int) -> Function:
    bodies: dict[str, Callable[[Builder, int], Any]] = {
        "combine": _combine,
        "clear": _clear,
        "commutator": _commutator,
        "gather": _gather,
        "maxima": _maxima,
        "largest": _largest,
        "potential": _potential,
    }
    b = Builder()
    bodies[name](b, lanes)
    return b.function(f"scf_{name}", PARAMETERS[name][0], group=_GROUP)


def _element(b: Builder, lanes: int, elements: Value) -> tuple[Value, Value]:
    """Return the element of a lane, the last one beyond the end, and whether it is the lane's own."""
    number = b.let("number", _GROUP * lanes + lane())
    return b.let("e", minimum(number, elements - 1)), lt(number, elements)


def _combine(b: Builder, lanes: int) -> None:
    """out[out_at + e] = alpha x[e % period] + beta y[e]."""
    e, own = _element(b, lanes, _ELEMENTS)
    b.store(_OUT[_OUT_AT + e], _ALPHA * _X[e % _PERIOD] + _BETA * _Y[e], where=own)


def _clear(b: Builder, lanes: int) -> None:
    e, own = _element(b, lanes, _ELEMENTS)
    b.store(_OUT[e], 0.0, where=own)


def _commutator(b: Builder, lanes: int) -> None:
    """out[out_at + e] is an element of x^T - x, for each matrix [n, n] of x."""
    e, own = _element(b, lanes, _ELEMENTS)
    b.store(_OUT[_OUT_AT + e], _X[_transposed(b, e)] - _X[e], where=own)


def _transposed(b: Builder, e: Value) -> Value:
    """Return the element of a stack of matrices [n, n] that is at the place of `e` in the transposed ones."""
    row = b.let("row", e // _N % _N)
    column = b.let("column", e % _N)
    return b.let("mirrored", e + (column - row) * (_N - 1))


def _gather(b: Builder, lanes: int) -> None:
    """out[k, e] = x[k, order[e]] for `count` stacked arrays x [count, step], all elements counted."""
    e, own = _element(b, lanes, _ELEMENTS)
    each = b.let("each", _ELEMENTS // _COUNT)
    b.store(_OUT[e], _X[e // each * _STEP + _ORDER[e % each]], where=own)


def _maxima(b: Builder, lanes: int) -> None:
    """dm_max[a, b] = max |dm[k, i, j]| over all k and the functions i of shell a and j of shell b.

    All lanes take as many steps as the widest shell needs, and read the last function of a shell again beyond its end.
    """
    e, own = _element(b, lanes, _SHELLS * _SHELLS)
    rows, columns = b.let("shell_a", e // _SHELLS), b.let("shell_b", e % _SHELLS)
    most = b.declare("most", const(0.0))
    with _functions(b, rows, "i") as i, _functions(b, columns, "j") as j, b.loop("k", _COUNT) as k:
        value = b.let("value", _DM[(k * _N + i) * _N + j])
        b.assign(most, maximum(most, maximum(value, -1.0 * value)))
    b.store(_DM_MAX[e], most, where=own)


@contextmanager
def _functions(b: Builder, shell: Value, name: str) -> Iterator[Value]:
    with b.loop(name, _WIDEST) as step:
        yield b.let("function", minimum(_BEGINS[shell] + step, _BEGINS[shell + 1] - 1))


def _largest(b: Builder, lanes: int) -> None:
    """reals["largest"] = min(1, 4 max dm_max), the largest factor of a density in the test of jk/batch.py."""
    shared = b.array("shared", "f64", (lanes,), "shared")
    elements = b.let("elements", _SHELLS * _SHELLS)
    most = b.declare("most", const(0.0))
    with b.loop("first", elements, step=lanes) as first:
        b.assign(most, maximum(most, _DM_MAX[minimum(first + lane(), elements - 1)]))
    b.store(shared[lane()], most)
    b.barrier()
    whole = b.declare("whole", const(0.0))
    with b.loop("other", lanes) as other:
        b.assign(whole, maximum(whole, shared[other]))
    b.store(_REALS[REALS.index("largest")], minimum(4.0 * whole, 1.0))


def _potential(b: Builder, lanes: int) -> None:
    """Add J of all densities to j [n, n], and J - share K of each density to v [count, n, n].

    pairs [n, n]: where an element is among those of the pairs, or -1; blocks [n, n]: where it is among the blocks.
    """
    elements = b.let("elements", _N * _N)
    e, own = _element(b, lanes, elements)
    mirrored = _transposed(b, e)
    coulomb = b.declare("coulomb", const(0.0))
    with b.loop("k", _COUNT) as k:
        both = _of_pairs(k, e) + _of_pairs(k, mirrored)
        # Twice, because only one of (ab|cd) and (ab|dc) was computed.
        b.assign(coulomb, coulomb + 2.0 * both)
    with b.loop("m", _COUNT) as m:
        exchange = _VK[m * elements + _BLOCKS[e]] + _VK[m * elements + _BLOCKS[mirrored]]
        place = b.let("place", m * elements + e)
        b.store(_V[place], _V[place] + coulomb - _SHARE * exchange, where=own)
    b.store(_J[e], _J[e] + coulomb, where=own)


def _of_pairs(k: Value, e: Value) -> Value:
    """Return half of an element of J, which is zero for pairs of shells that cannot matter."""
    place = _PAIRS[e]
    return select(le(0, place), _VJ[k * _STEP + maximum(place, 0)], 0.0)
