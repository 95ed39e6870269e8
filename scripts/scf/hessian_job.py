"""One analytic Hessian in a process of its own, whose parts are timed; `bench_hessian.py` starts it.

    python -m scripts.scf.hessian_job {PySCF,trnqc} glucose/6-31g*/b3lyp/direct

Both contestants start from the same orbitals, which an accelerated SCF has converged. The parts are those of PySCF's
`hess_elec`: second derivatives at constant orbitals, derivatives of the Fock matrix, and the coupled-perturbed
equations. It prints JSON with the wall and CPU seconds of every part.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from scripts import ROOT
from scripts.scf import job

# Methods of a Hessian object whose time is a part of its own.
PARTS = {
    "partial_hess_elec": "constant orbitals",
    "make_h1": "Fock derivatives",
    "solve_mo1": "coupled-perturbed equations",
}


def molecule(name: str, basis: str) -> Any:
    """Return a molecule of scripts/workloads or one of those that `scripts.scf.job` knows."""
    from pyscf import gto

    file = ROOT / "scripts" / "workloads" / f"{name}.xyz"
    if file.exists():
        return gto.M(atom=str(file), basis=basis, verbose=0, max_memory=job.MEMORY)
    return job.molecule(name, basis)


def measure(who: str, case: str) -> dict[str, Any]:
    """Return the seconds of each part and the Hessian, [natm, natm, 3, 3] in Hartree/Bohr^2."""
    name, basis, functional, way = case.split("/")
    mol = molecule(name, basis)
    mf = job.scf_object("trnqc", mol, functional, way)
    mf.conv_tol = 1e-10
    energy = mf.kernel()
    if who == "PySCF":
        mf = mf.undo()
    hessian = mf.Hessian()
    clock = job.Clock()
    job.watch(clock, hessian, PARTS)
    clock.end()
    result = hessian.kernel()
    return {
        "nao": mol.nao,
        "e_scf": float(energy),
        "hessian": result.tolist(),
        "parts": clock.end(),
        "ran_on": str(getattr(hessian, "ran_on", "PySCF")),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("who", choices=("PySCF", "trnqc"))
    parser.add_argument("case", metavar="MOLECULE/BASIS/FUNCTIONAL/WAY", help="hf is a functional, ways: fitted direct")
    asked = parser.parse_args()
    print(json.dumps(measure(asked.who, asked.case)))


if __name__ == "__main__":
    main()
