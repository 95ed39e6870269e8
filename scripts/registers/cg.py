"""Registers, spills, shared memory, resident warps, bytes and operations of tensor-product kernels, without a GPU.

    python -m scripts.registers.cg [--arch sm_80 sm_90] [--labels mace-large ...] [--out profiles/counted/cg_cuda.json]

Needs nvcc. Beside them stand the same figures of OpenEquivariance's generator (snapshot of June 2026), whose kernels
were rendered for the properties of an A100 and an H100 and compiled by nvcc 13.0 with fast math. Bytes and resident
warps are modelled: from the plan, and from ptxas's figures. Operations are those that a lane executes for an edge.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT
from scripts.measuring import heading, machine, write_json
from scripts.workloads.tensor_products import CHANNELWISE, configuration
from trnqc.cg.cuda.builds import BLOCKS
from trnqc.cg.cuda.program import product_kernel
from trnqc.cg.cuda.schedule import plan
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import CompilerError
from trnqc.gen import emit_cuda
from trnqc.gen import statements as st
from trnqc.gen.values import walk
from trnqc.jit import build_all, compile_cuda
from trnqc.jit.occupancy import resident_warps

LANES = 32
LABELS = (*CHANNELWISE, "DiffDock-L=2")
# (label, bytes a number, architecture) -> registers of forward, backward, and the two kernels of a double backward.
REFERENCE_REGISTERS = {
    ("mace-large", 4, "sm_80"): (254, 80, 230, 80),
    ("mace-large", 4, "sm_90"): (254, 64, 177, 80),
    ("mace-large", 8, "sm_90"): (254, 174, 128, 174),
    ("nequip-lips", 4, "sm_80"): (128, 64, 168, 64),
    ("nequip-revmd17-benzene", 4, "sm_80"): (254, 80, 254, 128),
    ("DiffDock-L=2", 4, "sm_80"): (48, 127, 64, 128),
}
REFERENCE_SPILLS = {
    ("mace-large", 4, "sm_90", "backward"): "24 B stored, 24 B loaded",
    ("DiffDock-L=2", 4, "sm_80", "double_backward"): "20 B stored, 32 B loaded",
}
# mul and fma of mace-large fp32 for an edge; shared bytes a block of 8 warps; resident warps; worst traffic, backward.
REFERENCE_OPERATIONS = {"forward": 860 + 818, "backward": 2580 + 2062}
REFERENCE = {
    "shared_bytes_a_block": {"mace-large": 166400, "mace-medium": 156160, "nequip-lips": 153888},
    "resident_warps_sm_80": 8,
    "worst_traffic_fp64_backward": {"mace-large": 1.99, "nequip-revmd17-benzene": 2.31},
}


def operations(s: st.Statement) -> int:
    """mul and fma on floats that a lane executes; a loop of unknown length counts once."""
    if isinstance(s, st.Block):
        return sum(map(operations, s.body))
    if isinstance(s, st.For):
        known = s.begin.op == s.end.op == "const"
        return operations(s.body) * (-(-(s.end.attr - s.begin.attr) // s.step) if known else 1)
    return sum(v.op in ("mul", "fma") and v.dtype in ("f32", "f64") for v in walk(st.values(s)))


def row(label: str, size: int, name: str, arch: str) -> dict[str, Any]:
    """Raises CompilerError."""
    kernel_plan = plan(configuration(label), name, size, LANES)
    function = product_kernel(kernel_plan)
    builds = []
    # As the engine does: another form only if the first spills.
    for min_blocks in BLOCKS:
        text = emit_cuda(function, lanes=LANES, accumulate="plain", min_blocks=min_blocks)
        builds.append(compile_cuda(text, name="cg_registers", arch=arch))
        if not builds[-1].kernels[0].stack:
            break
    build = min(builds, key=lambda b: b.kernels[0].stack)
    (kernel,) = build.kernels
    row: dict[str, Any] = {
        "config": label,
        "dtype": f"float{8 * size}",
        "pass": name,
        "arch": arch,
        "registers": kernel.registers,
        "spill_stores": kernel.spill_stores,
        "spill_loads": kernel.spill_loads,
        "shared_bytes": kernel.shared,
        "resident_warps": resident_warps(kernel, LANES, arch),
        "bytes_moved": kernel_plan.moved,
        "bytes_least": kernel_plan.minimum,
        "traffic": kernel_plan.moved / kernel_plan.minimum,
        "mul_and_fma": operations(function.body),
        "nvcc_s": build.seconds,
        "source_bytes": len(text),
    }
    reference = REFERENCE_REGISTERS.get((label, size, arch))
    if reference and name in ("forward", "backward", "double_backward"):
        which = ("forward", "backward", "double_backward").index(name)
        row["reference_registers"] = reference[which : which + 1 + (which == 2)]
        row["reference_spills"] = REFERENCE_SPILLS.get((label, size, arch, name), "none")
    if label == "mace-large" and size == 4 and name in REFERENCE_OPERATIONS:
        row["reference_mul_and_fma"] = REFERENCE_OPERATIONS[name]
        row["operations_ratio"] = row["mul_and_fma"] / REFERENCE_OPERATIONS[name]
    return row


def table(rows: Sequence[dict[str, Any]]) -> Table:
    shown = Table(
        "kernel",
        "dtype",
        "arch",
        "registers",
        "reference",
        "spilled B",
        "shared B",
        "warps",
        "traffic",
        "mul+fma",
        "of reference",
    )
    for r in rows:
        ratio = f"{r['operations_ratio']:.2f}x" if "operations_ratio" in r else ""
        shown.add_row(
            f"{r['config']} {r['pass']}",
            r["dtype"],
            r["arch"],
            str(r["registers"]),
            "/".join(map(str, r.get("reference_registers", ()))),
            f"{r['spill_stores']}/{r['spill_loads']}",
            str(r["shared_bytes"]),
            str(r["resident_warps"]),
            f"{r['traffic']:.3f}x",
            str(r["mul_and_fma"]),
            ratio,
        )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--labels", nargs="+", default=list(LABELS))
    parser.add_argument("--passes", nargs="+", choices=DIRECTIONS, default=list(DIRECTIONS))
    parser.add_argument("--arch", nargs="+", default=["sm_80", "sm_90"])
    parser.add_argument("--out", type=Path, default=ROOT / "profiles" / "counted" / "cg_cuda.json")
    asked = parser.parse_args()
    keys = [
        (label, size, name, arch)
        for label in asked.labels
        for size in (4, 8)
        for name in asked.passes
        for arch in asked.arch
    ]
    jobs = {" ".join(map(str, key)): (lambda key=key: row(*key)) for key in keys}
    outcomes = build_all(jobs, workers=2, progress=lambda n, total, name: print(f"{n}/{total} {name}", file=sys.stderr))
    failed = {name: str(outcome) for name, outcome in outcomes.items() if isinstance(outcome, CompilerError)}
    rows = [outcome for outcome in outcomes.values() if not isinstance(outcome, CompilerError)]
    Console(width=150).print(table(rows))
    write_json(
        {**heading(), "machine": machine(), "lanes": LANES, "reference": REFERENCE, "rows": rows, "failed": failed},
        asked.out,
    )
    if failed:
        raise SystemExit(f"not compiled: {', '.join(failed)}")


if __name__ == "__main__":
    main()
