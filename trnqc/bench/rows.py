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
    """Seconds of all contestants, in turns.

    Attributes
    ----------
    case, group, what
        As in `Case`.
    rivals
        The other contestants in the order in which they are shown.
    seconds, cpu_seconds
        Wall and CPU seconds of each round by contestant.
    first_seconds
        Wall seconds of each contestant's first call, which loads libraries and compiles kernels that the cache lacks.
        It is not among `seconds`.
    difference
        The largest difference of the results, relative to the largest element of the other program's.
    """

    case: str
    group: str
    what: str
    rivals: tuple[str, ...]
    seconds: Mapping[str, tuple[float, ...]]
    cpu_seconds: Mapping[str, tuple[float, ...]]
    first_seconds: Mapping[str, float]
    difference: float

    @property
    def rounds(self) -> int:
        """The number of rounds."""
        return len(self.seconds[OURS])

    def figures(self) -> tuple[Figure, ...]:
        """For each other contestant the median seconds, and median and range of the ratios within each round."""
        return tuple(self._figure(rival) for rival in self.rivals)

    def _figure(self, rival: str) -> Figure:
        theirs, ours = self.seconds[rival], self.seconds[OURS]
        ratios = [a / b for a, b in zip(theirs, ours)]
        return Figure(self.what, rival, median(theirs), median(ours), median(ratios), (min(ratios), max(ratios)))

    def plain(self) -> dict[str, Any]:
        """All fields and figures, to be written as JSON."""
        return asdict(self) | {"figures": [asdict(figure) for figure in self.figures()]}
