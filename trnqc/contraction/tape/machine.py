"""Runs of tapes on NumPy arrays."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from trnqc.backends.cpu.tape import tape_function
from trnqc.contraction.memory.nest_items import Item
from trnqc.contraction.tape.instructions import Tape
from trnqc.contraction.tape.nests import LayoutTapes, NestTape, NestTapes

FLOAT64 = np.dtype(np.float64)
# The loops around the instructions of a tape.
NO_LOOPS = np.zeros(0, np.int64)
# The coefficient of the steps of a nest.
ONE = np.ones(1)


def run_tape(tape: Tape, values: Mapping[str, Any]) -> dict[str, np.ndarray] | None:
    """Return the outputs by name.

    None if an operand is no array of float64, or if the function is not compiled yet or cannot be.
    """
    small, large = ([values[name] for name in names] for names in (tape.small, tape.large))
    if any(type(x) is not np.ndarray or x.dtype != FLOAT64 for x in (*small, *large)):
        return None
    function = tape_function()
    if function is None:
        return None
    workspace, results = np.empty(tape.workspace), np.zeros(tape.results)
    if small:
        flat = [x.reshape(-1) for x in small]
        np.concatenate(flat, out=workspace[: sum(map(len, flat))])
    large = [x if x.flags.c_contiguous and x.flags.aligned else x.copy() for x in large]
    addresses = np.array([x.ctypes.data for x in (workspace, results, *large)], np.int64)
    function(tape.code, len(tape.code), addresses, tape.coefficients, NO_LOOPS)
    return {name: results[place].reshape(shape) if shape else results[place][0] for name, shape, place in tape.outputs}


class NestMachine:
    """The function with the arrays of one run of a loop nest."""

    def __init__(self, function: Callable[..., Any], tapes: LayoutTapes, arrays: Sequence[np.ndarray]) -> None:
        self.function, self.tapes = function, tapes
        self.addresses = np.array([x.__array_interface__["data"][0] for x in arrays], np.int64)

    def entries(self, items: Sequence[Item], ranges: Mapping[str, tuple[int, int]]) -> Sequence[Item | NestTape]:
        """Return the items with the tapes that replace some of them for tiles of these lengths."""
        return self.tapes.entries(items, {label: stop - start for label, (start, stop) in ranges.items()})

    def run(self, tape: NestTape, ranges: Mapping[str, tuple[int, int]]) -> None:
        """Run a tape where the loops around it are at these ranges of elements."""
        starts = np.array([start for start, _ in ranges.values()], np.int64)
        self.function(tape.code, len(tape.code), self.addresses, ONE, starts)


def nest_machine(tapes: NestTapes, operands: Mapping[str, Any], workspace: np.ndarray, out: Any) -> NestMachine | None:
    """Return what runs the tapes of a nest on these operands, for its workspace and result.

    None if an operand or the result is no array of float64, or if the function is not compiled yet or cannot be.
    """
    arrays = [workspace, out, *(operands[name] for name in tapes.names)]
    if any(type(x) is not np.ndarray or x.dtype != FLOAT64 or not x.flags.aligned for x in arrays):
        return None
    size = FLOAT64.itemsize
    if not out.flags.c_contiguous or any(stride % size for x in arrays for stride in x.strides):
        return None
    function = tape_function()
    if function is None:
        return None
    strides = tuple(tuple(stride // size for stride in x.strides) for x in arrays[2:])
    return NestMachine(function, tapes.of(strides), arrays)
