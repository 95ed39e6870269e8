"""One iteration of closed-shell coupled cluster from its text, against the one that PySCF has written by hand.

Both start from the same amplitudes and the same stored integrals: those of four virtual orbitals as PySCF keeps them,
(ac|bd) with a >= c and b >= d, from which our plan is given a function of blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from pyscf import cc, gto, scf

from scripts import ROOT
from scripts.contract.disk import resident_peak
from scripts.measuring import clocked, in_turns, ratio
from trnqc.contraction import einsum_plan, parse

EQUATIONS = ROOT / "examples" / "rccsd.txt"
# Molecule in examples/molecules, basis set.
CASES = (("benzene", "cc-pvdz"),)
ROUNDS = 3
# Largest difference of the new amplitudes; PySCF keeps the off-diagonal Fock matrix, which is zero to 1e-9 here.
TOLERANCE = 1e-8


def packed_pairs(whole: np.ndarray, extent: int) -> Callable[..., np.ndarray]:
    """(ac|bd) as a function of blocks; whole: over the pairs a >= c and b >= d."""

    flat = whole.ravel()

    def pairs(one: slice, two: slice) -> np.ndarray:
        x, y = np.arange(extent)[one, None], np.arange(extent)[None, two]
        high, low = np.maximum(x, y), np.minimum(x, y)
        return high * (high + 1) // 2 + low

    def block(a: slice, c: slice, b: slice, d: slice) -> np.ndarray:
        rows, columns = pairs(a, c), pairs(b, d)
        return flat.take(rows[..., None, None] * len(whole) + columns)

    return block


def problem(molecule: str, basis: str) -> tuple[Any, Any, dict[str, Any]]:
    """(PySCF's object, its integrals, the operands of our plan), with amplitudes after one iteration."""
    geometry = str(ROOT / "examples" / "molecules" / f"{molecule}.xyz")
    mf = scf.RHF(gto.M(atom=geometry, basis=basis, verbose=0)).run(conv_tol=1e-13, conv_tol_grad=1e-9)
    theirs = cc.CCSD(mf)
    eris = theirs.ao2mo()
    nocc, nvir = theirs.nocc, theirs.nmo - theirs.nocc
    t1, t2 = theirs.update_amps(*theirs.init_amps(eris)[1:], eris)
    names = ("oooo", "ovoo", "ovov", "oovv", "ovvo")
    values: dict[str, Any] = {name: np.asarray(getattr(eris, name)) for name in names}
    values |= {"ovvv": np.asarray(eris.get_ovvv()), "vvvv": packed_pairs(np.asarray(eris.vvvv), nvir)}
    d1 = eris.mo_energy[:nocc, None] - eris.mo_energy[nocc:]
    values |= {"d1": d1, "d2": d1[:, None, :, None] + d1[None, :, None, :], "t1": t1, "t2": t2}
    return theirs, eris, values


def closed_shells() -> dict[str, Any]:
    return {f"{molecule}/{basis}": _case(molecule, basis) for molecule, basis in CASES}


def _case(molecule: str, basis: str) -> dict[str, Any]:
    theirs, eris, values = problem(molecule, basis)
    t1, t2 = values["t1"], values["t2"]
    text = EQUATIONS.read_text(encoding="utf-8").replace("tensor vvvv[v,v,v,v]", "function vvvv[v,v,v,v] cost 1")
    program = parse(text).sized(o=len(t1), v=t1.shape[1])
    pyscf = partial(theirs.update_amps, t1, t2, eris)
    peaks = {"pyscf": resident_peak(pyscf)}
    plans = {
        "trnqc": einsum_plan(program, outputs=("n1", "n2")),
        "trnqc, half of PySCF's peak": einsum_plan(program, outputs=("n1", "n2"), memory_limit=peaks["pyscf"] // 2),
    }
    new1, new2 = pyscf()
    contestants: dict[str, Callable[[], Any]] = {"pyscf": pyscf}
    errors = {}
    for name, plan in plans.items():
        contestants[name] = partial(plan.run, values)
        result = contestants[name]()
        errors[name] = max(abs(result["n1"] - new1).max(), abs(result["n2"] - new2).max())
        assert errors[name] < TOLERANCE, f"{name} differs from PySCF by {errors[name]}"
        del result
        peaks[name] = resident_peak(contestants[name])
    times = in_turns(ROUNDS, {name: clocked(work) for name, work in contestants.items()})
    ratios = {name: ratio(times[name], times["pyscf"]) for name in plans}
    for name in contestants:
        print(f"{molecule}/{basis} {name:28} {peaks[name] / 1e6:7.0f} MB, (wall, CPU) s {times[name]}")
    print(f"ratios to PySCF {ratios}")
    return {
        "orbitals": t1.shape,
        "wall_cpu_s": times,
        "over_pyscf": ratios,
        "peak_bytes": peaks,
        "planned_peak_bytes": {name: plan.peak_bytes for name, plan in plans.items()},
        "largest_difference": errors,
        "multiply_adds": {name: plan.unique_multiply_adds for name, plan in plans.items()},
    }
