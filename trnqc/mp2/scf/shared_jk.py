"""The SCF of a job of several processes: rank 0 runs it, and all ranks compute J and K.

    rank 0: PySCF's loop -> ask(name, density) -> J, K        the others: serve -> the same call -> ... -> orbitals

Convergence, DIIS and errors are decided by rank 0 alone, so that ranks cannot disagree.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import df, gto, lib

from trnqc.eri.fitting.distributed import DistributedFitting, bytes_of_a_rank, prepared
from trnqc.eri.jk.builder import JKBuilder
from trnqc.eri.operators import signed_omega
from trnqc.errors import CompilerError, UnsupportedClass
from trnqc.fitted.memory import memory_left
from trnqc.fitted.metric import MetricFactor
from trnqc.pyscf.density_fitting import DF
from trnqc.ranks import Ranks


class SharedJK:
    """J and K of one molecule, computed by all ranks.

    Rank 0 attaches this object to an accelerated SCF object, runs the SCF, and calls `end`. The other ranks call
    `serve`. Rank 0 works alone, as in a job of one process, if the four-centre integrals fit into its memory, or if
    PySCF has to compute the fitted integrals. `schedule` divides tasks among ranks, see `trnqc.ranks.dealt`.
    """

    def __init__(self, mol: gto.Mole, ranks: Ranks, schedule: str = "dynamic") -> None:
        self.mol, self.ranks, self.schedule = mol, ranks, schedule
        self._fitting: DistributedFitting | None = None
        self._builders: dict[Any, JKBuilder] = {}

    def attach(self, mf: Any) -> None:
        """On rank 0, have all ranks compute J and K of an accelerated SCF object."""
        if isinstance(getattr(mf, "with_df", None), DF):
            mf.with_df = _SpreadDF.shared(mf.with_df, self)
        mf._builder = lambda mol, omega: _SharedBuilder(self, (signed_omega(mol, omega), mf.direct_scf_tol))

    def ask(self, name: str, *arguments: Any) -> Any:
        """On rank 0, call one of the methods below on every rank and return its result."""
        self.ranks.at_first(lambda: (name, arguments))
        return getattr(self, name)(*arguments)

    def end(self, result: Any) -> Any:
        """On rank 0, free the integrals and have `serve` return `result` on the other ranks."""
        self._fitting = None
        self._builders.clear()
        return self.ranks.at_first(lambda: ("end", result))[1]

    def serve(self) -> Any:
        """On the other ranks, answer the calls of rank 0 until it calls `end`; returns the argument of `end`."""
        while True:
            name, arguments = self.ranks.at_first(_nothing)
            if name == "end":
                return arguments
            getattr(self, name)(*arguments)

    def fit(self, auxbasis: Any, fit: MetricFactor) -> str:
        """Compute the fitted integrals and return a description of the code that computed them."""
        self._fitting = DistributedFitting(self.mol, df.addons.make_auxmol(self.mol, auxbasis), fit, self.ranks)
        return self._fitting.ran_on

    def fitted(self, dm: Any, orbitals: tuple[Any, Any] | None, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute J and K from fitted integrals; `orbitals` are the coefficients and occupations of the density."""
        assert self._fitting is not None
        dm = dm if orbitals is None else lib.tag_array(dm, mo_coeff=orbitals[0], mo_occ=orbitals[1])
        return self._fitting.get_jk(dm, with_j, with_k)

    def direct(self, key: tuple[float, float], dm: Any, hermi: int, with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute J and K from integrals that are not stored."""
        return self.builder(key).get_jk(dm, hermi, with_j, with_k)

    def compile(self, key: tuple[float, float]) -> None:
        """Have rank 0 compile the kernels that all ranks need."""
        self.ranks.at_first(lambda: bool(self.builder(key).build()))

    def builder(self, key: tuple[float, float]) -> JKBuilder:
        """This rank's builder for an omega and a cutoff."""
        if key not in self._builders:
            omega, cutoff = key
            self._builders[key] = JKBuilder(
                self.mol, omega, cutoff, int(lib.num_threads()), ranks=self.ranks, schedule=self.schedule
            )
        return self._builders[key]


def _nothing() -> Any:
    """The argument of `at_first` on ranks other than 0, where it is not called."""


class _SharedBuilder:
    """Replaces a JKBuilder on rank 0 and has all ranks compute J and K."""

    def __init__(self, shared: SharedJK, key: tuple[float, float]) -> None:
        self.shared, self.key = shared, key
        shared.ask("compile", key)

    @property
    def ran_on(self) -> str:
        """Description of the code that computes J and K."""
        return self.shared.builder(self.key).ran_on

    @property
    def quick_kernels(self) -> int:
        """The number of kernels in their quick form: ranks wait for the kernels themselves."""
        return self.shared.builder(self.key).quick_kernels

    def get_jk(self, dm: Any, hermi: int = 1, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        return self.shared.ask("direct", self.key, dm, hermi, with_j, with_k)


class _SpreadDF(DF):
    """Density fitting on rank 0 that uses all ranks if that is possible, and works as in one process otherwise."""

    shared_jk: SharedJK
    _spread: bool | None = None

    @classmethod
    def shared(cls, other: DF, shared: SharedJK) -> _SpreadDF:
        new = cls.of(other)
        assert isinstance(new, _SpreadDF)
        new.shared_jk = shared
        return new

    def get_jk(
        self,
        dm: Any,
        hermi: int = 1,
        with_j: bool = True,
        with_k: bool = True,
        direct_scf_tol: float = 1e-13,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        if self._spread is None:
            self._spread = self._begin()
        if not self._spread or omega:
            return super().get_jk(dm, hermi, with_j, with_k, direct_scf_tol, omega)
        orbitals = (dm.mo_coeff, dm.mo_occ) if getattr(dm, "mo_coeff", None) is not None else None
        return self.shared_jk.ask("fitted", np.asarray(dm), orbitals, with_j, with_k)

    def _begin(self) -> bool:
        """Have all ranks compute the integrals if they can, and return whether they have."""
        auxmol = df.addons.make_auxmol(self.mol, self.auxbasis)
        needed = bytes_of_a_rank(self.mol, auxmol, self.shared_jk.ranks.size)
        if self.mol.cart != auxmol.cart or needed > memory_left(self.max_memory):
            return False
        try:
            fit = prepared(self.mol, auxmol)  # An error here is raised before the other ranks take part.
        except (CompilerError, UnsupportedClass):
            return False
        self.ran_on = self.shared_jk.ask("fit", self.auxbasis, fit)
        return True
