"""What scripts/bench_mp2_properties.py times, each in a process of its own so that its peak memory is its own.

    python -m scripts.mp2_properties.contestants WHAT CASE.npz THREADS

A process loads the converged orbitals, computes the fitted integrals of the SCF (which a user has from the SCF), runs
the same on formaldehyde so that libraries are loaded, and then runs the work once. It prints one line of JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import df, gto, lib, mp, scf
from pyscf.mp import dfmp2_native, dfump2

import trnqc
from scripts.mp2_properties.molecules import MOLECULES

# MB that every program may use.
MEMORY = 12000


def our_energy(mf: Any, frozen: int) -> dict[str, Any]:
    """Energy of DF-MP2, R or U."""
    method = trnqc.DFMP2(mf, frozen=frozen, backend="cpu", max_memory=MEMORY)
    method.kernel()
    result = method.result
    assert result is not None, "kernel sets the result"
    return {"e_os": result.e_corr_os, "e_ss": result.e_corr_ss, "stages_s": dict(result.timings)}


def our_relaxed_density(mf: Any, frozen: int) -> dict[str, Any]:
    """Relaxed density of DF-MP2."""
    method = trnqc.DFMP2(mf, frozen=frozen, backend="cpu", max_memory=MEMORY)
    return {"dipole": _dipole(mf, method.make_rdm1(relaxed=True, ao_repr=True))}


def our_gradient(mf: Any, frozen: int) -> dict[str, Any]:
    """Energy, relaxed density and gradient of DF-MP2, which share one pass over the pairs."""
    gradients = trnqc.DFMP2(mf, frozen=frozen, backend="cpu", max_memory=MEMORY).nuc_grad_method()
    return {"gradient": gradients.kernel().tolist()}


def pyscf_relaxed_density(mf: Any, frozen: int) -> dict[str, Any]:
    """Relaxed density of DF-MP2 by PySCF's dfmp2_native."""
    method = dfmp2_native.DFRMP2(mf, frozen=frozen, auxbasis=df.make_auxbasis(mf.mol, mp2fit=True))
    return {"dipole": _dipole(mf, method.make_rdm1(relaxed=True, ao_repr=True))}


def pyscf_gradient(mf: Any, frozen: int) -> dict[str, Any]:
    """Energy and gradient of MP2 with exact integrals by PySCF."""
    return {"gradient": mp.MP2(mf, frozen=frozen).run().nuc_grad_method().kernel().tolist()}


def pyscf_open_shell_energy(mf: Any, frozen: int) -> dict[str, Any]:
    """Energy of UMP2 by PySCF's dfump2."""
    method = dfump2.DFUMP2(mf, frozen=frozen)
    method.with_df = df.DF(mf.mol)
    method.with_df.auxbasis = df.make_auxbasis(mf.mol, mp2fit=True)
    method.kernel(with_t2=False)
    return {"e_os": float(method.e_corr_os), "e_ss": float(method.e_corr_ss)}


WORK: dict[str, Callable[[Any, int], dict[str, Any]]] = {
    "trnqc, energy": our_energy,
    "trnqc, relaxed density": our_relaxed_density,
    "trnqc, gradient": our_gradient,
    "PySCF dfmp2_native, relaxed density": pyscf_relaxed_density,
    "PySCF grad.mp2, gradient": pyscf_gradient,
    "PySCF dfump2, energy": pyscf_open_shell_energy,
}


def _dipole(mf: Any, density: np.ndarray) -> list[float]:
    return scf.hf.dip_moment(mf.mol, density, unit="AU", verbose=0).tolist()


def scf_object(mol: gto.Mole, what: str, fitted: bool) -> Any:
    """The SCF object, not run; ours has J and K of trnqc."""
    mf = (scf.UHF if mol.spin else scf.RHF)(mol)
    mf = mf.density_fit() if fitted else mf
    mf.max_memory = MEMORY
    return trnqc.accelerate(mf) if what.startswith("trnqc") else mf


def loaded(data: Any, what: str) -> Any:
    """The converged object of a case."""
    mol = gto.loads(str(data["mol"]))
    mol.verbose = 0
    mf = scf_object(mol, what, bool(data["fitted"]))
    mf.mo_coeff, mf.mo_energy, mf.mo_occ = data["mo_coeff"], data["mo_energy"], data["mo_occ"]
    mf.e_tot, mf.converged = float(data["e_tot"]), True
    if data["fitted"]:
        mf.with_df.build()
    return mf


def warm_up(data: Any, what: str) -> None:
    """Run the work on formaldehyde, or its cation, with the basis of the case, to load libraries."""
    spin = int(data["mo_coeff"].ndim == 3)
    mol = gto.M(atom=MOLECULES["H2CO"].atoms, basis=str(data["basis"]), charge=spin, spin=spin, verbose=0)
    WORK[what](scf_object(mol, what, bool(data["fitted"])).run(), MOLECULES["H2CO"].core)


def main() -> None:
    what, data = sys.argv[1], np.load(sys.argv[2])
    lib.num_threads(int(sys.argv[3]))
    warm_up(data, what)
    mf, frozen = loaded(data, what), int(data["frozen"])
    held, load = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, os.getloadavg()[0]
    wall, cpu = time.perf_counter(), time.process_time()
    answer = WORK[what](mf, frozen)
    answer |= {"wall_s": time.perf_counter() - wall, "cpu_s": time.process_time() - cpu, "load_average": load}
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    # Linux counts in kibibytes.
    print(json.dumps(answer | {"peak_bytes": 1024 * peak, "held_before_bytes": 1024 * held}))


if __name__ == "__main__":
    main()
