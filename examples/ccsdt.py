#!/usr/bin/env python
"""CCSDT from its equations as text: examples/ccsdt.txt, planned once, iterated until the energy stands.

    python -m examples.ccsdt water --basis 6-31g
    python -m examples.ccsdt water --basis 6-31g --memory-limit 100e6

prints the iterations, their work, and PySCF's energy for comparison. Integrals and iterations are those of
examples/ccsd.py.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import scf
from pyscf.cc.rccsdt import RCCSDT

import trnqc
from examples import ccsd
from trnqc import einsum_plan
from trnqc.contraction import Plan, parse
from trnqc.errors import NotConverged, TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry

EQUATIONS = (ccsd.HERE / "ccsdt.txt").read_text(encoding="utf-8")
OUTPUTS = ("n1", "n2", "n3", "energy")


def integrals(mf: Any) -> dict[str, np.ndarray]:
    """Blocks <pq||rs> of an RHF reference, and the denominators of singles, doubles and triples."""
    arrays = ccsd.spin_orbital_integrals(mf)
    d1, d2 = arrays["d1"], arrays["d2"]
    return arrays | {"d3": d2[:, :, None, :, :, None] + d1[:, None, None, :]}


def plan_iteration(nocc: int, nvir: int, memory_limit: int | None = None) -> Plan:
    """The plan of an iteration over the blocks of spins of so many spin orbitals."""
    program = parse(EQUATIONS).sized(o=(nocc // 2, nocc // 2), v=(nvir // 2, nvir // 2))
    return einsum_plan(program, outputs=OUTPUTS, memory_limit=memory_limit)


def iterate(
    mf: Any,
    threshold: float = 1e-10,
    change_threshold: float = 1e-8,
    most: int = 60,
    memory_limit: int | None = None,
    progress: Callable[[str], None] = print,
) -> tuple[float, Plan, dict[str, np.ndarray]]:
    """Solve CCSDT for an RHF reference.

    Parameters
    ----------
    mf : pyscf.scf.hf.RHF
        Converged reference.
    threshold, change_threshold : float
        Largest change of the energy in Hartree, and of the norm of the amplitudes, in the last iteration.
    most : int
        Largest number of iterations.
    memory_limit : int, optional
        Bytes for the temporaries of an iteration, beside integrals and amplitudes.
    progress : callable
        Takes a line for each iteration.

    Returns
    -------
    energy : float
        Correlation energy in Hartree.
    plan : Plan
        The plan of an iteration.
    arrays : dict of str to numpy.ndarray
        Integrals, denominators and amplitudes t1[i, a], t2[i, j, a, b] and t3[i, j, k, a, b, c].

    Raises
    ------
    NotConverged
        If the energy or the amplitudes still change after `most` iterations.
    """
    arrays = integrals(mf)
    nocc, nvir = arrays["d1"].shape
    plan = plan_iteration(nocc, nvir, memory_limit)
    start = {"t1": np.zeros_like(arrays["d1"]), "t2": arrays["oovv"] / arrays["d2"], "t3": np.zeros_like(arrays["d3"])}
    bound = plan.bind(arrays)  # Integrals are checked once.
    energy, amplitudes = ccsd.solve(bound.run, start, threshold, change_threshold, most, progress)
    return energy, plan, arrays | amplitudes


def of_pyscf(mf: Any) -> float:
    """The correlation energy of PySCF's RCCSDT in Hartree."""
    theirs = RCCSDT(mf).set(conv_tol=1e-11, conv_tol_normt=1e-8, max_cycle=100, verbose=0).run()
    if not theirs.converged:
        raise NotConverged("PySCF's RCCSDT has not converged after 100 iterations, and is no reference")
    return float(theirs.e_corr)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="6-31g")
    parser.add_argument("--memory-limit", type=float, help="bytes for the temporaries of an iteration")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-12)
    limit = int(options.memory_limit) if options.memory_limit else None
    energy, plan, _ = iterate(mf, memory_limit=limit)
    print(f"{plan.unique_multiply_adds:.3g} multiply-adds an iteration, temporaries of {plan.peak_bytes / 1e6:.0f} MB")
    reference = of_pyscf(mf)
    print(f"E(CCSDT) correlation  {energy:.11f} Hartree, PySCF {reference:.11f}, difference {energy - reference:.1e}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
