"""The exchange-correlation kernel: second derivatives of a functional, contracted with changes of the density.

densities -> second derivatives on all points, in PySCF's arrays -> blocks: change of the density -> times the second
derivatives -> matrix of the change of the potential

PySCF's TDDFT, CPHF, stability analysis and second-order SCF ask for these.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.dft import numint

from trnqc.host.overrides import users_method
from trnqc.xc.blocks import CUTOFF, Blocks, BlocksCache, PointBlock
from trnqc.xc.densities import ORDER, VARIABLES, DensityMatrix, densities_of
from trnqc.xc.quadrature import Quadrature

# Methods of PySCF's numerical integration by which its other methods compute densities and potentials on points. Our
# programs do without them, so that those of a user have PySCF's methods around them.
STEPS = ("block_loop", "eval_ao", "eval_rho", "eval_rho1", "eval_rho2", "_gen_rho_evaluator")
# Methods by which the functional of a user is called.
FUNCTIONAL = ("eval_xc", "eval_xc1", "eval_xc_eff", "libxc")
# Held during a call of a functional that the user has defined.
_LOCK = threading.Lock()


def users_integration(ni: Any) -> str:
    """Return in words which step of the integration on points is the user's, or ""."""
    return users_method(ni, *STEPS)


def functional_of(ni: Any) -> AbstractContextManager[Any]:
    """Return a context for calls of the functional; a user's functional is called on one thread at a time."""
    return _LOCK if users_method(ni, *FUNCTIONAL) else nullcontext()


