"""What launches of J and K execute, against a simulated device and loops in Python, and the bound of their time."""

from __future__ import annotations

import json
from dataclasses import fields

import numpy as np
import pytest
from pyscf import gto

from scripts.device import kernel_time
from scripts.device.executed import Executed, by_class
from scripts.device.kernel_time import BOUND, PEAK, Model, levels, row_of, total
from scripts.workloads.quartets import quartet
from trnqc.eri.classes import BOUND as PRIMITIVE_BOUND
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.run import DeviceRun
from trnqc.eri.cuda.tiers import candidates
from trnqc.eri.jk.batch import COUNT, REALS, Batch
from trnqc.eri.kernels.recurrence import recurrence
from trnqc.gen.cost import cost_of_values
from trnqc.jit.simulated_device import SimulatedDevice


class Queues(SimulatedDevice):
    """Keeps the queues that the screening programs fill, as (task, bra pair, ket pairs)."""

    def run(self, launch, operands):
        super().run(launch, operands)
        groups, arguments = launch.groups, launch.arguments
        if launch.built.signature.name.startswith("screen"):
            counts, queue, a = arguments["counts"].handle, arguments["queue"].handle, arguments
            for row in range(groups):
                own = queue[row * a["queue_step"] :][: counts[row]]
                self.rows.append((a["task"], a["first_pair"] + row // a["parts"] * a["step"], own.copy()))


class Counting(CudaJKBuilder):
    """Keeps the pass, its tasks and its counts."""

    def _summed(self, run, tables, libraries):
        self.run, self.tasks = run, self._own_tasks(tables)
        share = DeviceRun(self._residents[0], self._kernels[0], run, self.tasks, 0, 1, self._note)
        self.counts = by_class(iter(share.plan.launches), self.tasks, run)
        return super()._summed(run, tables, libraries)


def literal(task, run, pair, queue, lanes: int) -> Executed:
    """The loops of the kernel as they stand in its program."""
    least = run.reals[REALS.index("primitive")]
    bra = task.bra.records_for(task.cls)[pair, :, PRIMITIVE_BOUND]
    n_bra, counts = task.bra.places[pair, COUNT], Executed(rows=1)
    for first in range(0, len(queue), lanes):
        ket = task.ket.bounds[queue[first]]
        rows = i = bras = primitives = 0
        while rows < len(ket) - 1 and bra[0] * ket[rows] >= least:
            rows += 1
        while i == 0 or (i < n_bra and bra[i] * ket[0] >= least):
            j = 0
            while j < rows and bra[i] * ket[j] >= least:
                j += 1
            i, bras, primitives = i + 1, bras + 1, primitives + j
        counts += Executed(0, 0, min(lanes, len(queue) - first), 1, rows, bras, primitives)
    return counts


def test_counts_are_those_of_a_simulated_device_and_of_the_loops_of_its_kernel():
    atoms = "; ".join(f"H 0 {n % 3} {2.5 * n}" for n in range(10))
    mol = gto.M(atom=atoms, basis="sto-3g", verbose=0)
    device = Queues(lanes=4, memory=1 << 34, streams=2)
    device.rows = []
    builder = Counting(mol, devices=[device])
    builder.get_jk(np.eye(10))
    expected = Executed(launches=builder.counts["0000"].launches)
    for number, pair, queue in device.rows:
        expected += literal(builder.tasks[number], builder.run, pair, queue, 4)
    assert builder.counts == {"0000": expected}
    # Some vectors leave primitives out, others leave lanes empty.
    assert expected.primitives < 81 * expected.vectors and expected.quartets < 4 * expected.vectors
    assert expected.launches == device.launches


@pytest.mark.parametrize("digits", ["0000", "1010", "2111"])
def test_a_primitive_costs_its_recurrence_and_little_more(digits):
    """Prefactors and Boys values take some hundred flops, and each target is added to memory."""
    batch = Batch(quartet(digits))
    tier = next(candidates(batch.cls))
    each = levels(batch, tier)
    targets = recurrence(*batch.cls.shells, rule=tier.variant.rule).targets
    least = cost_of_values(*targets).flops.at()
    assert least < each["primitives"].flops < least + 300 + len(targets)
    assert all(level.instructions <= level.flops <= 2 * level.instructions for level in each.values())
    assert each["vectors"].flops > 0 and each["ket_rows"].bytes > 0


def test_the_bound_is_of_instructions_at_half_the_peak(monkeypatch, tmp_path):
    batch = Batch(quartet("0000"))
    tier, model = next(candidates(batch.cls)), Model("sm_80", 1, peak=2e9, bandwidth=1.0)
    kernel = dict.fromkeys(("registers", "spill_stores", "spill_loads", "resident_warps"), 0) | {"lanes": 128}
    counts = Executed(launches=2, rows=1, quartets=100, vectors=1, ket_rows=1, bras=1, primitives=1)
    row = row_of(batch, tier, kernel, counts, model)
    assert row["seconds of instructions"] == row["instructions"] / 1e9 > row[PEAK] == row["flops"] / 2e9
    # Four blocks of K and one of J, on all lanes.
    assert 0 < row["seconds of instructions of primitives"] < row["seconds of instructions"]
    assert row["additions"] == 5 * 128 and row["lanes in use"] == 100 / 128
    # The only target of (00|00) is written and read by each lane.
    assert row["seconds of targets between programs"] == 0
    split = next(tier for tier in candidates(batch.cls) if tier.split)
    between = row_of(batch, split, kernel, counts, model)
    assert between["seconds of targets between programs"] == 16 * 128 and between[PEAK] == row[PEAK]
    host = tmp_path / "host.json"
    cases = {"J and K, a/b": 0.5, "SCF cycle, a/b": 0.25, "SCF cycle, a/b, J and K alone on the GPU": 9.0}
    host.write_text(json.dumps({"rows": [{"case": name, "host_seconds": s} for name, s in cases.items()]}))
    monkeypatch.setattr(kernel_time, "HOST", host)
    sums = total([row, row], "a/b")
    assert sums[BOUND] == 2 * row[BOUND] and sums["host seconds"] == 0.5
    # A graph is one launch: the time does not depend on the launches that it holds.
    assert sums["host over bound"] == 0.5 / sums[BOUND] and sums["cycle over bound"] == 0.25 / sums[BOUND]
    assert "host seconds" not in total([row], "c/d")
    assert {field.name for field in fields(counts)} < row.keys()
