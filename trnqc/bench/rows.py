"""What was measured of a case."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from trnqc.bench.case import OURS
from trnqc.bench.figure import Figure


@dataclass(frozen=True)
class Row:
    """Seconds of both contestants, in turns.

    Attributes
    ----------
    case, group, what, rival
        As in `Case`.
    seconds, cpu_seconds
        Wall and CPU seconds of each round by contestant.
    compile_seconds
        Wall seconds by which our first run took longer than the next: it compiles kernels that the cache lacks. It is
        not among `seconds`.
    difference
        The largest difference of both results, relative to the largest element of the rival's.
    """

    case: str
    group: str
    what: str
    rival: str
    seconds: Mapping[str, tuple[float, ...]]
    cpu_seconds: Mapping[str, tuple[float, ...]]
    compile_seconds: float
    difference: float

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.seconds[OURS])

    def figure(self) -> Figure:
        """Median seconds and the median of the ratios within each round."""
        theirs, ours = self.seconds[self.rival], self.seconds[OURS]
        ratio = median(a / b for a, b in zip(theirs, ours))
        return Figure(self.what, self.rival, median(theirs), median(ours), ratio)

    def plain(self) -> dict[str, Any]:
        """All fields and figures, to be written as JSON."""
        figure = self.figure()
        return asdict(self) | {"theirs_s": figure.theirs, "ours_s": figure.ours, "ratio": figure.ratio}
