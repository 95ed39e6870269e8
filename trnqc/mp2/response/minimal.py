"""A cheap approximation to the change of the Fock matrix, from integrals fitted with few functions.

With one s function and one set of p functions an atom for J, and the s functions for K, the equations of the orbital
response cost less than a hundredth of the exact ones. As a preconditioner they save half of the iterations (Z. Zhou,
F. Della Sala and S. M. Parker, J. Phys. Chem. Lett. 14, 1968 (2023), who use them for excited states). The kernel of
exchange and correlation is left out, and K is scaled by the share of exact exchange.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import df, gto, lib
from pyscf.data import radii

from trnqc.host.blas import single_threaded
from trnqc.mp2.factors.shell_blocks import by_angular_momentum
from trnqc.mp2.reference.spins import SpinOrbitals

# The exponent of an atom of radius R is this over R^2, with the radii of Bragg and Slater in Bohr. The iterations of
# the Z-vector equations of caffeine/cc-pVTZ are fewest for about this.
EXPONENT = 0.3


class MinimalResponse:
    """The approximation of `FockResponse.rotation` for given orbitals; `exchange` is the factor of K, 1 for
    Hartree-Fock.
    """

    def __init__(self, mol: gto.Mole, spins: Sequence[SpinOrbitals], exchange: float = 1.0) -> None:
        self._spins, self._factor = tuple(spins), 2.0 if len(spins) == 1 else 1.0
        packed, inverse = _integrals(mol)
        of_s = inverse[: mol.natm, : mol.natm]
        self._coulomb, self._exchange = [], []
        for spin in self._spins:
            c, c_occ = (orbitals.astype(np.float32) for orbitals in (spin.coefficients, spin.c_occ))
            coulomb = np.empty((len(packed), spin.nmo, spin.nocc), np.float32)
            whole = np.empty((mol.natm, spin.nmo, spin.nmo), np.float32)
            for n, row in enumerate(packed):
                square = lib.unpack_tril(row).astype(np.float32)
                coulomb[n] = (c_occ.T @ square @ c).T
                if n < mol.natm:
                    np.matmul(exchange**0.5 * c.T, square @ c, out=whole[n])
            self._coulomb.append(inverse @ coulomb.reshape(len(packed), -1))
            self._exchange.append(_Exchange(spin, (of_s @ whole.reshape(mol.natm, -1)).reshape(whole.shape)))

    @staticmethod
    def memory(mol: gto.Mole, spins: Sequence[SpinOrbitals]) -> int:
        """Return the bytes that the constructor takes."""
        by_spin = sum(4 * spin.nmo * (spin.nmo + 4 * spin.nocc) for spin in spins)
        return mol.natm * (2 * by_spin + 4 * 4 * mol.nao_nr() ** 2)

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return about G[P]_qi [nmo, nocc] of the rotation z[a, i] for each spin."""
        blocks = [spin.rotated(block)[:, spin.occupied].astype(np.float32) for spin, block in zip(self._spins, z)]
        d = sum(2 * self._factor * b @ block.ravel() for b, block in zip(self._coulomb, blocks))
        return [(d @ b).reshape(block.shape) - k(block) for b, k, block in zip(self._coulomb, self._exchange, blocks)]


class _Exchange:
    """K_qi = Σ_R,p,r (R|qp) P_pr (R|ri) from integrals [R, nmo, nmo], for P with P_pi = block and no virtual block."""

    def __init__(self, spin: SpinOrbitals, integrals: np.ndarray) -> None:
        self._occupied, self._integrals = spin.occupied, integrals
        columns = integrals[:, :, spin.occupied]
        self._parts = columns[:, ~spin.occupied], columns[:, spin.occupied]

    def __call__(self, block: np.ndarray) -> np.ndarray:
        z = block[~self._occupied]
        of_virtual, of_occupied = self._parts
        right = np.empty((*self._integrals.shape[:2], block.shape[1]), np.float32)
        right[:, ~self._occupied] = z @ of_occupied
        right[:, self._occupied] = z.T @ of_virtual
        return np.matmul(self._integrals, right).sum(axis=0)


def _integrals(mol: gto.Mole) -> tuple[np.ndarray, np.ndarray]:
    """Integrals (n|mu >= nu), packed, with s and p functions n, and L^-1 in single precision with (n|m) = L L^T.

    The s functions of all atoms come first, so that L^-1 of a fit with s functions alone is a block of that matrix.
    """
    basis = {
        symbol: [[l, [EXPONENT / radii.BRAGG[gto.charge(symbol)] ** 2, 1.0]] for l in (0, 1)]
        for symbol in {mol.atom_symbol(n) for n in range(mol.natm)}
    }
    auxmol = by_angular_momentum(df.addons.make_auxmol(mol, basis))
    packed = np.asarray(df.incore.aux_e2(mol, auxmol, aosym="s2ij")).T
    lower = scipy.linalg.cholesky(auxmol.intor("int2c2e", hermi=1), lower=True)
    inverse = scipy.linalg.solve_triangular(lower, np.eye(len(lower)), lower=True)
    return packed, inverse.astype(np.float32)


def minimal_response(mf: Any, spins: Sequence[SpinOrbitals], room: float) -> MinimalResponse | None:
    """Return the approximation for an SCF object, or None if it takes more than `room` bytes."""
    if MinimalResponse.memory(mf.mol, spins) > room:
        return None
    exchange = 1.0
    if hasattr(mf, "xc"):
        omega, long_range, short_range = mf._numint.rsh_and_hybrid_coeff(mf.xc, spin=mf.mol.spin)
        exchange = (long_range + short_range) / 2 if omega else short_range
    # The matrices are small, and there are many of them: threads of BLAS and of OpenMP would wait for one another.
    with single_threaded(), lib.with_omp_threads(1):
        return MinimalResponse(mf.mol, spins, exchange)
