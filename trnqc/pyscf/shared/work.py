"""What each rank does when rank 0 asks: its part of J and K, of exchange and correlation, and of their gradients.

    molecule -> fitted integrals, kernels -> J and K of densities, derivatives
    blocks of a grid -> share of each rank -> electrons, energies and potentials of densities

The molecule and the blocks of a grid are sent when they change, and densities with every call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from pyscf import df, gto, lib

from trnqc.eri.core_gradient import attraction_gradient
from trnqc.eri.fitting import transitions
from trnqc.eri.fitting.distributed import DistributedFitting
from trnqc.eri.fitting.rounded import RoundedJK
from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.fitted.half_transform import FittedRows
from trnqc.eri.gradient.jk_gradient import fitted_jk_gradient
from trnqc.eri.jk.builder import JKBuilder
from trnqc.fitted.memory import memory_left
from trnqc.fitted.metric import MetricFactor
from trnqc.pyscf.molecule_cache import shells_of
from trnqc.pyscf.shared.calls import RankCalls
from trnqc.ranks import Ranks

if TYPE_CHECKING:
    from trnqc.xc.blocks import Blocks
    from trnqc.xc.densities import DensityMatrix

# Grids whose blocks are kept: two full ones and their coarse ones.
KEPT = 4

Key = tuple[float, float]
"""The omega and the cutoff of integrals that are not stored."""
Tags = dict[str, Any]
"""The orbitals with which a density is tagged, by the names of TAGS: PySCF's, and those of `transitions`."""
TAGS = ("mo_coeff", "mo_occ", transitions.TAG)


