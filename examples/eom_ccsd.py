#!/usr/bin/env python
"""Excited, ionised and electron-attached states of coupled cluster, as eigenvalues of the Jacobian of its residuals.

    python -m examples.eom_ccsd water --basis 6-31g --roots 4
    python -m examples.eom_ccsd water --states ip

The residuals are those of examples/ccsd.txt with the Fock matrix of examples/ccsd_lagrangian.txt. Their derivative
along a vector of amplitudes is a program too, and Davidson's method finds the lowest eigenvalues from such products
(EOM-EE-CCSD). An electron is removed by an excitation into an additional virtual orbital that has neither energy nor
interaction, and attached by one out of such an occupied orbital (EOM-IP-CCSD, EOM-EA-CCSD). No equation of these states
is written by hand. The output has PySCF's energies for comparison.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
from pyscf import cc, lib, scf
from pyscf.cc import eom_rccsd
from pyscf.data.nist import HARTREE2EV

import trnqc
from examples import ccsd, ccsd_properties
from examples.ccsd import packed, unpacked
from trnqc.contraction import Tensor, einsum_plan, parse, tangent
from trnqc.errors import NotConverged, TrnqcError
from trnqc.mp2.reference.molecule import build_mole, load_geometry

Arrays = Mapping[str, np.ndarray]
Vectors = list[np.ndarray]

PYSCF = {
    "ee": (eom_rccsd.EOMEESinglet, eom_rccsd.EOMEETriplet),
    "ip": (eom_rccsd.EOMIP,),
    "ea": (eom_rccsd.EOMEA,),
}
# The space that has an additional orbital, which takes the removed electron or has had the attached one.
ADDITIONAL = {"ee": None, "ip": "v", "ea": "o"}
# Its block, after those of both spins. Blocks of even number have alpha spin.
FREE = 2


class Jacobian:
    """The derivative of the residuals of coupled cluster with respect to the amplitudes, which conserves spin.

    Parameters
    ----------
    arrays : mapping
        Integrals, Fock matrix and solved amplitudes by name.
    states : {"ee", "ip", "ea"}
        Excited states, or those with an alpha electron less or more.

    Attributes
    ----------
    gaps : numpy.ndarray
        Differences of orbital energies of the elements of a vector in Hartree: first singles, then doubles with i < j
        and a < b, without those that are zero by spin. If an electron is removed, one of a and b is the last virtual
        orbital; if one is attached, one of i and j is the last occupied orbital.
    singles : int
        Number of singles.
    plan : Plan
        Of the products with vectors.
    arrays : dict
        Its inputs that stay the same, by name, with zeros for an additional orbital.
    """

    def __init__(self, arrays: Arrays, states: str = "ee") -> None:
        blocks: dict[str, tuple[int, ...]] = {space: (n // 2, n // 2) for space, n in zip("ov", arrays["t1"].shape)}
        if additional := ADDITIONAL[states]:
            blocks[additional] += (1,)
        program = tangent(parse(ccsd_properties.LAGRANGIAN), ("r1", "r2"), ("t1", "t2")).sized(**blocks)
        if additional:
            program = replace(program, tensors=tuple(map(with_free_orbital, program.tensors)))
        self.plan = einsum_plan(program, outputs=("dr1", "dr2"))
        tensors = {tensor.name: tensor for tensor in program.tensors}
        self.arrays = {name: enlarged(arrays[name], tensors[name]) for name in program.inputs if name in arrays}
        # What depends on integrals and amplitudes alone is computed once for all vectors.
        self.bound = self.plan.bind({name: self.arrays[name] for name, _ in self.plan.inputs if name in self.arrays})
        masks = [where_allowed(tensors[name]) for name in ("dt1", "dt2")]
        self._kept = packed(*masks)
        d1 = np.diag(self.arrays["foo"])[:, None] - np.diag(self.arrays["fvv"])
        self.gaps = -packed(d1, d1[:, None, :, None] + d1[None, :, None, :])[self._kept]
        self.singles = int(masks[0].sum())

    def amplitudes(self, x: np.ndarray) -> Iterator[np.ndarray]:
        """Singles [i, a] and antisymmetric doubles [i, j, a, b] of a vector."""
        every = np.zeros(self._kept.size)
        every[self._kept] = x
        return unpacked(every, *self.arrays["t1"].shape)

    def __matmul__(self, x: np.ndarray) -> np.ndarray:
        """The product with a vector."""
        dt1, dt2 = self.amplitudes(x)
        values = self.bound.run(dt1=dt1, dt2=dt2)
        return packed(values["dr1"], values["dr2"])[self._kept]


def with_free_orbital(tensor: Tensor) -> Tensor:
    """The tensor with the blocks of a space that has an additional alpha orbital, in the block `FREE`.

    A direction has this orbital once and conserves the spin. All other tensors are zero there.
    """
    if tensor.conserving is None:
        return tensor
    times = 1 if tensor.name in ("dt1", "dt2") else 0
    left, right = tensor.conserving
    blocks = frozenset(
        numbers
        for numbers in product(*(range(len(space.blocks)) for space in tensor.spaces))
        if numbers.count(FREE) == times
        and sum(numbers[axis] % 2 for axis in left) == sum(numbers[axis] % 2 for axis in right)
    )
    return replace(tensor, conserving=None, blocks=blocks)


def enlarged(array: np.ndarray, tensor: Tensor) -> np.ndarray:
    """The array with zeros for orbitals that it lacks."""
    return np.pad(array, [(0, (space.extent or n) - n) for space, n in zip(tensor.spaces, array.shape)])


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
        If there are fewer amplitudes than roots.
    """
    size = jacobian.gaps.size
    if not 1 <= roots <= size:
        raise ValueError(f"roots must be from 1 to {size}, the number of amplitudes; found {roots}")
    # The order of the states is not that of the differences of orbital energies, and a state of a symmetry that no
    # vector of the start has would not be found. The start has more vectors than roots and doubles among them, and more
    # roots are followed.
    order = np.argsort(jacobian.gaps, kind="stable")
    single = order < jacobian.singles
    start = np.concatenate([part[: 4 * roots + 12] for part in (order[single], order[~single])])
    followed = min(roots + 4, start.size)
    _, energies, vectors = lib.davidson_nosym1(
        lambda xs: [jacobian @ x for x in xs],
        [np.eye(1, size, k).ravel() for k in start],
        lambda residual, energy, _: residual / np.where(abs(gap := energy - jacobian.gaps) < 1e-3, 1e-3, gap),
        tol=1e-11,
        tol_residual=0.1 * threshold,
        lindep=0.01 * threshold**2,  # Residuals with a smaller square are not followed.
        max_cycle=most,
        max_space=start.size + 12 * followed,
        nroots=followed,
        verbose=0,
    )
    found = np.argsort(energies)[:roots]
    vectors = [vectors[k] / np.linalg.norm(vectors[k]) for k in found]
    errors = [np.linalg.norm(jacobian @ x - energy * x) for energy, x in zip(energies[found], vectors)]
    if not max(errors) <= threshold:
        raise NotConverged(
            f"the largest residual of {roots} states is {max(errors):.1e} Hartree after at most {most} iterations, "
            f"above {threshold:.1e}: allow more iterations, or ask for another number of states"
        )
    return energies[found], vectors


