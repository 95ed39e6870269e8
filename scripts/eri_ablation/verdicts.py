"""Targets of the ablation and whether its rows meet them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from scripts.eri_ablation import reference as known

Rows = Sequence[dict[str, Any]]
# Usual graph and order, from which reductions are counted.
NAIVE_RULE, NAIVE_METHOD = "bra first", "fifo"


def verdicts(parts: Mapping[str, Rows]) -> list[dict[str, Any]]:
    """Return quantity, class, target and measured value in words, and whether the target is met, for all parts."""
    judged = {"graphs": _graphs, "gpu": _gpu}
    return [verdict for part, judge in judged.items() if part in parts for verdict in judge(parts[part])]


def _verdict(quantity: str, digits: str, target: str, measured: str, met: bool) -> dict[str, Any]:
    return {"quantity": quantity, "class": digits, "target": target, "found": measured, "met": met}


def _graphs(rows: Rows) -> Iterator[dict[str, Any]]:
    for row in rows:
        digits, peak = row["class"], row["fewest"]["peak"]
        by_rule = {one["rule"]: one for one in row["rules"]}
        for rule, most in zip(known.NODE_RULES, known.NODES.get(digits, ())):
            nodes = by_rule[rule]["nodes"]
            yield _verdict(f"nodes, {rule}", digits, f"{most}", f"{nodes}", nodes == most)
        if digits in known.PEAK_TARGETS:
            most = known.PEAK_TARGETS[digits]
            yield _verdict("values live at once", digits, f"<= {most}", f"{peak}", peak <= most)
        if digits in known.REDUCTION_TARGETS:
            least = known.REDUCTION_TARGETS[digits]
            factor = by_rule[NAIVE_RULE]["peaks"][NAIVE_METHOD] / peak
            text = f"{factor:.1f}x"
            yield _verdict(f"fewer than {NAIVE_METHOD}, {NAIVE_RULE}", digits, f">= {least}x", text, factor >= least)


def _gpu(rows: Rows) -> Iterator[dict[str, Any]]:
    for row in rows:
        if not row["chosen"] or "error" in row:
            continue
        spilled = row["spill_stores"] + row["spill_loads"]
        word = f"spilled bytes on {row['arch']}, {row['variant']}"
        yield _verdict(word, row["class"], "0", f"{spilled}", spilled == 0)
        most = known.REGISTER_TARGETS.get(row["class"])
        if most and "memory" in row["variant"]:
            yield _verdict(
                f"registers on {row['arch']}, {row['variant']}",
                row["class"],
                f"<= {most}",
                f"{row['registers']}",
                row["registers"] <= most,
            )
