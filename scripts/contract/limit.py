"""Contractions limited to a tenth of their temporaries: peak memory and times, against no limit and other libraries.

The fitted ladder runs without and with what is known of its operands: that the amplitudes do not change if both of
their pairs are exchanged, and that the fitted integrals are symmetric. Peers take no symmetry.
"""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from statistics import median
from typing import Any

import numpy as np
import opt_einsum

from scripts.contract.disk import keep_pages, resident_peak
from scripts.measuring import clocked, in_turns
from trnqc.contraction import einsum, einsum_plan
from trnqc.expression.symmetry import parse_symmetries

Work = Callable[[], Any]


@dataclass(frozen=True)
class Case:
    """text over extents; alike: operands that are an earlier one; symmetric: what of them is told, by contestant."""

    text: str
    extents: Mapping[str, int]
    alike: Mapping[int, int] = field(default_factory=dict)
    symmetric: Mapping[str, Mapping[int, str]] = field(default_factory=dict)

    def operands(self) -> list[np.ndarray]:
        """Random arrays with all of the symmetry that any contestant is told of."""
        rng = np.random.default_rng(1)
        shapes = [tuple(self.extents[x] for x in labels) for labels in self.text.split("->")[0].split(",")]
        known = {k: v for stated in self.symmetric.values() for k, v in stated.items()}
        arrays: list[np.ndarray] = []
        for k, (shape, exchanges) in enumerate(zip(shapes, parse_symmetries(known, shapes))):
            x = arrays[self.alike[k]] if k in self.alike else rng.standard_normal(shape)
            for exchange in exchanges:
                x = x + exchange.sign * x.transpose(exchange.order(x.ndim))
            arrays.append(x)
        return arrays


CASES = {
    "fitted ladder": Case(
        "Qae,Qbf,efij->abij",
        {"Q": 300, **dict.fromkeys("abef", 72), **dict.fromkeys("ij", 12)},
        {1: 0},
        {"symmetric t": {2: "efij = feji"}, "symmetric t, B": {2: "efij = feji", 0: "Qae = Qea"}},
    ),
    "transformation": Case("pqrs,pa,qb,rc,sd->abcd", dict.fromkeys("pqrsabcd", 72)),
}


def limited() -> dict[str, Any]:
    record, again = {}, {}
    for name, case in CASES.items():
        record[name], again[name] = _case(name, case)
    keep_pages()
    for name, contestants in again.items():
        times = in_turns(3, {who: clocked(work) for who, work in contestants.items()})
        kept = record[name]["kept_pages_wall_cpu_s"] = {who: _medians(values) for who, values in times.items()}
        print(f"{name}, with pages that are kept:")
        for who, (wall, cpu) in kept.items():
            print(f"    {who:26} {wall:8.3f} s, CPU {cpu:8.3f} s")
    return record


def _case(name: str, case: Case) -> tuple[dict[str, Any], dict[str, Work]]:
    """(record, contestants that ran)."""
    operands = case.operands()
    plain = einsum_plan(case.text, *operands)
    limit = sum(tree.size(node.indices) for tree in plain.trees for node in tree.temporaries) // 10
    plans = {"limited": einsum_plan(case.text, *operands, memory_limit=8 * limit), "unlimited": plain}
    for told, symmetries in case.symmetric.items():
        for kind, bytes_limit in (("limited", 8 * limit), ("unlimited", None)):
            plans[f"{kind}, {told}"] = einsum_plan(
                case.text, *operands, memory_limit=bytes_limit, symmetries=symmetries
            )
    contestants: dict[str, Work] = {who: partial(plan.run, *operands) for who, plan in plans.items()}
    contestants |= peers(case.text, operands, limit)
    expected = einsum(case.text, *operands)
    peak: dict[str, tuple[int, int]] = {}
    failed: dict[str, str] = {}
    for who, work in list(contestants.items()):
        try:
            np.testing.assert_allclose(work(), expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())
            peak[who] = memory(work, expected.nbytes)
        except RuntimeError as error:  # how opt_einsum says that it has no path
            failed[who] = str(error)
            del contestants[who]
    over = [who for who in peak if not who.startswith("unlimited") and max(peak[who]) > 8 * limit]
    times = in_turns(3, {who: clocked(work) for who, work in contestants.items()})
    seconds = {who: _medians(values) for who, values in times.items()}
    print(f"{name}: limit {8 * limit / 1e6:.1f} MB; beside the result allocated at most, and resident")
    for who in contestants:
        (wall, cpu), (allocated, resident) = seconds[who], (x / 1e6 for x in peak[who])
        note = "over the limit" if who in over else ""
        print(f"    {who:26} {allocated:7.1f} {resident:7.1f} MB  {wall:8.3f} s, CPU {cpu:8.3f} s  {note}")
    for who, reason in failed.items():
        print(f"    {who:26} fails: {reason}")
    return {
        "limit_bytes": 8 * limit,
        "allocated_resident_bytes": peak,
        "over_the_limit": over,
        "wall_cpu_s": seconds,
        "failed": failed,
        "multiply_adds": {who: plan.unique_multiply_adds for who, plan in plans.items()},
        "plans": {who: str(plan) for who, plan in plans.items()},
    }, contestants


def _medians(times: list[tuple[float, float]]) -> tuple[float, float]:
    return median(wall for wall, _ in times), median(cpu for _, cpu in times)


def peers(text: str, operands: list[np.ndarray], limit: int) -> dict[str, Work]:
    """opt_einsum and cotengra with the same limit on elements of a temporary, which for them includes the result."""
    import cotengra

    left, output = text.split("->")
    extents = {x: n for labels, operand in zip(left.split(","), operands) for x, n in zip(labels, operand.shape)}
    tree = cotengra.HyperOptimizer(
        methods=["greedy"],
        max_repeats=32,
        parallel=False,
        progbar=False,
        optlib="random",
        slicing_opts={"target_size": max(limit, 1)},
    ).search([tuple(x) for x in left.split(",")], tuple(output), extents)
    return {
        "opt_einsum": lambda: opt_einsum.contract(text, *operands, memory_limit=limit, optimize="dp"),
        "cotengra": lambda: tree.contract(operands),
    }


def memory(work: Work, result: int) -> tuple[int, int]:
    """Bytes beside the result: allocated at most by NumPy and Python, and by which the process grew."""
    tracemalloc.start()
    try:
        work()
        allocated = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    return allocated - result, resident_peak(work) - result