def multiplicity(states: str, dt1: np.ndarray, dt2: np.ndarray) -> str:
    """The name of the multiplicity of amplitudes of norm 1 (`Jacobian.amplitudes`).

    Singlets keep their singles if all spins are exchanged, triplets change their sign; quintets count as singlets.
    Of ions only quartets have a state of spin 3/2 along the axis, which the ladder operator of the spin makes of them.
    """
    if states == "ee":
        exchanged = np.roll(dt1, [n // 2 for n in dt1.shape], axis=(0, 1))
        return "singlet" if np.vdot(exchanged, dt1) > 0 else "triplet"
    # Two orbitals of one kind, then one of the other.
    r = dt2[:, :, :-1, -1] if states == "ip" else dt2[-1, :-1].transpose(1, 2, 0)
    pair, other = r.shape[0] // 2, r.shape[2] // 2
    raised = r[:pair, :pair, :other] - r[pair:, :pair, other:] - r[:pair, pair:, other:]
    return "quartet" if np.linalg.norm(raised) > 0.1 else "doublet"


def of_pyscf(mf: Any, states: str, roots: int) -> np.ndarray:
    """The lowest energies of PySCF's classes of these states, which lack quartets."""
    theirs = cc.CCSD(mf).run(conv_tol=1e-12, conv_tol_normt=1e-10)
    found: list[float] = []
    for kind in PYSCF[states]:
        eom = kind(theirs).set(conv_tol=1e-13, max_cycle=100)
        energies = eom.kernel(nroots=roots)[0]
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
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="6-31g")
    parser.add_argument("--states", choices=ADDITIONAL, default="ee", help="excited, ionised or electron-attached")
    parser.add_argument("--roots", type=int, default=4, help="number of states")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    mf = trnqc.accelerate(scf.RHF(mol)).run(conv_tol=1e-13, conv_tol_grad=1e-9)
    jacobian = Jacobian(solved(mf), options.states)
    energies, vectors = lowest(jacobian, options.roots)
    theirs = iter(of_pyscf(mf, options.states, options.roots))
    print("state    Hartree             eV      PySCF")
    for energy, x in zip(energies, vectors):
        name = multiplicity(options.states, *jacobian.amplitudes(x))
        peer = None if name == "quartet" else next(theirs)
        beside = "doublets only" if peer is None else f"{peer:13.10f}  difference {energy - peer:.1e}"
        print(f"{name} {energy:13.10f}  {energy * HARTREE2EV:8.4f}  {beside}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
