#!/usr/bin/env python
"""Excitation energies of coupled cluster (EOM-EE-CCSD), as eigenvalues of the Jacobian of its residuals.

    python -m examples.eom_ccsd water --basis 6-31g --roots 4

The residuals are those of examples/ccsd.txt with the Fock matrix of examples/ccsd_lagrangian.txt. Their derivative
along a vector of amplitudes is a program too, and Davidson's method finds the lowest eigenvalues from such products.
No equation of excited states is written by hand. The output has PySCF's energies for comparison.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import cc, gto, lib, scf
from pyscf.cc import eom_rccsd
from pyscf.data.nist import HARTREE2EV

import trnqc
from examples import ccsd, ccsd_properties
from examples.ccsd_properties import packed, unpacked
from trnqc.contraction import Tensor, einsum_plan, tangent
from trnqc.errors import NotConverged

Arrays = Mapping[str, np.ndarray]
Vectors = list[np.ndarray]


class Jacobian:
    """The derivative of the residuals of coupled cluster with respect to the amplitudes, which conserves spin.

    Parameters
    ----------
    arrays : mapping
        Integrals, Fock matrix and solved amplitudes by name.

    Attributes
    ----------
    gaps : numpy.ndarray
        Differences of orbital energies of the elements of a vector in Hartree: first singles, then doubles with i < j
        and a < b. Elements that change the spin are left out.
    singles : int
        Number of singles.
    """

    def __init__(self, arrays: Arrays) -> None:
        program = tangent(ccsd_properties.sized(arrays), ("r1", "r2"), ("t1", "t2"))
        self._arrays = dict(arrays)
        self._plan = einsum_plan(program, outputs=("dr1", "dr2"))
        masks = [where_allowed(tensor) for tensor in program.tensors if tensor.name in ("dt1", "dt2")]
        self._kept = packed(*masks)
        d1 = np.diag(arrays["foo"])[:, None] - np.diag(arrays["fvv"])
        self.gaps = -packed(d1, d1[:, None, :, None] + d1[None, :, None, :])[self._kept]
        self.singles = int(masks[0].sum())

    def amplitudes(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Singles [i, a] and antisymmetric doubles [i, j, a, b] of a vector."""
        every = np.zeros(self._kept.size)
        every[self._kept] = x
        return unpacked(every, *self._arrays["t1"].shape)

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """The product with a vector."""
        dt1, dt2 = self.amplitudes(x)
        values = self._plan.run({**self._arrays, "dt1": dt1, "dt2": dt2})
        return packed(values["dr1"], values["dr2"])[self._kept]


def where_allowed(tensor: Tensor) -> np.ndarray:
    """True for the elements of the blocks that may differ from zero."""
    edges = [np.cumsum((0, *space.blocks)) for space in tensor.spaces]
    mask = np.zeros([edge[-1] for edge in edges], dtype=bool)
    for numbers in tensor.allowed:
        mask[tuple(slice(edge[n], edge[n + 1]) for edge, n in zip(edges, numbers))] = True
    return mask


def lowest(jacobian: Jacobian, roots: int, threshold: float = 1e-8, most: int = 100) -> tuple[np.ndarray, Vectors]:
    """The lowest eigenvalues in Hartree in ascending order, and their eigenvectors, by Davidson's method.

    Parameters
    ----------
    jacobian : Jacobian
    roots : int
        Number of eigenvalues.
    threshold : float
        Largest norm of a residual in Hartree, for eigenvectors of norm 1.
    most : int
        Largest number of iterations.

    Raises
    ------
    NotConverged
        If a residual stays above the threshold.
    ValueError
        If there are fewer singles than roots.
    """
    if not 1 <= roots <= jacobian.singles:
        raise ValueError(f"roots must be from 1 to {jacobian.singles}, the number of singles; found {roots}")
    size = jacobian.gaps.size
    # More singles than roots to begin with: the order of the states is not that of the differences of orbital energies,
    # and a state of a symmetry that no vector of the beginning has would not be found.
    start = np.argsort(jacobian.gaps[: jacobian.singles], kind="stable")[: 4 * roots + 12]
    _, energies, vectors = lib.davidson_nosym1(
        lambda xs: [jacobian @ x for x in xs],
        [np.eye(1, size, k).ravel() for k in start],
        lambda residual, energy, _: residual / np.where(abs(gap := energy - jacobian.gaps) < 1e-3, 1e-3, gap),
        tol=1e-11,
        tol_residual=0.1 * threshold,
        lindep=0.01 * threshold**2,  # Residuals with a smaller square are not followed.
        max_cycle=most,
        max_space=start.size + 12 * roots,
        nroots=roots,
        verbose=0,
    )
    order = np.argsort(energies)
    vectors = [vectors[k] / np.linalg.norm(vectors[k]) for k in order]
    errors = [np.linalg.norm(jacobian @ x - energy * x) for energy, x in zip(energies[order], vectors)]
    if not max(errors) <= threshold:
        raise NotConverged(
            f"the largest residual of {roots} states is {max(errors):.1e} Hartree after at most {most} iterations, "
            f"above {threshold:.1e}: allow more iterations, or ask for another number of states"
        )
    return energies[order], vectors


def spin_parity(singles: np.ndarray) -> float:
    """1 for singlets and -1 for triplets: overlap of singles [i, a] with those of exchanged spins, if the norm is 1."""
    nocc, nvir = singles.shape
    exchanged = np.roll(singles, (nocc // 2, nvir // 2), axis=(0, 1))
    return float(np.vdot(exchanged, singles) / np.vdot(singles, singles))


def of_pyscf(mf: Any, roots: int) -> np.ndarray:
    """The lowest energies of PySCF's singlets and triplets."""
    theirs = cc.CCSD(mf).run(conv_tol=1e-12, conv_tol_normt=1e-10)
    found: list[float] = []
    for kind in (eom_rccsd.EOMEESinglet, eom_rccsd.EOMEETriplet):
        eom = kind(theirs).set(conv_tol=1e-13, max_cycle=100)
        energies, _ = eom.kernel(nroots=roots)
        if not np.all(eom.converged):
            raise NotConverged(f"PySCF's {kind.__name__} has not converged for {roots} states")
        found.extend(np.atleast_1d(energies))
    return np.sort(found)[:roots]


def solved(mf: Any) -> dict[str, np.ndarray]:
    """Integrals, Fock matrix and amplitudes of coupled cluster."""
    _, _, arrays = ccsd.iterate(mf, threshold=1e-12, change_threshold=1e-10, progress=lambda line: None)
    return arrays | ccsd_properties.fock(mf)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name in examples/molecules, or an xyz file")
    parser.add_argument("--basis", default="6-31g")
    parser.add_argument("--roots", type=int, default=4, help="number of states")
    options = parser.parse_args(arguments)
    path = Path(options.molecule)
    atoms = str(path if path.suffix else ccsd.HERE / "molecules" / f"{path}.xyz")
    mf = trnqc.accelerate(scf.RHF(gto.M(atom=atoms, basis=options.basis, verbose=0))).run(
        conv_tol=1e-13, conv_tol_grad=1e-9
    )
    jacobian = Jacobian(solved(mf))
    energies, vectors = lowest(jacobian, options.roots)
    print("state     Hartree           eV        PySCF")
    for energy, x, theirs in zip(energies, vectors, of_pyscf(mf, options.roots)):
        name = "singlet" if spin_parity(jacobian.amplitudes(x)[0]) > 0 else "triplet"
        print(f"{name}  {energy:.10f}  {energy * HARTREE2EV:8.4f}  {theirs:.10f}  difference {energy - theirs:.1e}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
