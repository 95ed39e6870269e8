#!/usr/bin/env python
"""Coupled cluster of a closed shell on the ranks of a job: examples/rccsd.txt, divided once and iterated.

    torchrun --nproc-per-node 2 examples/rccsd_ranks.py water --basis cc-pvdz

prints what is divided, the iterations and PySCF's energy for comparison. Without torchrun one process does all.
"""

import argparse
import os
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import cc, lib, scf

from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.ranks.program import over_ranks
from trnqc.errors import NotConverged
from trnqc.mp2.reference.molecule import build_mole, load_geometry
from trnqc.ranks import ALONE, Ranks

HERE = Path(__file__).parent
# Largest number of iterations.
MOST = 50


def integrals(mf: Any) -> dict[str, np.ndarray]:
    """The integrals and denominators of examples/rccsd.txt for an RHF reference."""
    theirs = cc.rccsd.RCCSD(mf)
    eris = theirs.ao2mo()
    names = ("oooo", "ovoo", "ovov", "oovv", "ovvo", "ovvv", "vvvv")
    d1 = eris.mo_energy[: theirs.nocc, None] - eris.mo_energy[theirs.nocc :]
    values = {name: np.asarray(getattr(eris, name)) for name in names}
    return values | {"d1": d1, "d2": d1[:, None, :, None] + d1[None, :, None, :]}


def iterated(values: dict[str, np.ndarray], ranks: Ranks, limit: int | None = None, threshold: float = 1e-9) -> float:
    """Return the correlation energy in Hartree; all ranks make this call with the same integrals.

    Raises NotConverged if the energy still changes by more than the threshold after MOST iterations.
    """
    program = parse((HERE / "rccsd.txt").read_text(encoding="utf-8"))
    t1, t2 = np.zeros_like(values["d1"]), values["ovov"].transpose(0, 2, 1, 3) / values["d2"]
    plan = einsum_plan(program, values | {"t1": t1, "t2": t2}, outputs=("n1", "n2", "energy"), memory_limit=limit)
    shared, subspace, before = over_ranks(plan, ranks), lib.diis.DIIS(), np.inf
    if ranks.rank == 0:
        print(shared)
    for iteration in range(1, MOST + 1):
        found = shared.run(values, t1=t1, t2=t2)
        # All ranks have the same bits, so that they extrapolate alike and stop together.
        if ranks.rank == 0:
            print(f"iteration {iteration:2}  E = {found['energy']:.10f}  {shared.received / 1e6:.3f} MB received")
        if abs(found["energy"] - before) < threshold:
            return float(found["energy"])
        vector = subspace.update(np.concatenate([found["n1"].ravel(), found["n2"].ravel()]))
        t1, t2 = vector[: t1.size].reshape(t1.shape), vector[t1.size :].reshape(t2.shape)
        # The amplitudes are symmetric up to rounding, which t2 states exactly.
        t2, before = (t2 + t2.transpose(1, 0, 3, 2)) / 2, found["energy"]
    raise NotConverged(f"the energy still changes by more than {threshold} Hartree after {MOST} iterations")


def main(ranks: Ranks) -> None:
    """Read the command line and print the energy beside PySCF's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("molecule", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--memory-limit", type=int, help="bytes of temporaries of each rank")
    asked = parser.parse_args()

    def reference() -> tuple[dict[str, np.ndarray], float]:
        mol = build_mole(load_geometry(asked.molecule), asked.basis)
        mf = scf.RHF(mol).run(conv_tol=1e-12)
        return integrals(mf), float(cc.CCSD(mf).run(conv_tol=1e-10).e_corr)

    values, expected = ranks.at_first(reference)
    energy = iterated(values, ranks, asked.memory_limit)
    if ranks.rank == 0:
        print(f"correlation energy {energy:.9f} Hartree, PySCF {expected:.9f}")


if __name__ == "__main__":
    if "RANK" in os.environ:
        from trnqc.ranks.transport import started

        with started("cpu") as job:
            main(job)
    else:
        main(ALONE)
