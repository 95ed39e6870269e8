"""The rule that the cores of one launch share: both run one program, and so the same device loops as often.

The vendor leaves the result undefined where the trip count of a device loop differs between the two cores of a logical
core (LNC 2, the default of trn2), and says that a run is likely to fail.
"""

from __future__ import annotations

from itertools import zip_longest

from trnqc.sim.machine.machine import Run
from trnqc.sim.machine.rules import Place, broken


def check_trips(runs: list[Run]) -> None:
    """Report the first device loop that the cores of a launch do not run equally often, by NkiValidationError if the
    run is strict.
    """
    for core in range(1, len(runs)):
        for mine, other in zip_longest(runs[0].trips, runs[core].trips):
            if mine != other:
                _report(mine, other, core)
                return


def _report(mine: tuple[Place, int] | None, other: tuple[Place, int] | None, core: int) -> None:
    if mine is not None and other is not None and mine[0] == other[0]:
        counts = f"makes {mine[1]} passes on core 0 and {other[1]} on core {core}"
    elif mine is not None and other is not None:
        counts = f"makes {mine[1]} passes on core 0, where core {core} makes {other[1]} passes of {_where(other[0])}"
    elif mine is not None:
        counts = f"makes {mine[1]} passes on core 0, and core {core} does not reach it"
    else:
        assert other is not None
        counts = f"makes {other[1]} passes on core {core}, and core 0 does not reach it"
    first = mine or other
    assert first is not None
    broken(
        f"the device loop at {_where(first[0])} {counts}; both cores run one program, and with unequal trip counts its "
        "result is undefined: let the core with fewer items repeat one",
        "undefined",
        place=first[0],
    )


def _where(place: Place) -> str:
    return f"{place[0]}:{place[1]}"