class QuadratureResponse(numint.NumInt):
    """PySCF's methods for the response of the exchange-correlation potential, on our quadrature."""

    _blocks: BlocksCache
    seconds: dict[str, float]
    # The precision of the products of responses, np.float64 or np.float32.
    response_precision: type[np.floating] = np.float64

    # Whether our programs compute a result for a molecule, a kind of functional and density matrices.
    serves: Callable[..., bool]

    def nr_rks_fxc(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        dm0: Any,
        dms: Any,
        relativity: int = 0,
        hermi: int = 0,
        rho0: Any = None,
        vxc: Any = None,
        fxc: Any = None,
        max_memory: float = 2000,
        verbose: Any = None,
    ) -> np.ndarray:
        """Return changes of the potential [..., nao, nao] for changes `dms` of a closed-shell density."""
        kind = self._xc_type(xc_code)
        if not self.serves(mol, kind, dms):
            return super().nr_rks_fxc(
                mol, grids, xc_code, dm0, dms, relativity, hermi, rho0, vxc, fxc, max_memory, verbose
            )
        if fxc is None:
            fxc = self.cache_xc_kernel1(mol, grids, xc_code, dm0, 0, max_memory)[2]
        potentials = self._response(mol, grids, kind, densities_of(dms, hermi), np.asarray(fxc)[None, :, None])
        potentials = potentials[0] if isinstance(dms, np.ndarray) and dms.ndim == 2 else potentials
        return potentials.astype(np.result_type(*dms), copy=False)

    def nr_uks_fxc(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        dm0: Any,
        dms: Any,
        relativity: int = 0,
        hermi: int = 0,
        rho0: Any = None,
        vxc: Any = None,
        fxc: Any = None,
        max_memory: float = 2000,
        verbose: Any = None,
    ) -> np.ndarray:
        """Return changes of the potentials [2, ..., nao, nao] for changes of the densities of both spins."""
        kind = self._xc_type(xc_code)
        if not self.serves(mol, kind, dms):
            return super().nr_uks_fxc(
                mol, grids, xc_code, dm0, dms, relativity, hermi, rho0, vxc, fxc, max_memory, verbose
            )
        if fxc is None:
            fxc = self.cache_xc_kernel1(mol, grids, xc_code, dm0, 1, max_memory)[2]
        alpha, beta = numint._format_uks_dm(dms)
        densities = [*densities_of(alpha, hermi), *densities_of(beta, hermi)]
        potentials = self._response(mol, grids, kind, densities, np.asarray(fxc))
        potentials = potentials.reshape(2, -1, mol.nao, mol.nao)
        one = isinstance(alpha, np.ndarray) and alpha.ndim == 2
        return (potentials[:, 0] if one else potentials).astype(np.result_type(alpha, beta), copy=False)

    def cache_xc_kernel(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        mo_coeff: Any,
        mo_occ: Any,
        spin: int = 0,
        max_memory: float = 2000,
    ) -> tuple[Any, Any, Any]:
        """Return density, first and second derivatives on all points for orbitals, as PySCF does."""
        kind, restricted = self._xc_type(xc_code), np.ndim(mo_coeff[0]) == 1
        coefficients, occupations = ([mo_coeff], [mo_occ]) if restricted else (mo_coeff, mo_occ)
        if not self.serves(mol, kind, coefficients):
            return super().cache_xc_kernel(mol, grids, xc_code, mo_coeff, mo_occ, spin, max_memory)
        dms = [DensityMatrix.of((c * occ) @ c.T, c, occ) for c, occ in zip(coefficients, occupations)]
        return self._kernel(mol, grids, xc_code, dms, spin)

    def cache_xc_kernel1(
        self, mol: gto.Mole, grids: Any, xc_code: str, dm: Any, spin: int = 0, max_memory: float = 2000
    ) -> tuple[Any, Any, Any]:
        """Return density, first and second derivatives on all points for density matrices, as PySCF does."""
        if not self.serves(mol, self._xc_type(xc_code), dm):
            return super().cache_xc_kernel1(mol, grids, xc_code, dm, spin, max_memory)
        return self._kernel(mol, grids, xc_code, densities_of(dm, 1), spin)

    def _kernel(
        self, mol: gto.Mole, grids: Any, xc_code: str, densities: Sequence[DensityMatrix], spin: int
    ) -> tuple[Any, Any, Any]:
        """Evaluate the functional; with spin = 1, a single density is divided between both spins."""
        kind = self._xc_type(xc_code)
        blocks = self._blocks_of(mol, grids, kind)
        parts = Quadrature(blocks, kind, lib.num_threads(), self.seconds).densities(densities)
        rho = np.zeros((len(densities), VARIABLES[kind], len(grids.coords)))
        rho[:, :, blocks.index] = parts
        if kind == "LDA":
            rho = rho[:, 0]
        by_spin: Any = rho[0]
        if len(densities) == 2:
            by_spin = (rho[0], rho[1])
        elif spin == 1:
            by_spin = np.repeat(rho / 2, 2, axis=0)
        vxc, fxc = self.eval_xc_eff(xc_code, by_spin, deriv=2, xctype=kind, spin=spin)[1:3]
        return by_spin, vxc, fxc

    def _blocks_of(self, mol: gto.Mole, grids: Any, kind: str) -> Blocks:
        if grids.coords is None:
            grids.build(with_non0tab=True)
        return self._blocks.get(mol, grids.coords, grids.weights, ORDER[kind], getattr(grids, "screening", CUTOFF))

    def _response(
        self, mol: gto.Mole, grids: Any, kind: str, densities: Sequence[DensityMatrix], fxc: np.ndarray
    ) -> np.ndarray:
        """Contract fxc [spins, variables, spins, variables, points of the grid] with densities [spins sets]."""
        blocks = self._blocks_of(mol, grids, kind)

        def derivatives(block: PointBlock, rho: np.ndarray) -> np.ndarray:
            second = fxc[..., blocks.index[block.span]] * blocks.weights[block.span]
            by_spin = rho.reshape(len(fxc), -1, *rho.shape[1:])
            changes = np.einsum("snxg,sxtyg->tnyg", by_spin, second).reshape(rho.shape)
            return np.ascontiguousarray(changes, rho.dtype)

        quadrature = Quadrature(blocks, kind, lib.num_threads(), self.seconds, self.response_precision)
        return quadrature.potentials(densities, derivatives)
