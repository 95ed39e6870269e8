"""Coupled cluster with equations that Wick&d derives (pip install wickd), planned and solved, beside PySCF's energy.

    python -m examples.coupled_cluster_wickd                     # CCSDT of water with 6-31G, over spin orbitals
    python -m examples.coupled_cluster_wickd water --excitations 2 --basis sto-3g

The program has no other knowledge of coupled cluster than the similarity transform exp(-T) H exp(T).
"""

from __future__ import annotations

import argparse
import importlib
import string
import sys
import time
from typing import Any

import numpy as np
from pyscf import ao2mo, cc, lib, scf
from pyscf.cc.rccsdt import RCCSDT

from trnqc.contraction import Plan, einsum_plan
from trnqc.expression.imports import wickd
from trnqc.expression.program import Program
from trnqc.mp2.reference.molecule import build_mole, load_geometry


def derived(excitations: int) -> Program:
    """The equations of the energy and of the residuals of up to so many excitations."""
    try:
        w: Any = importlib.import_module("wickd")
    except ImportError as error:
        raise SystemExit(
            f"the package wickd, which derives the equations, is missing: pip install wickd ({error})"
        ) from None
    w.reset_space()
    w.add_space("o", "fermion", "occupied", list("ijklmn"))
    w.add_space("v", "fermion", "unoccupied", list("abcdef"))
    hamiltonian = w.utils.gen_op("F", 1, "ov", "ov") + w.utils.gen_op("V", 2, "ov", "ov")
    amplitudes = w.op("T", [" ".join(["v+"] * n + ["o"] * n) for n in range(1, excitations + 1)])
    transformed = w.bch_series(hamiltonian, amplitudes, 4)
    blocks = w.WickTheorem().contract(w.rational(1), transformed, 0, 2 * excitations).to_manybody_equation("R")
    names = ["|", *("o" * n + "|" + "v" * n for n in range(1, excitations + 1))]
    return wickd(equation for name in names for equation in blocks[name])


def spin_orbitals(mf: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Orbital energies, <pq||rs>, and the number of occupied spin orbitals, which come first."""
    nmo, pairs = mf.mo_coeff.shape[1], mf.mol.nelectron // 2
    integrals = ao2mo.restore(1, ao2mo.kernel(mf.mol, mf.mo_coeff), nmo)
    order = np.concatenate([np.tile(np.arange(pairs), 2), np.tile(np.arange(pairs, nmo), 2)])
    spin = np.concatenate([np.repeat([0, 1], pairs), np.repeat([0, 1], nmo - pairs)])
    same = spin[:, None] == spin
    chemists = integrals[np.ix_(order, order, order, order)] * same[:, :, None, None] * same
    physicists = chemists.transpose(0, 2, 1, 3)
    return mf.mo_energy[order], physicists - physicists.transpose(0, 1, 3, 2), 2 * pairs


def gaps(energies: np.ndarray, nocc: int, excitations: int) -> np.ndarray:
    """f_i + f_j + ... - f_a - f_b - ..., [nocc, ..., nvir, ...]."""
    letters = string.ascii_letters[: 2 * excitations]
    total: Any = 0.0
    for axis in range(len(letters)):
        part = energies[:nocc] if axis < excitations else -energies[nocc:]
        total = total + part.reshape([-1 if k == axis else 1 for k in range(len(letters))])
    return np.asarray(total)


def solve(plan: Plan, arrays: dict[str, np.ndarray], denominators: list[np.ndarray], threshold: float) -> float:
    """The correlation energy in Hartree. Residuals end below the threshold."""
    amplitudes = [np.zeros(d.shape) for d in denominators]
    names = ["o" * n + "v" * n for n in range(1, len(denominators) + 1)]
    ends = np.cumsum([d.size for d in denominators])
    extrapolation = lib.diis.DIIS()
    for number in range(1, 81):
        began = time.perf_counter()
        out = plan.run(arrays | {f"T_{name}": t for name, t in zip(names, amplitudes)})
        residuals = [out[f"R_{name}"] for name in names]
        largest = max(float(abs(residual).max()) for residual in residuals)
        print(f"{number:3d}  {float(out['R']):.11f}  {largest:.1e}  {time.perf_counter() - began:.2f} s")
        if largest < threshold:
            return float(out["R"])
        steps = [t + residual / d for t, residual, d in zip(amplitudes, residuals, denominators)]
        flat = extrapolation.update(np.concatenate([step.ravel() for step in steps]))
        amplitudes = [part.reshape(d.shape) for part, d in zip(np.split(flat, ends[:-1]), denominators)]
    raise SystemExit(f"the residuals did not fall below {threshold:.0e}; the largest is {largest:.1e}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="a molecule's name, or an xyz file")
    parser.add_argument("--basis", default="6-31g")
    parser.add_argument("--excitations", type=int, choices=(2, 3), default=3)
    parser.add_argument("--threshold", type=float, default=1e-9, help="largest residual")
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    program = derived(options.excitations)
    print(f"derived in {time.perf_counter() - began:.1f} s")
    mf = scf.RHF(build_mole(load_geometry(options.molecule), options.basis)).run(conv_tol=1e-12)
    energies, integrals, nocc = spin_orbitals(mf)
    names = ["R", *("R_" + "o" * n + "v" * n for n in range(1, options.excitations + 1))]
    began = time.perf_counter()
    plan = einsum_plan(program.sized(o=nocc, v=len(energies) - nocc), outputs=names)
    print(f"planned in {time.perf_counter() - began:.1f} s: {plan.multiply_adds:.2e} multiply-adds an iteration")
    spaces = {"o": slice(0, nocc), "v": slice(nocc, None)}
    arrays = {
        name: np.ascontiguousarray(tensor[tuple(spaces[x] for x in name[2:])])
        for name, _ in plan.inputs
        for kind, tensor in (("F", np.diag(energies)), ("V", integrals))
        if name[0] == kind
    }
    denominators = [gaps(energies, nocc, n) for n in range(1, options.excitations + 1)]
    energy = solve(plan, arrays, denominators, options.threshold)
    peer = RCCSDT(mf) if options.excitations == 3 else cc.CCSD(mf)
    reference = peer.set(conv_tol=1e-12, conv_tol_normt=1e-9, verbose=0).run().e_corr
    print(f"correlation energy {energy:.11f} Hartree, PySCF {reference:.11f}, difference {energy - reference:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
