"""One rank of the iteration of coupled cluster that `scripts.contract.ranks` measures, started by torchrun.

python -m torch.distributed.run --standalone --nproc-per-node 2 -m scripts.contract.rank_iteration OUT ROUNDS LIMIT
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np

from scripts import ROOT
from scripts.contract.coupled_cluster import packed_pairs
from scripts.measuring import clocked
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.ranks.program import over_ranks
from trnqc.expression.program import Program
from trnqc.ranks.transport import started

# Occupied and virtual orbitals of benzene in cc-pVDZ.
EXTENTS = (21, 93)


def problem(nocc: int, nvir: int) -> tuple[Program, dict[str, Any]]:
    """(program, operands): random numbers with the declared symmetry, the same in every process."""
    text = (ROOT / "examples" / "rccsd.txt").read_text(encoding="utf-8")
    text = text.replace("tensor vvvv[v,v,v,v]", "function vvvv[v,v,v,v] cost 1")
    program = parse(text).sized(o=nocc, v=nvir)
    rng = np.random.default_rng(1)
    operands: dict[str, Any] = {}
    for tensor in program.tensors:
        if tensor.name not in program.inputs:
            continue
        if tensor.cost:
            packed = rng.standard_normal((nvir * (nvir + 1) // 2,) * 2)
            operands[tensor.name] = packed_pairs(packed + packed.T, nvir)
            continue
        x = rng.standard_normal(tuple(nocc if space.name == "o" else nvir for space in tensor.spaces))
        for exchange in tensor.every_exchange:
            x = x + x.transpose(exchange.order(x.ndim))
        operands[tensor.name] = x
    return program, operands


def main(out: str, rounds: int, limit: int | None) -> None:
    """Rank 0 writes (wall, CPU) seconds of each round on each rank, and bytes received and predicted."""
    program, operands = problem(*EXTENTS)
    with started("cpu") as ranks:
        shared = over_ranks(einsum_plan(program, outputs=("n1", "n2", "energy"), memory_limit=limit), ranks)
        run = clocked(lambda: shared.run(operands))
        run()
        times = np.zeros((ranks.size, rounds, 2))
        for turn in range(rounds):
            ranks.sum(np.zeros(1))
            times[ranks.rank, turn] = run()
        times = ranks.sum(times)
        received = ranks.sum(np.array([float(shared.received)]))[0]
        if ranks.rank == 0:
            division = shared.division
            row = {
                "wall_cpu_s": times.tolist(),
                "received_bytes": int(received),
                "predicted_bytes": division.received_bytes,
                "predicted_s": division.seconds,
            }
            Path(out).write_text(json.dumps(row), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]) or None)
