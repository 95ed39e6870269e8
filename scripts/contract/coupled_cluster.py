"""One iteration of closed-shell coupled cluster from its text, against the one that PySCF has written by hand.

Both start from the same amplitudes and the same stored integrals: those of four virtual orbitals as PySCF keeps them,
(ac|bd) with a >= c and b >= d, from which our plan is given a function of blocks; or the same fitted factors.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from pyscf import cc, gto, scf
from pyscf.cc import dfccsd

from examples import df_rccsd
from scripts import ROOT
from scripts.contract.disk import resident_peak
from scripts.measuring import clocked, in_turns, ratio
from trnqc.contraction import einsum_plan, parse
from trnqc.expression.program import Program

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


# PySCF's object, its integrals, our program, and its operands with amplitudes after one iteration.
Problem = tuple[Any, Any, Program, dict[str, Any]]


def reference(molecule: str, basis: str) -> Any:
    geometry = str(ROOT / "examples" / "molecules" / f"{molecule}.xyz")
    return scf.RHF(gto.M(atom=geometry, basis=basis, verbose=0)).run(conv_tol=1e-13, conv_tol_grad=1e-9)


def stored(molecule: str, basis: str) -> Problem:
    """With all integrals."""
    mf = reference(molecule, basis)
    theirs = cc.CCSD(mf)
    eris = theirs.ao2mo()
    nocc, nvir = theirs.nocc, theirs.nmo - theirs.nocc
    t1, t2 = theirs.update_amps(*theirs.init_amps(eris)[1:], eris)
    names = ("oooo", "ovoo", "ovov", "oovv", "ovvo")
    values: dict[str, Any] = {name: np.asarray(getattr(eris, name)) for name in names}
    values |= {"ovvv": np.asarray(eris.get_ovvv()), "vvvv": packed_pairs(np.asarray(eris.vvvv), nvir)}
    d1 = eris.mo_energy[:nocc, None] - eris.mo_energy[nocc:]
    values |= {"d1": d1, "d2": d1[:, None, :, None] + d1[None, :, None, :], "t1": t1, "t2": t2}
    text = EQUATIONS.read_text(encoding="utf-8").replace("tensor vvvv[v,v,v,v]", "function vvvv[v,v,v,v] cost 1")
    return theirs, eris, parse(text).sized(o=nocc, v=nvir), values


def fitted(molecule: str, basis: str) -> Problem:
    """With fitted factors, which PySCF keeps in a file with the integrals of up to three virtual orbitals."""
    theirs = dfccsd.RCCSD(reference(molecule, basis))
    eris = theirs.ao2mo()
    t1, t2 = theirs.update_amps(*theirs.init_amps(eris)[1:], eris)
    values = df_rccsd.operands(theirs) | {"t1": t1, "t2": t2}
    return theirs, eris, parse(df_rccsd.EQUATIONS).shaped({x: values[x].shape for x in ("Bov", "t1")}), values


def closed_shells() -> dict[str, Any]:
    return {f"{molecule}/{basis}": _case(molecule, basis, stored(molecule, basis), 0.5) for molecule, basis in CASES}


def closed_shells_fitted() -> dict[str, Any]:
    return {f"{molecule}/{basis}": _case(molecule, basis, fitted(molecule, basis), 0.4) for molecule, basis in CASES}


def _case(molecule: str, basis: str, problem: Problem, share: float) -> dict[str, Any]:
    """share: the limit of a second plan is this part of the memory by which PySCF's iteration grows."""
    theirs, eris, program, values = problem
    t1, t2 = values["t1"], values["t2"]
    pyscf = partial(theirs.update_amps, t1, t2, eris)
    peaks = {"pyscf": resident_peak(pyscf)}
    plans = {
        "trnqc": einsum_plan(program, outputs=("n1", "n2")),
        "trnqc, limited": einsum_plan(program, outputs=("n1", "n2"), memory_limit=int(share * peaks["pyscf"])),
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
        "limit_bytes": int(share * peaks["pyscf"]),
        "planned_peak_bytes": {name: plan.peak_bytes for name, plan in plans.items()},
        "largest_difference": errors,
        "multiply_adds": {name: plan.unique_multiply_adds for name, plan in plans.items()},
    }
