"""PySCF's continuum solvents, PCM and SMD, with integrals of charges on the surface by our kernels: the same numbers.

density -> potential on the surface -> charges (cavity.py) -> their potential matrix, and forces
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.data.radii import BOHR
from pyscf.dft.gen_grid import LEBEDEV_ORDER
from pyscf.solvent import pcm, smd
from pyscf.solvent.grad.pcm import grad_nuc

from trnqc.eri.charges import ChargeIntegrals, charge_gradient, gaussian_charges
from trnqc.eri.classes import LMAX
from trnqc.eri.compiled import background, programs
from trnqc.eri.prepare import needs
from trnqc.errors import InputError
from trnqc.fitted.memory import bytes_left
from trnqc.host.overrides import users_method
from trnqc.pyscf.molecule_cache import MoleculeCache, is_covered
from trnqc.pyscf.solvents.cavity import CONDUCTORS, ISOTROPIC, SYMMETRIC, Cavity

# The share of the memory limit's rest that integrals of the charges may take.
SHARE = 0.5
# Methods that are replaced. An object on which a user has replaced one stays PySCF's.
STEPS = ("build", "_get_v", "_get_vmat", "_get_vind", "_B_dot_x", "grad")


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


_OWN = ("kernels", "ran_on", "_integrals", "_cavity", "_cache", "_last")


class _Charges(lib.StreamObject):
    """The layer that `accelerate_solvent` puts on a solvent object."""

    _keys = frozenset({"kernels", "ran_on"})
    mol: gto.Mole
    surface: dict[str, Any]
    _intermediates: dict[str, Any]
    eps: Any
    method: str
    radii_table: Any
    vdw_scale: float
    r_probe: float
    lebedev_order: int
    surface_discretization_method: str
    solvent: str
    solvent_descriptors: Any
    sasa_ng: int

    def __init__(self, solvent: Any, kernels: str) -> None:
        self.__dict__.update(solvent.__dict__)
        self.kernels, self.ran_on, self._cache = kernels, "nothing yet", MoleculeCache()
        # The points, the exponents and the integrals.
        self._integrals: tuple[np.ndarray, np.ndarray, ChargeIntegrals] | None = None
        self._cavity: Cavity | None = None
        # A density with its energy and potential matrix.
        self._last: tuple[np.ndarray, float, np.ndarray] | None = None
        self._intermediates = {}  # The surface is computed again, with factors of its matrices.

    def reset(self, mol: gto.Mole | None = None) -> Any:
        """Forget what belongs to a geometry, as PySCF does."""
        self._integrals = self._cavity = self._last = None
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
        # An SCF asks again for a density whose J and K it has computed in reduced precision and does not accept.
        if self._last is not None and np.array_equal(dms, self._last[0]):
            return self._last[1], self._last[2]
        v = self.v_grids_n - self._get_v(dms)
        q, symmetric = self._charges_of(v)
        found = {"q": q[0], "q_sym": symmetric[0], "v_grids": v[0], "dm": dms}
        self._intermediates.update(found)
        energy, matrix = 0.5 * np.dot(symmetric[0], v[0]), self._get_vmat(symmetric)[0]
        self._last = dms.copy(), energy, matrix
        return energy, matrix

    def _B_dot_x(self, dms: np.ndarray) -> np.ndarray:
        """Return the change of the potential matrix with each density."""
        if not self._intermediates:
            self.build()
        stack = np.asarray(dms).reshape(-1, *dms.shape[-2:])
        return self._get_vmat(self._charges_of(-self._get_v(stack))[1]).reshape(dms.shape)

    def build(self, ng: int | None = None) -> Any:
        """Compute the surface, its matrices and the potential of the nuclei on it, as PySCF does."""
        radii, self._cavity, self._last = self._radii(), None, None
        if ng is None:
            ng = self.sasa_ng if isinstance(self, smd.SMD) else LEBEDEV_ORDER[self.lebedev_order]
        scheme = {} if isinstance(self, smd.SMD) else {"surface_discretization_method": self._discretization}
        self.surface = pcm.gen_surface(self.mol, rad=radii, ng=ng, **scheme)
        self._cavity = cavity = Cavity(self.surface, *self._method_and_factor())
        makers = {"S": lambda: cavity.s, "D": lambda: cavity.d, "K": cavity.k, "R": cavity.r}
        self._intermediates = _Intermediates(makers, A=cavity.area, f_epsilon=cavity.factor)
        charges = gaussian_charges(self.surface["grid_coords"], self.surface["charge_exp"] ** 2)
        nuclei = gto.fakemol_for_charges(self.mol.atom_coords())
        between = gto.mole.intor_cross(self.mol._add_suffix("int2c2e"), nuclei, charges)
        self.v_grids_n = self.mol.atom_charges() @ between
        return self

    def _radii(self) -> np.ndarray:
        """Return the radii of the cavity's spheres by nuclear charge, in Bohr."""
        if self.radii_table is not None:
            return np.asarray(self.radii_table)
        if isinstance(self, smd.SMD):
            return np.asarray(smd.smd_radii(self._descriptors()[2]))
        return np.asarray(self.vdw_scale * pcm.modified_Bondi + self.r_probe / BOHR)

    def _descriptors(self) -> Any:
        """Return the properties of the solvent that SMD reads."""
        return self.solvent_descriptors or smd.solvent_db[self.solvent]

    @property
    def _discretization(self) -> str:
        return "SWIG" if isinstance(self, smd.SMD) else self.surface_discretization_method

    def _method_and_factor(self) -> tuple[str, float]:
        """Return the equations' name and f."""
        if isinstance(self, smd.SMD):
            method, epsilon = ISOTROPIC[0], self.eps or self._descriptors()[5]
        else:
            method, epsilon = self.method.upper(), self.eps
        if method not in (*CONDUCTORS, *ISOTROPIC, *SYMMETRIC):
            raise InputError(f"the method of PCM is one of C-PCM, COSMO, IEF-PCM and SS(V)PE, found {self.method!r}")
        if epsilon == float("inf"):
            return method, 1.0
        below = {"C-PCM": 0.0, "CPCM": 0.0, "COSMO": 0.5}.get(method, 1.0)
        return method, (epsilon - 1) / (epsilon + below)

    def _charges_of(self, v: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return q = K^-1 R v, and its mean with R^T K^-T v, for potentials [n, charges]."""
        assert self._cavity is not None
        q, transposed = (part.T for part in self._cavity.charges(v.T))
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
        de += grad_nuc(self, dm)
        assert self._cavity is not None
        de += self._cavity.gradient(self._intermediates["v_grids"], self._discretization)
        return np.asarray(de + smd.get_cds_legacy(self)[1] if isinstance(self, smd.SMD) else de)


class _Intermediates(dict[str, Any]):
    """PySCF's intermediates of a solvent, of which large matrices are computed when they are asked for."""

    def __init__(self, makers: dict[str, Callable[[], Any]], **values: Any) -> None:
        super().__init__(values)
        self._makers = makers

    def __missing__(self, name: str) -> Any:
        self[name] = self._makers[name]()
        return self[name]


def _same(kept: np.ndarray | None, dm: np.ndarray) -> bool:
    """Return whether a kept density is this one, by PySCF's threshold."""
    return kept is not None and float(np.linalg.norm(kept - dm)) < 1e-10
