"""Two profiles side by side: every figure of A and B, the difference and the ratio."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.profiling import activity
from trnqc.profiling.profile import Profile
from trnqc.profiling.utilisation import completed


@dataclass(frozen=True)
class Row:
    """One summary field; ratio is B / A, None where A is zero or either is missing."""

    name: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        if self.a is None or self.b is None:
            return None
        difference = self.b - self.a
        # What is left of equal figures that were added up in another order is no difference.
        return difference if abs(difference) > 1e-9 * max(abs(self.a), abs(self.b)) else 0.0

    @property
    def ratio(self) -> float | None:
        return None if not self.a or self.b is None else self.b / self.a


@dataclass(frozen=True)
class Comparison:
    """Two profiles side by side: their summary fields and their stalls, row by row."""

    a: Profile
    b: Profile
    rows: tuple[Row, ...]
    stalls: tuple[Row, ...]

    @property
    def speedup(self) -> float | None:
        """How many times faster B is than A."""
        time = next((row for row in self.rows if row.name == "total_time"), None)
        return None if time is None or not time.b or time.a is None else time.a / time.b

    @property
    def caveats(self) -> tuple[str, ...]:
        """What forbids or weakens reading the two as one experiment."""
        found = []
        if self.a.measurement != self.b.measurement:
            found.append(f"A is {self.a.measurement}, B is {self.b.measurement}: a model is compared with a clock")
        if self.a.target != self.b.target:
            found.append(
                f"A is for {self.a.target or 'an unknown target'}, B for {self.b.target or 'an unknown target'}"
            )
        return tuple(found)


def compare(a: Profile, b: Profile) -> Comparison:
    """All numeric fields that either has, those of A first; stalls by engine and cause in ns, longest first."""
    left, right = _numbers(a), _numbers(b)
    rows = tuple(Row(name, left.get(name), right.get(name)) for name in [*left, *(n for n in right if n not in left)])
    waits = [{f"{s.engine}: {s.cause}": s.ns for s in activity.stalls(p)} for p in (a, b)]
    names = sorted({*waits[0], *waits[1]}, key=lambda name: -max(w.get(name, 0.0) for w in waits))
    return Comparison(a, b, rows, tuple(Row(name, *(w.get(name, 0.0) for w in waits)) for name in names))


def _numbers(profile: Profile) -> dict[str, float]:
    fields, _ = completed(profile)
    shared = activity.overlap(profile)
    extra = {"vector_scalar_hidden_percent": shared.hidden_percent} if profile.lanes else {}
    return {k: float(v) for k, v in (fields | extra).items() if isinstance(v, int | float)}
