"""A run of a tape on NumPy arrays."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trnqc.backends.cpu.tape import tape_function
from trnqc.contraction.tape.instructions import Tape

FLOAT64 = np.dtype(np.float64)


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
    function(tape.code, len(tape.code), addresses, tape.coefficients)
    return {name: results[place].reshape(shape) if shape else results[place][0] for name, shape, place in tape.outputs}
