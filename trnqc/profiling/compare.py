"""Comparison of two profiles, A and B: every figure with its difference and ratio."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.profiling import activity
from trnqc.profiling.profile import Profile
from trnqc.profiling.utilisation import completed


@dataclass(frozen=True)
class ComparisonRow:
    """One figure of A and B. ``ratio`` is B / A; it is None if A is zero or either value is missing."""

    name: str
    a: float | None
    b: float | None

    @property
    def difference(self) -> float | None:
        if self.a is None or self.b is None:
            return None
        difference = self.b - self.a
        # Equal figures may differ by rounding if they were summed in another order.
        return difference if abs(difference) > 1e-9 * max(abs(self.a), abs(self.b)) else 0.0

    @property
    def ratio(self) -> float | None:
        return None if not self.a or self.b is None else self.b / self.a


@dataclass(frozen=True)
class Comparison:
    """Two profiles with their summary fields and stalls, one row per figure."""

    a: Profile
    b: Profile
    rows: tuple[ComparisonRow, ...]
    stalls: tuple[ComparisonRow, ...]

    @property
    def speedup(self) -> float | None:
        """Total time of A divided by the total time of B; None if unknown."""
        time = next((row for row in self.rows if row.name == "total_time"), None)
        return None if time is None or not time.b or time.a is None else time.a / time.b

    @property
    def caveats(self) -> tuple[str, ...]:
        """Sentences that say why A and B are not directly comparable."""
        caveats = []
        if self.a.measurement != self.b.measurement:
            caveats.append(f"A is {self.a.measurement}, B is {self.b.measurement}: a model is compared with a clock")
        if self.a.target != self.b.target:
            caveats.append(
                f"A is for {self.a.target or 'an unknown target'}, B for {self.b.target or 'an unknown target'}"
            )
        return tuple(caveats)


def compare(a: Profile, b: Profile) -> Comparison:
    """Compare two profiles.

    The rows hold every numeric field of either profile, those of A first. The stalls are in ns by engine and cause,
    longest first.
    """
    left, right = _numbers(a), _numbers(b)
    rows = tuple(
        ComparisonRow(name, left.get(name), right.get(name)) for name in [*left, *(n for n in right if n not in left)]
    )
    waits = [{f"{s.engine}: {s.cause}": s.ns for s in activity.stalls(p)} for p in (a, b)]
    names = sorted({*waits[0], *waits[1]}, key=lambda name: -max(w.get(name, 0.0) for w in waits))
    return Comparison(a, b, rows, tuple(ComparisonRow(name, *(w.get(name, 0.0) for w in waits)) for name in names))


def _numbers(profile: Profile) -> dict[str, float]:
    fields, _ = completed(profile)
    shared = activity.overlap(profile)
    extra = {"vector_scalar_hidden_percent": shared.hidden_percent} if profile.lanes else {}
    return {k: float(v) for k, v in (fields | extra).items() if isinstance(v, int | float)}
