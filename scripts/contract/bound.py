"""Products with vectors in the equations of coupled cluster: plans whose integrals and amplitudes are bound, or not."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from scripts.measuring import clocked, in_turns
from trnqc.contraction import einsum_plan, gradient
from trnqc.contraction.plan import Plan
from trnqc.mp2.reference.molecule import build_mole, load_geometry

ROUNDS = 21


def bound_inputs() -> dict[str, Any]:
    """Figures of water with 6-31G for the Lambda equations, and for excited, ionised and attached states."""
    from pyscf import scf

    from examples import ccsd, ccsd_properties, eom_ccsd

    mf = scf.RHF(build_mole(load_geometry("water"), "6-31g")).run(conv_tol=1e-13)
    arrays = eom_ccsd.solved(mf)
    rng = np.random.default_rng(0)
    program = ccsd_properties.sized(arrays)
    plan = einsum_plan(gradient(program, "L", ("t1", "t2")), outputs=("dL_dt1", "dL_dt2"))
    x = rng.standard_normal(ccsd.packed(arrays["d1"], arrays["d2"]).size)
    multipliers = zip(("l1", "l2"), ccsd.unpacked(x, *arrays["d1"].shape))
    # Multipliers that spin forbids are zero.
    tensors = {tensor.name: tensor for tensor in program.tensors}
    rest = {name: array * eom_ccsd.where_allowed(tensors[name]) for name, array in multipliers}
    figures = {"lambda": _measured("Lambda equations", plan, arrays, rest)}
    for states in eom_ccsd.ADDITIONAL:
        jacobian = eom_ccsd.Jacobian(arrays, states)
        directions = jacobian.amplitudes(rng.standard_normal(jacobian.gaps.size))
        rest = dict(zip(("dt1", "dt2"), directions))
        figures[states] = _measured(f"EOM, {states}", jacobian.plan, jacobian.arrays, rest)
    return figures


def _measured(title: str, plan: Plan, arrays: dict[str, np.ndarray], rest: dict[str, np.ndarray]) -> dict[str, Any]:
    """Multiply-adds, milliseconds of a product in each way and of `bind`, and the largest difference of results."""
    fixed = {name: arrays[name] for name, _ in plan.inputs if name not in rest}
    bound = plan.bind(fixed)
    whole, part = plan.run(fixed | rest), bound.run(rest)
    ways = {
        "plan.run": lambda: plan.run(fixed | rest),
        "bound": lambda: bound.run(rest),
        "plan.run, without checks": lambda: plan.run(fixed | rest, check_finite=False),
        "bound, without checks": lambda: bound.run(rest, check_finite=False),
        "bind": lambda: plan.bind(fixed),
    }
    times = in_turns(ROUNDS, {name: clocked(work) for name, work in ways.items()})
    cpu_ms = {name: 1e3 * median(cpu for _, cpu in values) for name, values in times.items()}
    counts = {"plan.run": plan.multiply_adds, "bound": bound.multiply_adds, "once": bound.multiply_adds_once}
    difference = max(float(np.abs(whole[name] - part[name]).max()) for name in whole)
    words = ", ".join(f"{name} {value:.2f}" for name, value in cpu_ms.items())
    print(f"{title}: CPU ms {words}; multiply-adds {counts}; largest difference {difference:.1e}")
    return {"cpu_ms": cpu_ms, "multiply_adds": counts, "kept": bound.kept_elements, "difference": difference}
