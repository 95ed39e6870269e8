"""PySCF's numerical integration with our quadrature: the same methods and the same numbers.

NumInt of PySCF -> object of a subclass with the same state -> electrons, energy and potential of density functionals
(semilocal.py), by this process or, with `team`, by all ranks of a job
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
from pyscf import gto, lib
from pyscf.dft import numint

from trnqc.eri.compiled import background
from trnqc.host.overrides import users_method
from trnqc.jit import Recipe
from trnqc.xc.ao import programs_for
from trnqc.xc.blocks import Blocks, BlocksCache
from trnqc.xc.coarse import CoarseIntegrals, Integrals
from trnqc.xc.densities import ORDER, DensityMatrix, densities_of
from trnqc.xc.programs import point_programs, vv10_program
from trnqc.xc.quadrature import Quadrature
from trnqc.xc.response import FUNCTIONAL, QuadratureResponse, users_integration
from trnqc.xc.semilocal import semilocal
from trnqc.xc.vv10 import NonlocalPotential

# What `Blocks.CUTOFF` is for integrals, for densities on points: the error of a density is then below 1e-12 Bohr^-3.
ON_POINTS = 1e-13


class Team(Protocol):
    """The ranks of a job, which integrate together."""

    @property
    def among(self) -> str:
        """The ranks in words, behind the name of what they run."""
        ...

    def semilocal(
        self, ni: Any, blocks: Blocks, xc_code: str, kind: str, densities: Sequence[DensityMatrix], spins: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return what the function `trnqc.xc.semilocal.semilocal` returns for the blocks of the whole grid."""
        ...

    def forces(self, ni: Any, mol: gto.Mole, grids: Any, xc_code: str, dm: Any) -> np.ndarray:
        """Return what the function `trnqc.xc.forces.xc_gradient` returns."""
        ...


