"""The ablation's rows as tables for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from rich.table import Table

from scripts.eri_ablation import reference as known

Rows = Sequence[dict[str, Any]]
METHODS = ("listed", "level", "fifo", "reach", "greedy", "target")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for n, column in enumerate(columns):
        table.add_column(column, justify="right" if n > 1 else "left")
    return table


def graphs(rows: Rows) -> list[Table]:
    counts = _table(
        "Vertical recurrence by axis rule (a prototype's nodes in brackets)",
        "class",
        "rule",
        "nodes",
        "edges",
        "targets",
        "flops",
    )
    peaks = _table(
        "Values that live at once; prototype: interleaved / ket first / bra first, with the paper's Eq. 7 "
        "in place of reach",
        "class",
        "rule",
        *METHODS,
        "target's slots",
    )
    for row in rows:
        digits = row["class"]
        for one in row["rules"]:
            was = known.NODES.get(digits, ())
            place = known.NODE_RULES.index(one["rule"]) if one["rule"] in known.NODE_RULES else None
            seen = f"{one['nodes']} ({was[place]})" if was and place is not None else str(one["nodes"])
            counts.add_row(digits, one["rule"], seen, *(str(one[x]) for x in ("edges", "targets", "flops")))
            before, after = one["slots"].get("target", ("", ""))
            slots = f"{before} -> {after}" if before else ""
            peaks.add_row(digits, one["rule"], *(str(one["peaks"].get(m, "-")) for m in METHODS), slots)
        fewest = row["fewest"]
        draws = len(fewest["all"][fewest["rule"]])
        peaks.add_row(digits, f"{fewest['rule']}, best of {draws}", *[""] * 5, str(fewest["peak"]), "")
        if digits in known.PROTOTYPE_PEAKS:
            of_prototype = dict(zip(("level", "fifo", "reach", "greedy", "target"), known.PROTOTYPE_PEAKS[digits]))
            peaks.add_row(
                digits, "prototype", *(of_prototype.get(m, "") for m in METHODS), "", style="dim", end_section=True
            )
    return [counts, peaks]


def phase2(rows: Rows) -> list[Table]:
    table = _table(
        "From targets to spherical integrals: harmonics step by step, and at the end",
        "class",
        "arrays step by step",
        "flops",
        "at the end",
        "prototype",
        "saved of all, K = 1",
        "largest array",
        "at the end",
    )
    for row in rows:
        fused, late = row["fused"], row["late"]
        was = " / ".join(map(str, known.PROTOTYPE_PHASE2.get(row["class"], ())))
        table.add_row(
            row["class"],
            " -> ".join(map(str, fused["sizes"])),
            str(fused["flops"]),
            str(late["flops"]),
            was,
            f"{row['share']:.1%}",
            str(fused["largest"]),
            str(late["largest"]),
        )
    return [table]


def gpu(rows: Rows) -> list[Table]:
    columns = ("arch", "+=", "lanes", "live", "registers", "spilled B", "shared B", "warps", "nvcc s", "peer on sm_80")
    title = "CUDA kernels: ptxas's figures, and warps at once as modelled from them"
    table = _table(title, "class", "variant", *columns)
    for row in rows:
        peer = known.PEER_REGISTERS.get(row["class"], ())
        if "error" in row:
            table.add_row(
                row["class"],
                row["variant"],
                row["arch"],
                row["accumulate"],
                str(row["lanes"]),
                str(row["peak"]),
                row["error"].splitlines()[0][:40],
            )
            continue
        spilled = f"{row['spill_stores']}/{row['spill_loads']}" + " given up" * row["given_up"]
        table.add_row(
            row["class"],
            row["variant"] + " (chosen)" * row["chosen"],
            row["arch"],
            row["accumulate"],
            str(row["lanes"]),
            str(row["peak"]),
            str(row["registers"]),
            spilled,
            str(row["shared"]),
            str(row["warps"]),
            f"{row['seconds']:.1f}",
            "{} regs, {}/{} B".format(*peer) if peer and row["arch"] == "sm_80" else "",
        )
    return [table]


def cpu(rows: Rows) -> list[Table]:
    primitives = sorted({k for row in rows for k in row["rates"]}, key=int)
    title = "CPU, one thread, million quartets a second and times the generator as it stands"
    table = _table(title, "class", "changed", *(f"K = {k}" for k in primitives))
    for row in rows:
        for name in next(iter(row["rates"].values())):
            cells = []
            for rates in row["rates"].values():
                cells.append(f"{rates[name]:.4g} ({rates[name] / rates['as it is']:.2f})" if name in rates else "")
            table.add_row(row["class"], name, *cells)
    return [table]


def eq7(rows: Rows) -> list[Table]:
    rules = [rule for row in rows for rule in row["rules"]]
    names = [name for row in rows for peaks in row["rules"].values() for name in peaks]
    table = _table("Values that live at once by readings of Eq. 7", "class", "rule", *dict.fromkeys(names))
    for row in rows:
        for rule in dict.fromkeys(rules):
            if peaks := row["rules"].get(rule):
                table.add_row(row["class"], rule, *map(str, peaks.values()))
    return [table]


def claims() -> Table:
    table = _table("What the paper claims", "quantity", "claim")
    for quantity, claim in known.CLAIMS.items():
        table.add_row(quantity, claim)
    return table


def targets(rows: Rows) -> Table:
    table = _table("Targets", "quantity", "class", "target", "found", "")
    for row in rows:
        table.add_row(row["quantity"], row["class"], row["target"], row["found"], "met" if row["met"] else "MISSED")
    return table


TABLES: dict[str, Callable[[Rows], list[Table]]] = {
    "graphs": graphs,
    "phase2": phase2,
    "gpu": gpu,
    "cpu": cpu,
    "eq7": eq7,
}
