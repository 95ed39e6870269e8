"""Flops and intermediates from targets to integrals, with harmonics for each side at once, or for all at the end."""

from __future__ import annotations

from typing import Any

from scripts.eri_ablation.graphs import shells
from trnqc.eri.kernels.horizontal import flops, scratch_size, stages
from trnqc.eri.kernels.recurrence import components, fewest_flops, recurrence
from trnqc.gen.cost import cost_of_values


def phase2_row(digits: str) -> dict[str, Any]:
    """`flops`, and `largest` of the arrays between the stages, targets and integrals included; `share` of all flops
    that the order saves in an uncontracted quartet."""
    la, lb, lc, ld = shells(digits)
    start = len(components(la, lb)), len(components(lc, ld))
    counts: dict[str, dict[str, Any]] = {}
    for word, fused in (("fused", True), ("late", False)):
        order = stages(la, lb, lc, ld, cartesian=False, fused=fused)
        sizes, extents = [start[0] * start[1]], start
        for stage in order:
            extents = (stage.after, extents[1]) if stage.axis == 0 else (extents[0], stage.after)
            sizes.append(extents[0] * extents[1])
        scratch = scratch_size(la, lb, lc, ld, False, fused)
        counts[word] = {"flops": flops(order, start), "sizes": sizes, "largest": max(sizes), "scratch": scratch}
    rule = fewest_flops(la, lb, lc, ld)
    vertical = cost_of_values(*recurrence(la, lb, lc, ld, rule=rule).targets).flops.at()
    whole = vertical + counts["late"]["flops"]
    share = (counts["late"]["flops"] - counts["fused"]["flops"]) / whole if whole else 0.0
    return {"class": digits, "vertical_flops": vertical, **counts, "share": share}
