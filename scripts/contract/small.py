"""Programs of many small steps: one run of our plan beside Python's loop over the same products.

Overlaps of matrix product states whose bonds have charges: E'[b,c] = sum E[a,d] A[a,s,b] B[d,s,c] for each site, in
which blocks of other charges are zero. The loop runs over the blocks, which are cut beforehand. And an iteration of
coupled cluster for few orbitals, where the loop is the steps of our plan as calls of NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from scripts import ROOT
from scripts.measuring import in_turns
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.plan import Plan
from trnqc.contraction.run.dispatch import run_computation

SITES = 8
# Number of charges of a bond and states of each.
BONDS = ((3, 2), (5, 4), (5, 8), (5, 16))
# Occupied and virtual orbitals.
ORBITALS = ((3, 4), (5, 8))
REPEATS = 20


def _chain(charges: int, states: int) -> tuple[Plan, dict[str, np.ndarray]]:
    """Return the plan of an overlap, and its operands."""
    parts = " + ".join([str(states)] * charges)
    lines = [
        f"space m = {parts}",
        "space p = 1 + 1",
        "index a b c d : m",
        "index s : p",
        "tensor E0[m,m] conserving(0|1)",
    ]
    lines += [f"tensor {x}{k}[m,p,m] conserving(0,1|2)" for k in range(1, SITES + 1) for x in "AB"]
    lines += [f"E{k}[b,c] = E{k - 1}[a,d] * A{k}[a,s,b] * B{k}[d,s,c]" for k in range(1, SITES + 1)]
    plan = einsum_plan(parse("\n".join(lines)))
    assert plan.blocked is not None
    rng = np.random.default_rng(0)
    operands = {name: np.zeros(plan.shapes[name]) for name, _ in plan.inputs}
    for name, whole in operands.items():
        for slices, _ in plan.blocked.inputs[name].blocks:
            whole[slices] = rng.standard_normal(whole[slices].shape) / charges
    return plan, operands


def _cut(whole: np.ndarray, charges: int, states: int) -> dict[tuple[int, ...], np.ndarray]:
    """Return the blocks of E, or of a site, by the charges of their axes."""
    at = [slice(k * states, (k + 1) * states) for k in range(charges)]
    if whole.ndim == 2:
        return {(k, k): whole[at[k], at[k]] for k in range(charges)}
    return {(k, s, k + s): whole[at[k], s, at[k + s]] for k in range(charges) for s in range(2) if k + s < charges}


def _loop(operands: dict[str, np.ndarray], charges: int, states: int) -> Callable[[], np.ndarray]:
    cuts = {name: _cut(whole, charges, states) for name, whole in operands.items()}

    def overlap() -> np.ndarray:
        e = cuts["E0"]
        for site in range(1, SITES + 1):
            a, b, new = cuts[f"A{site}"], cuts[f"B{site}"], dict[tuple[int, ...], np.ndarray]()
            for (left, s, right), block in a.items():
                term = block.T @ e[left, left] @ b[left, s, right]
                new[right, right] = new[right, right] + term if (right, right) in new else term
            e = new
        whole = np.zeros((charges * states,) * 2)
        for (k, _), block in e.items():
            whole[k * states : (k + 1) * states, k * states : (k + 1) * states] = block
        return whole

    return overlap


def _iteration(o: int, v: int) -> tuple[Plan, dict[str, np.ndarray]]:
    program = parse((ROOT / "examples" / "rccsd.txt").read_text(encoding="utf-8")).sized(o=o, v=v)
    rng, operands = np.random.default_rng(0), {}
    for tensor in program.tensors:
        x = rng.standard_normal(tuple(space.extent or 0 for space in tensor.spaces))
        for symmetry in tensor.symmetries:
            x = x + symmetry.sign * x.swapaxes(*symmetry.axes)
        operands[tensor.name] = x
    plan = einsum_plan(program, outputs=("n1", "n2", "energy"))
    return plan, {name: operands[name] for name, _ in plan.inputs}


def _clocked(run: Callable[[], Any]) -> Callable[[], float]:
    def clock() -> float:
        start = time.process_time()
        for _ in range(REPEATS):
            run()
        return (time.process_time() - start) / REPEATS

    return clock


def _row(case: str, plan: Plan, operands: dict[str, np.ndarray], loop: Callable[[], Any]) -> dict[str, Any]:
    ours = partial(plan.run, operands, check_finite=False)
    result, expected = ours(), loop()
    one = result if isinstance(result, dict) else {"": result}
    other = expected if isinstance(expected, dict) else {"": expected}
    error = max(float(np.abs(one[name] - x).max() / np.abs(x).max()) for name, x in other.items())
    times = in_turns(7, {"loop": _clocked(loop), "trnqc": _clocked(ours)})
    microseconds = {name: 1e6 * median(values) for name, values in times.items()}
    ratio = microseconds["loop"] / microseconds["trnqc"]
    print(f"{case:44} loop {microseconds['loop']:.0f} us, trnqc {microseconds['trnqc']:.0f} us: {ratio:.1f}")
    steps = sum(len(tree.nodes) for tree in plan.trees)
    facts = {"steps": steps, "multiply_adds": plan.multiply_adds, "tape": plan.tape is not None, "error": error}
    return {"microseconds": microseconds, "ratio": ratio, **facts}


def small_steps() -> dict[str, Any]:
    """Return microseconds of CPU time of one run by case, medians of rounds in turns."""
    rows = {}
    for charges, states in BONDS:
        plan, operands = _chain(charges, states)
        case = f"overlap of {SITES} sites, {charges} charges of {states}"
        rows[case] = _row(case, plan, operands, _loop(operands, charges, states))
    for o, v in ORBITALS:
        plan, operands = _iteration(o, v)
        # Without its tape a plan runs as calls of NumPy.
        calls = partial(run_computation, plan, operands, check_finite=False)
        case = f"CCSD iteration, {o} and {v} orbitals"
        rows[case] = _row(case, plan, operands, calls)
    return {"rows": rows}
