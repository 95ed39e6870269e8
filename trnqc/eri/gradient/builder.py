"""First derivatives of J and K, from J and K of a mixed basis whose bra pairs are (shell of a derivative, shell).

molecule -> shells of its derivatives (derivative_basis.py) -> J [i', j] and K [i', l] (mixed_basis.py) -> derivatives
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.gradient.mixed_basis import MixedJK
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.operators import Operator, signed_omega
from trnqc.eri.shells.pairs import pairs_between, pairs_of
from trnqc.errors import InputError
from trnqc.ranks import ALONE, Ranks


def jk_gradient(
    mol: gto.Mole,
    dms: Any,
    with_j: bool = True,
    with_k: bool = True,
    *,
    omega: float | None = None,
    cutoff: float = CUTOFF,
    threads: int | None = None,
) -> tuple[Any, Any]:
    """Compute first derivatives of J and K of any number of densities in one pass over the integrals.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    dms : array_like [..., nao, nao]
        Real densities with or without symmetry, such as those of spins or transition densities.
    with_j, with_k : bool
        What is wanted.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    cutoff : float
        Products of an integral over the shells of derivatives and a density element below this are left out.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of the result do not depend on it.

    Returns
    -------
    vj, vk : ndarray [..., 3, nao, nao] or None
        J[x, i, j] = -sum_kl (d_x i j|kl) D_lk and K[x, i, l] = -sum_jk (d_x i j|kl) D_jk in Hartree/Bohr, as PySCF's
        `Gradients.get_jk` returns them. None for what is not wanted.

    Raises
    ------
    InputError
        For arrays that are not real densities of this molecule.
    CompilerError, UnsupportedClass, MoleculeError
        If there are no kernels for these shells.

    Notes
    -----
    d_x acts on the electron's coordinate, and the minus sign turns it into the derivative by the position of the atom
    of i. `GradientBuilder` keeps what does not depend on the densities, for several calls with one molecule.
    `trnqc.eri.gradient.jk_gradient` has gradients of energies of symmetric densities.

    Examples
    --------
    >>> from pyscf import gto
    >>> mol = gto.M(atom="He; He 0 0 1", basis="sto-3g", verbose=0)
    >>> vj, vk = jk_gradient(mol, [[[1.0, 0.2], [0.1, 1.0]]])
    >>> vj.shape, vk.shape
    ((1, 3, 2, 2), (1, 3, 2, 2))
    """
    if np.iscomplexobj(dms):
        raise InputError("expected real densities, found complex ones: pass their real and imaginary parts")
    densities = np.asarray(dms, dtype=np.float64)
    return GradientBuilder(mol, signed_omega(mol, omega), cutoff, threads).get_jk(densities, with_j, with_k)


class GradientBuilder:
    """Derivatives of J and K of one molecule, for any number of density matrices.

    Parameters
    ----------
    mol
        The molecule.
    omega
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r.
    cutoff
        Products of an integral over the shells of derivatives and a density element below this are left out.
    threads
        By default `pyscf.lib.num_threads()`. The bits do not depend on it.
    ranks
        The processes that share the integrals. All of them create the object and call `get_jk` with the same arguments,
        and have the whole result, whose bits do not depend on their number.

    Raises
    ------
    CompilerError, UnsupportedClass, MoleculeError
        If there are no kernels for these shells.
    """

    def __init__(
        self,
        mol: gto.Mole,
        omega: float = 0.0,
        cutoff: float = CUTOFF,
        threads: int | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        self._basis = basis = derivative_basis(mol)
        bra, ket = pairs_between(basis.mol, basis.cartesian), pairs_of(basis.cartesian)
        extents = basis.mol.nao_cart(), basis.cartesian.nao_cart()
        options: dict[str, Any] = {"cutoff": cutoff, "threads": threads, "ranks": ranks}
        self._mixed = MixedJK(bra, ket, extents, operator=Operator.of(mol, omega), **options)

    @property
    def ran_on(self) -> str:
        """Description of the code that computes the derivatives."""
        return programs.words()

    def get_jk(self, dm: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """Compute the derivatives of J and K, as PySCF's `Gradients.get_jk` does.

        Parameters
        ----------
        dm : ndarray [..., nao, nao]
            Real densities of any symmetry.
        with_j, with_k : bool
            What is wanted.

        Returns
        -------
        vj, vk : ndarray [..., 3, nao, nao] or None
            J[x, i, j] = -sum_kl (d_x i j|kl) D_lk and K[x, i, l] = -sum_jk (d_x i j|kl) D_jk in Hartree/Bohr, where d_x
            acts on the electron's coordinate; the sign is that of the derivative by the nucleus. None for what is not
            wanted.

        Raises
        ------
        InputError
            For arrays that are not densities of this molecule.
        """
        to = self._basis.transform
        if dm.ndim < 2 or dm.shape[-2:] != (to.shape[1],) * 2:
            raise InputError(f"dm is [.., {to.shape[1]}, {to.shape[1]}] for this molecule, found {dm.shape}")
        shape = (*dm.shape[:-2], 3, *dm.shape[-2:])
        if dm.size == 0:
            return np.zeros(shape) if with_j else None, np.zeros(shape) if with_k else None
        dms = np.array([to @ d @ to.T for d in dm.reshape(-1, *dm.shape[-2:])])
        mixed = self._mixed.get_jk(dms, with_j, with_k)
        vj, vk = (None if v is None else self._derivatives(v).reshape(shape) for v in mixed)
        return vj, vk

    def _derivatives(self, mixed: np.ndarray) -> np.ndarray:
        right = [v @ self._basis.transform for v in mixed]
        return np.array([[-(axis.T @ v) for axis in self._basis.gradient] for v in right])
