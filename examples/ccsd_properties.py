#!/usr/bin/env python
"""Densities and the dipole moment of coupled cluster, as derivatives of its Lagrangian, which is written as text.

    python -m examples.ccsd_properties water --basis 6-31g

The Lagrangian of examples/ccsd_lagrangian.txt is stationary in the amplitudes: these are the Lambda equations. Its
derivatives with respect to the Fock matrix and to the integrals are the densities. No equation of them is written by
hand. The output has the dipole moment of the unrelaxed density, and the differences from PySCF's densities.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from itertools import product
from typing import Any

import numpy as np
from pyscf import cc, scf
from scipy.sparse.linalg import LinearOperator, gmres

import trnqc
from examples import ccsd
from trnqc.contraction import Program, einsum_plan, gradient, parse
from trnqc.errors import NotConverged, TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry

LAGRANGIAN = ccsd.EQUATIONS + (ccsd.HERE / "ccsd_lagrangian.txt").read_text(encoding="utf-8")
FOCK = ("foo", "fov", "fvv")
INTEGRALS = ("oooo", "ooov", "oovv", "ovvo", "ovvv", "vvvv")
Arrays = Mapping[str, np.ndarray]


def fock(mf: Any) -> dict[str, np.ndarray]:
    """Blocks of the Fock matrix over spin orbitals."""
    spatial, spin, nocc = ccsd.spin_orbitals(mf)
    orbitals = mf.mo_coeff.T @ mf.get_fock() @ mf.mo_coeff
    whole = orbitals[np.ix_(spatial, spatial)] * (spin[:, None] == spin)
    return {"foo": whole[:nocc, :nocc], "fov": whole[:nocc, nocc:], "fvv": whole[nocc:, nocc:]}


def sized(arrays: Arrays) -> Program:
    """The program of the Lagrangian over the blocks of spins."""
    nocc, nvir = arrays["d1"].shape
    return parse(LAGRANGIAN).sized(o=(nocc // 2, nocc // 2), v=(nvir // 2, nvir // 2))


def solve_lambda(arrays: Arrays, threshold: float = 1e-11, most: int = 60) -> dict[str, np.ndarray]:
    """The multipliers l1 and l2 at which the Lagrangian is stationary in the amplitudes t1 and t2.

    The equations are linear in the multipliers. GMRES solves them, with the denominators as preconditioner.

    Parameters
    ----------
    arrays : mapping
        Integrals, Fock matrix, denominators and amplitudes by name.
    threshold : float
        Norm of the derivative of the Lagrangian in Hartree, relative to that of the energy if this is larger than 1.
    most : int
        Largest number of iterations.

    Raises
    ------
    NotConverged
        If the norm stays above the threshold, as where the equations are singular.
    """
    plan = einsum_plan(gradient(sized(arrays), "L", ("t1", "t2")), outputs=("dL_dt1", "dL_dt2"))
    # What depends on integrals and amplitudes alone is computed once for all iterations.
    bound = plan.bind({name: arrays[name] for name, _ in plan.inputs if name not in ("l1", "l2")})
    nocc, nvir = arrays["d1"].shape

    def stationary(x: np.ndarray) -> np.ndarray:
        """The derivatives with respect to t1 and to the elements of t2 that differ, for multipliers in one vector."""
        l1, l2 = ccsd.unpacked(x, nocc, nvir)
        values = bound.run(l1=l1, l2=l2)
        return ccsd.packed(values["dL_dt1"], 4 * values["dL_dt2"])

    denominators = ccsd.packed(arrays["d1"], arrays["d2"])
    n = denominators.size
    energy = stationary(np.zeros(n))
    equations = LinearOperator((n, n), matvec=lambda x: stationary(x) - energy, dtype=float)
    preconditioner = LinearOperator((n, n), matvec=lambda x: -x / denominators, dtype=float)
    allowed = threshold * max(1.0, float(np.linalg.norm(energy)))
    # One cycle, since restarts lose what was found about the equations; the residual is checked below.
    x, _ = gmres(equations, -energy, rtol=0, atol=0.1 * allowed, restart=most, maxiter=1, M=preconditioner)
    error = np.linalg.norm(stationary(x))
    if not error <= allowed:
        raise NotConverged(
            f"the residual of the Lambda equations is {error:.1e} after {most} iterations, above {allowed:.1e}: "
            "allow more iterations, unless the equations are singular, as they are where two states are degenerate"
        )
    l1, l2 = ccsd.unpacked(x, nocc, nvir)
    return {"l1": l1, "l2": l2}


def densities(mf: Any, arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """Unrelaxed one- and two-particle densities over spatial orbitals in PySCF's form.

    The energy is the sum of h_pq dm1_pq + 1/2 (pq|rs) dm2_pqrs, without that of the nuclei.
    """
    names = (*FOCK, *INTEGRALS)
    plan = einsum_plan(gradient(sized(arrays), "L", names), outputs=tuple(f"dL_d{name}" for name in names))
    blocks = plan.run(arrays)
    spatial, spin, nocc = ccsd.spin_orbitals(mf)
    n = spatial.size
    where = {"o": slice(0, nocc), "v": slice(nocc, n)}
    one, two = np.zeros((n,) * 2), np.zeros((n,) * 4)
    for name in FOCK:
        one[where[name[1]], where[name[2]]] = blocks[f"dL_d{name}"]
    for name in INTEGRALS:
        two[tuple(where[x] for x in name)] = blocks[f"dL_d{name}"]
    # Each block stands for all that are equal to it: the mean over them is the derivative with respect to any of them.
    one = (one + one.T) / 2
    two = (two + two.transpose(2, 3, 0, 1)) / 2
    two = (two - two.transpose(1, 0, 2, 3)) / 2
    two = 2 * (two - two.transpose(0, 1, 3, 2))
    # The Fock matrix has the integrals of the reference: <pm||qm> summed over occupied m.
    reference = np.diag((np.arange(n) < nocc).astype(float))
    two += _antisymmetric_product(one, reference) + _antisymmetric_product(reference, one + reference)
    dm1, dm2 = np.zeros((n // 2,) * 2), np.zeros((n // 2,) * 4)
    order = [np.flatnonzero(spin == s)[np.argsort(spatial[spin == s])] for s in (0, 1)]
    for a in order:
        dm1 += (one + reference)[np.ix_(a, a)]
    for a, b in product(order, order):
        dm2 += two[np.ix_(a, b, a, b)].transpose(0, 2, 1, 3)
    return dm1, dm2


def dipole_moment(mf: Any, dm1: np.ndarray) -> np.ndarray:
    """The dipole moment of nuclei and a density over spatial orbitals, in e bohr."""
    moment: np.ndarray = mf.dip_moment(dm=mf.mo_coeff @ dm1 @ mf.mo_coeff.T, unit="AU", verbose=0)
    return moment


def _antisymmetric_product(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """x_pr y_qs - x_ps y_qr."""
    direct = np.multiply.outer(x, y).transpose(0, 2, 1, 3)
    return direct - direct.transpose(0, 1, 3, 2)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="6-31g")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-13, conv_tol_grad=1e-9)
    energy, _, arrays = ccsd.iterate(mf, threshold=1e-12, change_threshold=1e-11, progress=lambda line: None)
    arrays |= fock(mf)
    dm1, dm2 = densities(mf, arrays | solve_lambda(arrays))
    dipole = dipole_moment(mf, dm1)
    theirs = cc.CCSD(mf).run(conv_tol=1e-12, conv_tol_normt=1e-11)
    theirs.solve_lambda()
    print(f"E(CCSD) correlation      {energy:.10f} Hartree, PySCF {theirs.e_corr:.10f}")
    print(f"dipole moment, e bohr    {dipole[0]:.8f} {dipole[1]:.8f} {dipole[2]:.8f}")
    print(f"difference from PySCF's  one-particle density {np.abs(dm1 - theirs.make_rdm1()).max():.1e}")
    print(f"                         two-particle density {np.abs(dm2 - theirs.make_rdm2()).max():.1e}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
