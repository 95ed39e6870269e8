"""One iteration of coupled cluster over spin orbitals from its text.

With single and double excitations beside numpy.einsum term by term, with triple excitations beside PySCF's, which is
written by hand over spatial orbitals.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from scripts import ROOT
from scripts.contract.disk import resident_peak
from scripts.measuring import clocked, in_turns, ratio
from trnqc.contraction import einsum_plan, parse
from trnqc.expression.program import Program

# Rounds of the iterations with triples.
ROUNDS = 5


def by_numpy(program: Program, arrays: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Every term by itself through numpy.einsum(optimize=True)."""
    values = dict(arrays)
    for statement in program.statements:
        total: Any = values[statement.target.tensor] if statement.accumulate else None
        for term in statement.terms:
            letter = {label: chr(97 + k) for k, label in enumerate(term.labels)}
            text = ",".join("".join(letter[x] for x in factor.labels) for factor in term.factors)
            text += "->" + "".join(letter[x] for x in statement.target.labels)
            operands = [1 / values[f.tensor] if f.reciprocal else values[f.tensor] for f in term.factors]
            value = float(term.coefficient) * np.einsum(text, *operands, optimize=True)
            total = value if total is None else total + value
        values[statement.target.tensor] = total
    return values


def coupled_cluster() -> dict[str, Any]:
    from pyscf import cc, gto, scf

    from examples import ccsd

    geometry = str(ROOT / "examples" / "molecules" / "water.xyz")
    mf = scf.RHF(gto.M(atom=geometry, basis="cc-pvdz", verbose=0)).run(conv_tol=1e-12)
    energy, blocks, _ = ccsd.iterate(mf, progress=lambda line: None)
    reference = cc.CCSD(mf).run(conv_tol=1e-10, conv_tol_normt=1e-8).e_corr
    arrays = ccsd.spin_orbital_integrals(mf)
    arrays |= {"t1": np.zeros_like(arrays["d1"]), "t2": arrays["oovv"] / arrays["d2"]}
    program = parse(ccsd.EQUATIONS).shaped({name: x.shape for name, x in arrays.items()})
    whole = einsum_plan(program, outputs=("n1", "n2", "energy"))
    times = in_turns(
        5,
        {
            "blocks": clocked(lambda: blocks.run(arrays)),
            "whole": clocked(lambda: whole.run(arrays)),
            "numpy": clocked(lambda: by_numpy(program, arrays)),
        },
    )
    cpu = {name: median(cpu for _, cpu in values) for name, values in times.items()}
    print(f"ccsd water/cc-pVDZ: {energy:.10f}, PySCF {reference:.10f}; CPU s an iteration {cpu}")
    work = {"blocks": blocks.multiply_adds, "whole": whole.multiply_adds}
    return {"energy": energy, "pyscf": reference, "cpu_s": cpu, "multiply_adds": work}


def triples() -> dict[str, Any]:
    """CCSDT of water with 6-31G, without a limit and with four fifths of the plan's own peak of temporaries."""
    from pyscf import gto, scf
    from pyscf.cc.rccsdt import RCCSDT

    from examples import ccsdt

    geometry = str(ROOT / "examples" / "molecules" / "water.xyz")
    mf = scf.RHF(gto.M(atom=geometry, basis="6-31g", verbose=0)).run(conv_tol=1e-13, conv_tol_grad=1e-9)
    energy, plan, arrays = ccsdt.iterate(mf, progress=lambda line: None)
    theirs = RCCSDT(mf).set(conv_tol=1e-11, conv_tol_normt=1e-8, max_cycle=100).run()
    eris = theirs.ao2mo(mf.mo_coeff)
    nocc, nvir = arrays["d1"].shape
    amplitudes = {name: arrays.pop(name) for name in ("t1", "t2", "t3")}
    plans = {"trnqc": plan, "trnqc, limited": ccsdt.plan_iteration(nocc, nvir, 4 * plan.peak_bytes // 5)}
    bound = {name: each.bind(arrays) for name, each in plans.items()}
    # PySCF adds the change to the amplitudes that it is given.
    contestants: dict[str, Callable[[], Any]] = {
        "pyscf": lambda: theirs.update_amps_([t.copy() for t in theirs.tamps], eris)
    }
    contestants |= {name: partial(each.run, amplitudes) for name, each in bound.items()}
    peaks = {name: resident_peak(work) for name, work in contestants.items()}
    times = in_turns(ROUNDS, {name: clocked(work) for name, work in contestants.items()})
    ratios = {name: ratio(times[name], times["pyscf"]) for name in plans}
    print(f"ccsdt water/6-31G: {energy:.11f}, PySCF {theirs.e_corr:.11f}")
    for name, values in times.items():
        print(f"{name:16} {peaks[name] / 1e6:6.0f} MB, CPU s an iteration {median(cpu for _, cpu in values):.3f}")
    print(f"ratios to PySCF {ratios}")
    return {
        "energy": energy,
        "pyscf": float(theirs.e_corr),
        "wall_cpu_s": times,
        "over_pyscf": ratios,
        "peak_bytes": peaks,
        "planned_peak_bytes": {name: each.peak_bytes for name, each in plans.items()},
        "multiply_adds": {name: each.unique_multiply_adds for name, each in plans.items()},
    }