class NumInt(QuadratureResponse):
    """PySCF's NumInt for molecules with a quadrature by generated programs.

    `nr_rks`, `nr_uks`, `nr_vxc`, `nr_nlc_vxc` and `get_rho` are ours. Densities that are complex, and all other
    methods, are left to PySCF.

    Parameters
    ----------
    kernels : str, optional
        What happens while programs are not compiled; see `trnqc.accelerate`.

    Attributes
    ----------
    ran_on : str
        What computed the last result, in words.
    seconds : dict
        The seconds that all threads together have spent in our quadrature, by step.
    """

    _keys = frozenset({"kernels", "ran_on", "seconds"})
    # What replaces integrals on full grids during an SCF.
    coarse: CoarseIntegrals | None = None
    # The ranks that compute energies, potentials and forces together with this process.
    team: Team | None = None

    def __init__(self, kernels: str | None = None) -> None:
        self.kernels, self.ran_on = background.chosen(kernels), "nothing yet"
        self.seconds: dict[str, float] = {}
        self._blocks = BlocksCache()
        self._needed: dict[Any, background.Needed] = {}

    @classmethod
    def of(cls, ni: numint.NumInt, kernels: str | None = None) -> NumInt:
        """Return an object with the state of PySCF's, such as the functional of `define_xc_`."""
        new = cls(kernels)
        new.__dict__.update(ni.__dict__)
        return new

    def undo(self) -> numint.NumInt:
        """Return PySCF's object with this state."""
        plain = numint.NumInt()
        own = ("kernels", "ran_on", "seconds", "team", "_blocks", "_needed")
        plain.__dict__.update({name: value for name, value in self.__dict__.items() if name not in own})
        return plain

    def __reduce__(self) -> Any:
        return NumInt.of, (self.undo(), self.kernels)

    def nr_rks(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        dms: Any,
        relativity: int = 0,
        hermi: int = 1,
        max_memory: float = 2000,
        verbose: Any = None,
    ) -> tuple[Any, Any, Any]:
        """Return electrons, energy and potential [nao, nao] of closed-shell densities, as PySCF does.

        Several densities give arrays of as many.
        """
        return self._on_grids(self._rks, mol, grids, xc_code, dms, relativity, hermi, max_memory, verbose)

    def _rks(self, mol: gto.Mole, grids: Any, xc_code: str, dms: Any, *rest: Any) -> Integrals:
        kind = self._xc_type(xc_code)
        if not self.serves(mol, kind, dms):
            return super().nr_rks(mol, grids, xc_code, dms, *rest)
        densities = densities_of(dms, rest[1])
        n, energy, v = self._integrals(mol, grids, xc_code, kind, densities, spins=1)
        dtype = dms.dtype if isinstance(dms, np.ndarray) else np.result_type(*dms)
        if len(densities) == 1:
            return n[0, 0], energy[0], v[0].astype(dtype, copy=False)
        return n[0], energy, v.astype(dtype, copy=False)

    def nr_uks(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        dms: Any,
        relativity: int = 0,
        hermi: int = 1,
        max_memory: float = 2000,
        verbose: Any = None,
    ) -> tuple[Any, Any, Any]:
        """Return electrons [2], energy and potentials [2, nao, nao] of densities of each spin, as PySCF does.

        Several pairs of densities [2, n, nao, nao] give [2, n], [n] and [2, n, nao, nao].
        """
        return self._on_grids(self._uks, mol, grids, xc_code, dms, relativity, hermi, max_memory, verbose)

    def _uks(self, mol: gto.Mole, grids: Any, xc_code: str, dms: Any, *rest: Any) -> Integrals:
        kind = self._xc_type(xc_code)
        if not self.serves(mol, kind, dms):
            return super().nr_uks(mol, grids, xc_code, dms, *rest)
        alpha, beta = numint._format_uks_dm(dms)
        densities = [*densities_of(alpha, rest[1]), *densities_of(beta, rest[1])]
        n, energy, v = self._integrals(mol, grids, xc_code, kind, densities, spins=2)
        v = v.reshape(2, -1, *v.shape[1:]).astype(np.result_type(alpha, beta), copy=False)
        if isinstance(alpha, np.ndarray) and alpha.ndim == 2:
            return n.reshape(2), energy[0], v[:, 0]
        return n, energy, v

    nr_rks_vxc, nr_uks_vxc = nr_rks, nr_uks

    def nr_nlc_vxc(
        self,
        mol: gto.Mole,
        grids: Any,
        xc_code: str,
        dm: Any,
        relativity: int = 0,
        hermi: int = 1,
        max_memory: float = 2000,
        verbose: Any = None,
    ) -> tuple[Any, Any, Any]:
        """Return electrons, energy and potential [nao, nao] of nonlocal correlation, as PySCF does.

        `dm` is the density matrix of electrons of both spins.
        """
        return self._on_grids(self._nlc, mol, grids, xc_code, dm, relativity, hermi, max_memory, verbose)

    def _nlc(self, mol: gto.Mole, grids: Any, xc_code: str, dm: Any, *rest: Any) -> Integrals:
        if not self.serves(mol, "GGA", [dm], lambda: [vv10_program.recipe()]):
            return super().nr_nlc_vxc(mol, grids, xc_code, dm, *rest)
        densities = densities_of(dm, rest[1])
        quadrature = Quadrature(self._blocks_of(mol, grids, "GGA"), "GGA", lib.num_threads(), self.seconds)
        correlation = NonlocalPotential.of(quadrature, densities[0], self.nlc_coeff(xc_code))
        electrons = correlation.rho[0] * quadrature.blocks.weights
        potential = quadrature.potentials(densities, correlation.derivatives)[0]
        return electrons.sum(), electrons @ correlation.exc, potential

    def _on_grids(
        self, integrate: Callable[..., Integrals], mol: gto.Mole, grids: Any, xc_code: str, dms: Any, *rest: Any
    ) -> Integrals:
        """Integrate on a grid, or on the coarse one that replaces it; `rest` is what else PySCF's methods take."""

        def on(points: Any) -> Integrals:
            return integrate(mol, points, xc_code, dms, *rest)

        return on(grids) if self.coarse is None else self.coarse.integrals(grids, dms, on)

    def get_rho(self, mol: gto.Mole, dm: Any, grids: Any, max_memory: float = 2000) -> np.ndarray:
        """Return the density on all points of a grid, in Bohr^-3."""
        if not self.serves(mol, "LDA", dm):
            return numint.NumInt.get_rho(self, mol, dm, grids, max_memory)
        if grids.coords is None:
            grids.build(with_non0tab=True)
        blocks = self._blocks.get(mol, grids.coords, None, 0, ON_POINTS)
        part = Quadrature(blocks, "LDA", lib.num_threads(), self.seconds).densities(densities_of(dm, 1))
        rho = np.empty(len(grids.coords))
        rho[blocks.index] = part[0, 0]
        return rho

    def serves(self, mol: gto.Mole, kind: str, dms: Any, more: Callable[[], Sequence[Recipe]] = tuple) -> bool:
        """Return whether our programs compute the result, and note in `ran_on` which code computes it.

        `more` returns programs that are needed besides the programs of the kind of functional.
        """
        if kind not in ORDER:
            return False
        if users := users_integration(self):
            self.ran_on = f"PySCF: {users} is the user's"
            return False
        if any(np.iscomplexobj(dm) for dm in dms):
            self.ran_on = "PySCF: the density is complex"
            return False
        if background.lacks_compiler(self.kernels):
            self.ran_on = f"PySCF ({background.NO_COMPILER})"
            return False
        recipes = (*programs_for(mol, ORDER[kind]), *point_programs.programs_for(kind), *more())
        key = tuple(recipe.name for recipe in recipes)
        if key not in self._needed:
            self._needed[key] = background.Needed(lambda: recipes, self.kernels)
        ready = self._needed[key].ready()
        self.ran_on = "generated programs" if ready else f"PySCF ({self._needed[key].reason})"
        return ready

    def _integrals(
        self, mol: gto.Mole, grids: Any, xc_code: str, kind: str, densities: Sequence[DensityMatrix], spins: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Return electrons [spins, sets], energies [sets] and potentials [spins sets, nao, nao]."""
        blocks = self._blocks_of(mol, grids, kind)
        if team := self.team_for_functional():
            self.ran_on += team.among
            return team.semilocal(self, blocks, xc_code, kind, densities, spins)
        return semilocal(self, blocks, xc_code, kind, densities, spins, self.seconds)

    def team_for_functional(self) -> Team | None:
        """Return the ranks that share the functional. A functional of the user stays in this process."""
        return None if users_method(self, *FUNCTIONAL) else self.team