class SharedWork(RankCalls):
    """The work that the ranks of a job share.

    Rank 0 attaches this object to an accelerated SCF object (`attach`), runs what it likes, and calls `end`. The other
    ranks call `serve`. The molecule may change in between. `schedule` divides tasks among ranks, see
    `trnqc.ranks.dealt`.
    """

    WORDS: ClassVar[dict[str, str]] = {
        "fit": "fitted integrals",
        "fitted": "fitted J and K",
        "rounded": "fitted J and K",
        "direct": "J and K",
        "semilocal": "exchange and correlation",
        "fitted_gradient": "gradient of fitted J and K",
        "attraction": "gradient of the attraction by nuclei",
        "derivatives": "derivatives of J and K",
        "forces": "gradient of exchange and correlation",
    }

    def __init__(self, ranks: Ranks, schedule: str = "dynamic") -> None:
        super().__init__(ranks)
        self.schedule = schedule
        self._mol: gto.Mole | None = None
        self._shells = b""
        self._fittings: dict[float, DistributedFitting] = {}
        self._rounded: RoundedJK | None = None
        self._builders: dict[Key, JKBuilder] = {}
        self._gradient_builders: dict[Key, GradientBuilder] = {}
        # Blocks of grids by their numbers: on rank 0 those that the other ranks have, and the shares of this rank.
        self._sent: dict[int, Blocks] = {}
        self._blocks: dict[int, Blocks] = {}
        self._grids = 0

    def clear(self) -> None:
        """See `RankCalls.clear`."""
        self._forget_molecule()
        self._sent.clear()
        self._blocks.clear()

    def _forget_molecule(self) -> None:
        self._mol, self._shells, self._rounded = None, b"", None
        for kept in (self._fittings, self._builders, self._gradient_builders):
            kept.clear()

    def ask_of(self, mol: gto.Mole, name: str, *arguments: Any) -> Any:
        """On rank 0, call a method that concerns a molecule on every rank and return its result."""
        if shells_of(mol) != self._shells:
            self.ask("take_molecule", mol)
        return self.ask(name, *arguments)

    def holds(self, mol: gto.Mole, fitting_shells: bytes, omega: float) -> bool:
        """Return whether the ranks have the integrals of a molecule, the `shells_of` its fitting set, and an omega."""
        one = self._fittings.get(omega)
        return one is not None and (shells_of(mol), fitting_shells) == (self._shells, shells_of(one.auxmol))

    def take_molecule(self, mol: gto.Mole) -> None:
        """Take a molecule in the place of the last one."""
        self._forget_molecule()
        # PySCF sets the omega of a molecule for a while, which must not be seen by ranks that are threads.
        self._mol, self._shells = mol.copy(), shells_of(mol)

    @property
    def mol(self) -> gto.Mole:
        """The molecule."""
        assert self._mol is not None, "take_molecule comes first"
        return self._mol

    def fit(self, omega: float, auxbasis: Any, factor: MetricFactor) -> str:
        """Compute the fitted integrals and return a description of the code that computed them."""
        with self.mol.with_range_coulomb(omega):
            auxmol = df.addons.make_auxmol(self.mol, auxbasis)
            self._fittings[omega] = DistributedFitting(self.mol, auxmol, factor, self.ranks)
        return self._fittings[omega].ran_on

    def fitting(self, omega: float) -> DistributedFitting:
        """Return this rank's fitted integrals."""
        return self._fittings[omega]

    def fitted(self, omega: float, dm: Any, tags: Tags, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute J and K from fitted integrals."""
        return self._fittings[omega].get_jk(tagged(dm, tags), with_j, with_k)

    def begin_rounding(self, omega: float) -> RoundedJK:
        """Begin an SCF whose early cycles have J and K in single precision."""
        self._rounded = self._fittings[omega].rounded()
        return self._rounded

    def rounded(self, omega: float, dm: Any, tags: Tags, with_j: bool) -> tuple[Any, Any]:
        """Compute J and K from fitted integrals in single precision."""
        assert self._rounded is not None
        room = memory_left(self.mol.max_memory)
        return self._rounded(tagged(dm, tags), self._fittings[omega].norms, with_j, room)

    def fitted_gradient(self, omega: float, dms: np.ndarray, factors: dict[str, float]) -> np.ndarray:
        """Compute the gradient of the fitted energy of a density; `factors` are options of `fitted_jk_gradient`."""
        one = self._fittings[omega]
        rows = FittedRows(one.rows, one.factor, first=one.first, count=one.factor.naux, ranks=self.ranks)
        options: dict[str, Any] = {"omega": omega, "rows": rows, "ranks": self.ranks, **factors}
        return fitted_jk_gradient(self.mol, one.auxmol, dms / 2, dms, **options)

    def compile(self, key: Key) -> None:
        """Have rank 0 compile the kernels that all ranks need."""
        self.ranks.at_first(lambda: bool(self.builder(key).build()))

    def direct(
        self, key: Key, dm: Any, hermi: int, with_j: bool, with_k: bool, cutoff: float | None
    ) -> tuple[Any, Any]:
        """Compute J and K from integrals that are not stored."""
        return self.builder(key).get_jk(dm, hermi, with_j, with_k, cutoff)

    def builder(self, key: Key) -> JKBuilder:
        """This rank's builder for an omega and a cutoff."""
        if key not in self._builders:
            options: dict[str, Any] = {"ranks": self.ranks, "schedule": self.schedule}
            self._builders[key] = JKBuilder(self.mol, *key, int(lib.num_threads()), **options)
        return self._builders[key]

    def attraction(self, density: np.ndarray) -> np.ndarray:
        """Compute the gradient of the attraction by nuclei."""
        return attraction_gradient(self.mol, density, ranks=self.ranks)

    def derivatives(self, key: Key, dm: np.ndarray, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute first derivatives of J and K."""
        if key not in self._gradient_builders:
            self._gradient_builders[key] = GradientBuilder(self.mol, *key, int(lib.num_threads()), self.ranks)
        return self._gradient_builders[key].get_jk(dm, with_j, with_k)

    def ask_on(self, blocks: Blocks, name: str, *arguments: Any) -> Any:
        """On rank 0, call a method that concerns the blocks of a grid on every rank and return its result."""
        number = next((number for number, sent in self._sent.items() if sent is blocks), None)
        if number is None:
            number = self._grids = self._grids + 1
            self.ask("take_blocks", number, blocks)
            self._sent[number] = blocks
            _keep_last(self._sent)
        return self.ask(name, number, *arguments)

    def take_blocks(self, number: int, blocks: Blocks) -> None:
        """Keep this rank's share of the blocks of a grid under a number."""
        self._blocks[number] = blocks.share(self.ranks)
        _keep_last(self._blocks)

    def semilocal(
        self, number: int, omega: float | None, xc_code: str, kind: str, densities: Sequence[DensityMatrix], spins: int
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """Compute electrons, energies and potentials; see `trnqc.xc.semilocal.semilocal`."""
        from trnqc.xc.semilocal import semilocal  # It loads libxc, which Hartree-Fock does not need.

        blocks, ni = self._blocks[number], _integration(omega)
        return semilocal(ni, blocks, xc_code, kind, densities, spins, ranks=self.ranks)

    def forces(
        self, coords: np.ndarray, weights: np.ndarray, omega: float | None, xc_code: str, dm: Any, tags: Tags
    ) -> np.ndarray:
        """Compute the gradient of exchange and correlation; see `trnqc.xc.forces.gradient_on`."""
        from trnqc.xc.forces import gradient_on

        return gradient_on(_integration(omega), self.mol, coords, weights, xc_code, tagged(dm, tags), self.ranks)


def tags_of(dm: Any) -> Tags:
    """Return the orbitals with which a density is tagged, by the names of the tags. They do not survive pickling."""
    found = {name: tag for name in TAGS if (tag := getattr(dm, name, None)) is not None}
    # PySCF's tags are arrays, perhaps tagged themselves; ours is a tuple of arrays of different shapes.
    return {name: tag if name == transitions.TAG else np.asarray(tag) for name, tag in found.items()}


def tagged(dm: Any, tags: Tags) -> Any:
    """Return a density with its tags."""
    return lib.tag_array(dm, **tags) if tags else dm


def _keep_last(blocks: dict[int, Blocks]) -> None:
    if len(blocks) > KEPT:
        del blocks[next(iter(blocks))]


def _integration(omega: float | None) -> Any:
    """Return an object that evaluates PySCF's functionals, with an omega of the user or None."""
    from pyscf.dft import numint

    ni = numint.NumInt()
    ni.omega = omega
    return ni
