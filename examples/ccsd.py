#!/usr/bin/env python
"""Coupled cluster from its equations as text: examples/ccsd.txt, planned once, iterated until the energy stands.

    python examples/ccsd.py water --basis cc-pvdz

prints the plan, the iterations and PySCF's energy for comparison.
"""

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import ao2mo, cc, lib, scf

import trnqc
from trnqc import einsum_plan
from trnqc.contraction import parse
from trnqc.errors import NotConverged, TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry

HERE = Path(__file__).parent
EQUATIONS = (HERE / "ccsd.txt").read_text(encoding="utf-8")


def spin_orbitals(mf: Any) -> tuple[np.ndarray, np.ndarray, int]:
    """Spatial orbital and spin of every spin orbital of an RHF reference, and the number of occupied ones.

    Occupied orbitals come before virtual ones, and within both alpha before beta.
    """
    occupied = mf.mo_occ > 0
    pairs = int(occupied.sum())
    spatial = np.concatenate([np.tile(np.flatnonzero(occupied), 2), np.tile(np.flatnonzero(~occupied), 2)])
    spin = np.concatenate([np.repeat([0, 1], pairs), np.repeat([0, 1], occupied.size - pairs)])
    return spatial, spin, 2 * pairs


def spin_orbital_integrals(mf: Any) -> dict[str, np.ndarray]:
    """Blocks <pq||rs> of an RHF reference, and the denominators of the amplitudes."""
    spatial, spin, nocc = spin_orbitals(mf)
    integrals = mf.mol if mf._eri is None else mf._eri  # those of the SCF, where it has kept them
    eri = ao2mo.restore(1, ao2mo.full(integrals, mf.mo_coeff), mf.mo_occ.size).transpose(0, 2, 1, 3)
    same = spin[:, None] == spin
    direct = eri[np.ix_(spatial, spatial, spatial, spatial)] * same[:, None, :, None] * same[None, :, None, :]
    anti = direct - direct.transpose(0, 1, 3, 2)
    o, v = slice(0, nocc), slice(nocc, None)
    blocks = {
        name: anti[tuple({"o": o, "v": v}[x] for x in name)]
        for name in ("oooo", "ooov", "oovv", "ovvo", "ovvv", "vvvv")
    }
    energies = mf.mo_energy[spatial]
    d1 = energies[o, None] - energies[v]
    d2 = d1[:, None, :, None] + d1[None, :, None, :]
    return {name: np.ascontiguousarray(block) for name, block in blocks.items()} | {"d1": d1, "d2": d2}


def iterate(
    mf: Any,
    threshold: float = 1e-10,
    change_threshold: float = 1e-7,
    most: int = 60,
    run: Callable[..., Any] | None = None,
    progress: Callable[[str], None] = print,
) -> tuple[float, Any, dict[str, np.ndarray]]:
    """(correlation energy in Hartree, plan over the blocks of spins, integrals and amplitudes).

    run takes the place of plan.run. The thresholds are those of the energy and of the norm of a change of amplitudes.
    """
    arrays = spin_orbital_integrals(mf)
    t1, t2 = np.zeros_like(arrays["d1"]), arrays["oovv"] / arrays["d2"]
    nocc, nvir = t1.shape
    program = parse(EQUATIONS).sized(o=(nocc // 2, nocc // 2), v=(nvir // 2, nvir // 2))
    plan = einsum_plan(program, outputs=("n1", "n2", "energy"))
    run = run or plan.run
    extrapolation = lib.diis.DIIS()
    before = np.inf
    for number in range(1, most + 1):
        new = run(arrays | {"t1": t1, "t2": t2})
        energy = float(new["energy"])
        change = np.hypot(np.linalg.norm(new["n1"] - t1), np.linalg.norm(new["n2"] - t2))
        progress(f"{number:3d}  {energy:.12f}  {change:.1e}")
        if abs(energy - before) < threshold and change < change_threshold:
            return energy, plan, arrays | {"t1": new["n1"], "t2": new["n2"]}
        before = energy
        both = extrapolation.update(np.concatenate([new["n1"].ravel(), new["n2"].ravel()]))
        t1, t2 = both[: t1.size].reshape(t1.shape), both[t1.size :].reshape(t2.shape)
    raise NotConverged(f"the energy of coupled cluster did not stand after {most} iterations; last change {change:.1e}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-12)
    energy, plan, _ = iterate(mf)
    print(plan)
    reference = cc.CCSD(mf).run(conv_tol=1e-10, conv_tol_normt=1e-8).e_corr
    print(f"\nE(CCSD) correlation  {energy:.10f} Hartree, PySCF {reference:.10f}, difference {energy - reference:.1e}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
