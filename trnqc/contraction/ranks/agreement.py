"""What the ranks of a program agree on before it runs: the program, its plan and division, and the operands."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from trnqc.contraction.plan import Plan
from trnqc.contraction.shares.options import Link
from trnqc.errors import InputError
from trnqc.ranks import Ranks
from trnqc.version import __version__

# Bytes of the message by which the rate of messages is measured, and the number of its repetitions.
PROBE, TIMES = 2**22, 3
# Number of elements of each operand that ranks compare.
COMPARED = 64


def require_same_program(plan: Plan, ranks: Ranks) -> None:
    """Raise InputError on all ranks if they do not have the same program, shapes, outputs, limit and version."""
    described = {
        "program": plan.title,
        "shapes": str(sorted(plan.shapes.items())),
        "symmetry": str(plan.exchanges),
        "outputs": ", ".join(plan.outputs),
        "memory_limit": str(plan.memory),
        "version of trnqc": __version__,
    }
    first = ranks.at_first(lambda: described)
    wrong = [name for name in described if described[name] != first[name]]
    _refuse(
        ranks,
        bool(wrong),
        "of the program",
        "" if not wrong else f"its {wrong[0]} is {_difference(first[wrong[0]], described[wrong[0]])}",
    )


def _difference(first: str, here: str) -> str:
    """Return the first line in which two texts differ."""
    ours, theirs = here.splitlines(), first.splitlines()
    for number, (one, two) in enumerate(zip([*ours, ""], [*theirs, ""]), start=1):
        if one != two:
            where = f" in line {number}" if len(ours) > 1 else ""
            return f"{one!r}{where}, that of rank 0 {two!r}"
    return f"longer or shorter than that of rank 0: {len(ours)} lines, {len(theirs)} there"


def require_same_operands(values: Mapping[str, Any], ranks: Ranks) -> None:
    """Raise InputError on all ranks if types or some elements of operands differ between ranks; functions are passed.

    Of each array COMPARED elements are compared, spread evenly.
    """
    names = [name for name, x in values.items() if not callable(x)]
    digests = {name: _digest(values[name]) for name in names}
    first = ranks.at_first(lambda: digests)
    wrong = [name for name in names if first.get(name) != digests[name]]
    what = "" if not wrong else f"its operand {wrong[0]} has other elements or another type than that of rank 0"
    _refuse(ranks, bool(wrong), "of the operands", what)


def _digest(array: np.ndarray) -> str:
    """Return a digest of the type and of some elements of an array."""
    size = array.size
    places = np.unravel_index(np.arange(min(size, COMPARED)) * max(1, size // COMPARED), array.shape) if size else ()
    content = array[places].tobytes() if array.ndim else array.tobytes()
    return f"{array.dtype} {hashlib.sha256(content).hexdigest()}"


def _refuse(ranks: Ranks, differs: bool, what: str, reason: str) -> None:
    """Raise InputError on all ranks if one differs from rank 0."""
    flags = np.zeros(ranks.size)
    flags[ranks.rank] = differs
    wrong = np.flatnonzero(ranks.sum(flags))
    if len(wrong):
        named = f"rank {wrong[0]} has another version {what} than rank 0"
        raise InputError(f"{named}{': ' + reason if reason else ''}; give all ranks the same")


def measured_link(ranks: Ranks) -> Link:
    """Return the rates of messages between this rank and a neighbour in number, measured now; all ranks take part."""
    if ranks.size == 1:
        return Link()
    after, before = (ranks.rank + 1) % ranks.size, (ranks.rank - 1) % ranks.size

    def seconds(size: int) -> float:
        out, into, taken = np.zeros(size, np.uint8), np.empty(size, np.uint8), []
        for _ in range(TIMES):
            begin = time.perf_counter()
            ranks.exchange([(after, out)], [(before, into)]).wait()
            taken.append(time.perf_counter() - begin)
        return min(taken)

    start, whole = seconds(8), seconds(PROBE)
    return Link(8 * max(whole - start, 0.0) / PROBE, start)
