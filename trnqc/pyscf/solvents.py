"""PySCF's continuum solvents, PCM and SMD, with integrals of charges on the surface by our kernels: the same numbers.

density -> potential on the surface -> charges, by a factorised matrix -> their potential matrix, and forces
"""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from pyscf import gto, lib
from pyscf.solvent import pcm, smd
from pyscf.solvent.grad import pcm as pcm_gradient
from pyscf.solvent.grad import smd as smd_gradient

from trnqc.eri.charges import ChargeIntegrals, charge_gradient, gaussian_charges
from trnqc.eri.classes import LMAX
from trnqc.eri.compiled import background, programs
from trnqc.eri.prepare import needs
from trnqc.fitted.memory import bytes_left
from trnqc.host.overrides import users_method
from trnqc.pyscf.molecule_cache import MoleculeCache, is_covered

# The share of the memory limit's rest that integrals of the charges may take.
SHARE = 0.5
# Methods that are replaced. An object on which a user has replaced one stays PySCF's.
STEPS = ("_get_v", "_get_vmat", "_get_vind", "_B_dot_x", "grad")


def accelerate_solvent(solvent: Any, kernels: str) -> Any:
    """Return an object with the state of a solvent of PySCF's classes PCM and SMD, with our integrals; others as they
    are.

    kernels: what happens while kernels are not compiled, see `trnqc.accelerate`. PySCF computes the integrals then,
    each once if memory allows.
    """
    if type(solvent) not in (pcm.PCM, smd.SMD) or users_method(solvent, *STEPS):
        return solvent
    layer = _Charges(solvent, kernels)
    # PySCF knows solvents by the names of their classes.
    return lib.set_class(layer, (_Charges, type(solvent)), type(solvent).__name__)


def undo_solvent(solvent: Any) -> Any:
    """Return PySCF's object with the same state."""
    if not isinstance(solvent, _Charges):
        return solvent
    plain = lib.view(solvent, lib.drop_class(solvent.__class__, _Charges))
    for name in _OWN:
        del plain.__dict__[name]
    return plain


_OWN = ("kernels", "ran_on", "_integrals", "_factors", "_cache")


