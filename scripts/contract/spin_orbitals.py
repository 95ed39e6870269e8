"""One iteration of coupled cluster over spin orbitals from its text, beside numpy.einsum term by term."""

from __future__ import annotations

from statistics import median
from typing import Any

import numpy as np

from scripts import ROOT
from scripts.measuring import clocked, in_turns
from trnqc.contraction import einsum_plan, parse
from trnqc.expression.program import Program


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
