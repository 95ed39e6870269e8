"""Registers, spills, shared memory, resident warps, bytes and operations of tensor-product kernels, without a GPU.

    python -m scripts.registers.cg [--arch sm_80 sm_90] [--labels mace-large ...] [--out FILE]

Needs nvcc. Beside them stand the same figures of OpenEquivariance's generator (snapshot of June 2026), whose kernels
were rendered for the properties of an A100 and an H100 and compiled by nvcc 13.0 with fast math. Bytes and resident
warps are modelled: from the plan, and from ptxas's figures. Operations are those that a lane executes for an edge.
"""

from __future__ import annotations

import argparse
import itertools
import sys
from functools import partial

from scripts.registry import Benchmark, Row, Rows, main, several
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


def row(label: str, size: int, name: str, arch: str) -> Row:
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
    row: Row = {
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


def rows(asked: argparse.Namespace) -> Rows:
    """All passes, built two at a time; a row says which kernel the compiler refuses."""
    keys = itertools.product(asked.labels, (4, 8), asked.passes, asked.arch)
    jobs = {" ".join(map(str, key)): partial(row, *key) for key in keys}
    outcomes = build_all(jobs, workers=2, progress=lambda n, total, name: print(f"{n}/{total} {name}", file=sys.stderr))
    for name, outcome in outcomes.items():
        yield {"failed": f"{name}: {outcome}"} if isinstance(outcome, CompilerError) else outcome


def text(row: Row) -> str:
    """A kernel, and its registers beside those of the reference."""
    if "failed" in row:
        return str(row["failed"])
    reference = "/".join(map(str, row.get("reference_registers", ("none",))))
    ratio = f", {row['operations_ratio']:.2f}x its operations" if "operations_ratio" in row else ""
    return (
        f"{row['config']} {row['pass']} {row['dtype']} {row['arch']}: {row['registers']} registers, reference "
        f"{reference}{ratio}, {row['spill_stores']}/{row['spill_loads']} B spilled, {row['shared_bytes']} B shared, "
        f"{row['resident_warps']} warps, traffic {row['traffic']:.3f}x"
    )


BENCHMARK = Benchmark(
    "cg_cuda",
    __doc__,
    {"cg": rows},
    {
        "--labels": several(LABELS),
        "--passes": several(list(DIRECTIONS), choices=DIRECTIONS),
        "--arch": several(["sm_80", "sm_90"]),
    },
    place=("", "rows"),
    line=text,
    facts=lambda asked: {"lanes": LANES, "reference": REFERENCE},
    failed=lambda row: "failed" in row,
    folder="counted",
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