class _Charges(lib.StreamObject):
    """The layer that `accelerate_solvent` puts on a solvent object."""

    _keys = frozenset({"kernels", "ran_on"})
    mol: gto.Mole
    surface: dict[str, Any]
    _intermediates: dict[str, Any]

    def __init__(self, solvent: Any, kernels: str) -> None:
        self.__dict__.update(solvent.__dict__)
        self.kernels, self.ran_on, self._cache = kernels, "nothing yet", MoleculeCache()
        # The points, the exponents and the integrals; the matrix K and its factors.
        self._integrals: tuple[np.ndarray, np.ndarray, ChargeIntegrals] | None = None
        self._factors: tuple[np.ndarray, Any] | None = None

    def reset(self, mol: gto.Mole | None = None) -> Any:
        """Forget what belongs to a geometry, as PySCF does."""
        self._integrals = self._factors = None
        return super().reset(mol)

    def _get_v(self, dms: np.ndarray) -> np.ndarray:
        """Return the potential of the electrons, without their sign, on the surface [n, charges]."""
        if np.iscomplexobj(dms):
            return np.asarray(super()._get_v(dms))
        return self._on_surface().potentials(np.asarray(dms))

    def _get_vmat(self, q: np.ndarray) -> np.ndarray:
        """Return the potential matrices [n, nao, nao] of sets of charges [n, charges] for electrons."""
        charges = np.asarray(q).reshape(-1, len(self.surface["grid_coords"]))
        return -self._on_surface().matrices(charges)

    def _on_surface(self) -> ChargeIntegrals:
        points, exponents = self.surface["grid_coords"], self.surface["charge_exp"]
        if self._integrals is None or self._integrals[0] is not points or self._integrals[1] is not exponents:
            by_pyscf = self._by_pyscf()
            self.ran_on = f"PySCF ({by_pyscf})" if by_pyscf else programs.words()
            charges = gaussian_charges(points, exponents**2, self.mol.cart)
            room = SHARE * bytes_left(self.max_memory)
            self._integrals = points, exponents, ChargeIntegrals(self.mol, charges, room, bool(by_pyscf))
        return self._integrals[2]

    def _by_pyscf(self) -> str:
        """Return why PySCF computes the integrals, or "" if our kernels do."""
        if not self._cache.get(self.mol, "covered", lambda: is_covered(self.mol, LMAX, "solvents")):
            return "shells beyond the kernels"
        needed = self._cache.get(self.mol, "needed", self._needed)
        return "" if needed.ready() else needed.reason

    def _needed(self) -> background.Needed:
        return background.Needed(lambda: needs.for_charges(self.mol), self.kernels)

    def _get_vind(self, dms: np.ndarray) -> tuple[float, np.ndarray]:
        """Return the energy of the solvent, and its potential matrix [nao, nao], for a density or two spins."""
        if not self._intermediates:
            self.build()
        nao = dms.shape[-1]
        dms = np.asarray(dms).reshape(-1, nao, nao)
        if len(dms) == 2:
            dms = dms.sum(axis=0, keepdims=True)
        v = self.v_grids_n - self._get_v(dms)
        q, symmetric = self._charges_of(v)
        found = {"q": q[0], "q_sym": symmetric[0], "v_grids": v[0], "dm": dms}
        self._intermediates.update(found)
        return 0.5 * np.dot(symmetric[0], v[0]), self._get_vmat(symmetric)[0]

    def _B_dot_x(self, dms: np.ndarray) -> np.ndarray:
        """Return the change of the potential matrix with each density."""
        if not self._intermediates:
            self.build()
        stack = np.asarray(dms).reshape(-1, *dms.shape[-2:])
        return self._get_vmat(self._charges_of(-self._get_v(stack))[1]).reshape(dms.shape)

    def _charges_of(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return q = K^-1 R v, and its mean with R^T K^-T v, for potentials [n, charges]."""
        k, r = self._intermediates["K"], self._intermediates["R"]
        if self._factors is None or self._factors[0] is not k:
            self._factors = k, scipy.linalg.lu_factor(k, check_finite=False)
        q = scipy.linalg.lu_solve(self._factors[1], r @ v.T).T
        transposed = (r.T @ scipy.linalg.lu_solve(self._factors[1], v.T, trans=1)).T
        return q, (q + transposed) / 2

    def grad(self, dm: np.ndarray, *arguments: Any, **options: Any) -> np.ndarray:
        """Return the derivative of the solvent's energy by the positions of atoms [natm, 3], Hartree/Bohr, as PySCF
        does.
        """
        if self._by_pyscf():
            return np.asarray(super().grad(dm, *arguments, **options))
        if not self._intermediates or not _same(self._intermediates.get("dm"), dm):
            self._get_vind(dm)
        points, exponents = self.surface["grid_coords"], self.surface["charge_exp"]
        owners = np.empty(len(points), int)
        for atom, (first, last) in enumerate(self.surface["gslice_by_atom"]):
            owners[first:last] = atom
        charges = gaussian_charges(points, exponents**2, self.mol.cart)
        de = -charge_gradient(self.mol, charges, owners, dm, self._intermediates["q_sym"])
        de += pcm_gradient.grad_nuc(self, dm)
        if isinstance(self, smd.SMD):
            return np.asarray(de + smd_gradient.grad_solver(self, dm) + smd.get_cds_legacy(self)[1])
        return np.asarray(de + pcm_gradient.grad_solver(self, dm))


def _same(kept: np.ndarray | None, dm: np.ndarray) -> bool:
    """Return whether a kept density is this one, by PySCF's threshold."""
    return kept is not None and float(np.linalg.norm(kept - dm)) < 1e-10
