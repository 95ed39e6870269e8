"""The analysis of profiles as JSON for scripts, schema ``trnqc.analysis/1``.

Times are in ns, except those of the summary fields, which have the vendor's names and are in seconds.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from trnqc.profiling import activity
from trnqc.profiling.compare import Comparison, ComparisonRow
from trnqc.profiling.profile import Profile
from trnqc.profiling.utilisation import completed, roofline

SCHEMA = "trnqc.analysis/1"


def analysis(profiles: Sequence[Profile], comparison: Comparison | None = None) -> str:
    """Return the JSON text of the analysis of profiles, with an optional comparison of two."""
    data: dict[str, Any] = {"schema": SCHEMA, "profiles": [_profile(profile) for profile in profiles]}
    if comparison:
        data["comparison"] = {
            "speedup": comparison.speedup,
            "caveats": list(comparison.caveats),
            "fields": {row.name: _row(row) for row in comparison.rows},
            "stalls_ns": {row.name: _row(row) for row in comparison.stalls},
        }
    return json.dumps(data, indent=1, allow_nan=False) + "\n"


def _row(row: ComparisonRow) -> dict[str, float | None]:
    return {"a": row.a, "b": row.b, "difference": row.difference, "ratio": row.ratio}


def _profile(profile: Profile) -> dict[str, Any]:
    fields, computed = completed(profile)
    shared, pairs, roof = activity.overlap(profile), activity.matrix(profile), roofline(profile)
    return {
        "title": profile.title,
        "source": profile.path,
        "format": profile.format,
        "measurement": profile.measurement,
        "target": profile.target,
        "summary": fields,
        "computed_here": sorted(computed),
        "activity": [asdict(row) for row in activity.activities(profile)],
        "overlap": asdict(shared)
        | {"vector_scalar_hidden_percent": shared.hidden_percent, "tensor_accompanied_percent": shared.tensor_percent},
        "overlap_matrix_ns": {a: dict(zip(pairs.engines, row)) for a, row in zip(pairs.engines, pairs.ns.tolist())},
        "queues": dict(profile.queues),
        "stalls": [asdict(row) for row in activity.stalls(profile)],
        "instructions": [asdict(row) for row in activity.ops(profile)],
        "roofline": roof
        and {
            "intensity": roof.intensity,
            "achieved_flops": roof.achieved,
            "attainable_flops": roof.attainable,
            "peak_flops": roof.peak,
            "bandwidth": roof.bandwidth,
            "ridge": roof.ridge,
            "bound": roof.bound,
            "reached_percent": roof.reached_percent,
        },
        "high_water": dict(profile.high_water),
        "provenance": dict(profile.provenance),
        "notes": list(profile.notes),
    }
