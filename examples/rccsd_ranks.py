#!/usr/bin/env python
"""Coupled cluster of a closed shell on the ranks of a job: examples/rccsd.txt, divided once and iterated.

    torchrun --nproc-per-node 2 examples/rccsd_ranks.py water --basis cc-pvdz

prints what is divided, the iterations and PySCF's energy for comparison. Without torchrun one process does all.
--checkpoint FILE.npz keeps the amplitudes of each iteration, and the same command continues from them after a kill.
"""

import argparse
import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import cc, scf

from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.ranks.checkpoint import IterationCheckpoint
from trnqc.contraction.ranks.program import over_ranks
from trnqc.errors import NotConverged, TrnqcError
from trnqc.interfaces.continuing import Extrapolation, molecule_words, with_orbitals
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


def iterated(
    values: dict[str, np.ndarray],
    ranks: Ranks,
    limit: int | None = None,
    threshold: float = 1e-9,
    checkpoint: IterationCheckpoint | None = None,
) -> float:
    """Return the correlation energy in Hartree; all ranks make this call with the same integrals.

    Amplitudes begin with those of the checkpoint. Raises NotConverged if the energy still changes by more than the
    threshold after MOST iterations.
    """
    program = parse((HERE / "rccsd.txt").read_text(encoding="utf-8"))
    t1, t2 = np.zeros_like(values["d1"]), values["ovov"].transpose(0, 2, 1, 3) / values["d2"]
    plan = einsum_plan(program, values | {"t1": t1, "t2": t2}, outputs=("n1", "n2", "energy"), memory_limit=limit)
    kept: dict[str, Any] = {}
    if checkpoint:
        checkpoint.begin(plan, values)
        kept = checkpoint.arrays
    t1, t2, before, last = kept.get("t1", t1), kept.get("t2", t2), kept.get("energy", np.inf), kept.get("iteration", 0)
    shared, subspace = over_ranks(plan, ranks), Extrapolation(kept)
    if ranks.rank == 0:
        print(shared)
    for iteration in range(int(last) + 1, MOST + 1):
        found = shared.run(values, t1=t1, t2=t2)
        # All ranks have the same bits, so that they extrapolate alike and stop together.
        if ranks.rank == 0:
            megabytes = shared.received / 1e6
            print(f"iteration {iteration:2}  E = {found['energy']:.10f}  {megabytes:.3f} MB received", flush=True)
        if abs(found["energy"] - before) < threshold:
            return float(found["energy"])
        new, old = (np.concatenate([x.ravel(), y.ravel()]) for x, y in ((found["n1"], found["n2"]), (t1, t2)))
        vector = subspace.update(new, new - old)
        t1, t2 = vector[: t1.size].reshape(t1.shape), vector[t1.size :].reshape(t2.shape)
        # The amplitudes are symmetric up to rounding, which t2 states exactly.
        t2, before = (t2 + t2.transpose(1, 0, 3, 2)) / 2, found["energy"]
        if checkpoint:
            checkpoint.keep(t1=t1, t2=t2, energy=before, iteration=iteration, **subspace.arrays)
    raise NotConverged(f"the energy still changes by more than {threshold} Hartree after {MOST} iterations")


def main(ranks: Ranks) -> None:
    """Read the command line and print the energy beside PySCF's."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("molecule", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--memory-limit", type=int, help="bytes of temporaries of each rank")
    parser.add_argument("--checkpoint", metavar="FILE.npz", help="amplitudes, from which a killed job continues")
    parser.add_argument("--checkpoint-every", type=float, default=0, metavar="SECONDS", help="between two writes")
    asked = parser.parse_args()
    mf = scf.RHF(build_mole(load_geometry(asked.molecule), asked.basis))
    checkpoint = None
    if asked.checkpoint:
        checkpoint = IterationCheckpoint(asked.checkpoint, molecule_words(mf.mol), ranks, asked.checkpoint_every)
    values = ranks.at_first(lambda: integrals(with_orbitals(mf, checkpoint)))
    energy = iterated(values, ranks, asked.memory_limit, checkpoint=checkpoint)
    expected = ranks.at_first(lambda: float(cc.CCSD(mf).run(conv_tol=1e-10).e_corr))
    if ranks.rank == 0:
        print(f"correlation energy {energy:.9f} Hartree, PySCF {expected:.9f}")


def start() -> None:
    """Run as one rank of a job, or alone."""
    if "RANK" not in os.environ:
        main(ALONE)
        return
    from trnqc.ranks.transport import started

    with started("cpu") as job:
        main(job)


if __name__ == "__main__":
    try:
        start()
    except TrnqcError as error:
        sys.exit(f"error: {error}")
