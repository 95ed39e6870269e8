"""Density fitting on rank 0 whose integrals lie on all ranks: each has some of the rows Q."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
from pyscf import df, gto

from trnqc.eri.fitting.distributed import bytes_of_a_rank, prepared
from trnqc.eri.fitting.rounded import HostProducts, ReducedProducts, RoundedJK
from trnqc.eri.fitting.tagged import has_orbitals
from trnqc.eri.operators import signed_omega
from trnqc.errors import CompilerError, UnsupportedClass
from trnqc.fitted.memory import memory_left
from trnqc.pyscf.density_fitting import DF
from trnqc.pyscf.molecule_cache import shells_of
from trnqc.pyscf.shared.work import SharedWork, tags_of


class SpreadDF(DF):
    """Density fitting on rank 0 that uses all ranks if that is possible, and works as in one process otherwise.

    It is not possible where PySCF has to compute the integrals, or where a rank has no room for its part of them. What
    asks for the integrals themselves, such as a Hessian, has them computed on rank 0 alone.
    """

    _keys = frozenset({"shared"})
    shared: SharedWork
    _alone = False
    _fitting_shells: bytes | None = None

    @classmethod
    def of_ranks(cls, other: DF, shared: SharedWork) -> SpreadDF:
        """Return an object with the state of one of a single process, integrals apart."""
        new = cls.of(other, other.kernels)
        assert isinstance(new, SpreadDF)
        new.shared = shared
        return new

    def undo(self) -> df.DF:
        """Return PySCF's object with the state of this one."""
        plain = super().undo()
        for name in ("shared", "_alone", "_fitting_shells"):
            plain.__dict__.pop(name, None)
        return plain

    def reset(self, mol: gto.Mole | None = None) -> SpreadDF:
        """Forget the integrals. PySCF resets a copy of this object for range-separated integrals."""
        self._alone, self._fitting_shells = False, None
        super().reset(mol)
        return self

    @property
    def _omega(self) -> float:
        return signed_omega(self.mol, None)

    @property
    def _is_spread(self) -> bool:
        return self._has_spread(self._omega)

    def _has_spread(self, omega: float) -> bool:
        if self._alone:
            return False
        if self._fitting_shells is None:
            self._fitting_shells = shells_of(df.addons.make_auxmol(self.mol, self.auxbasis))
        return self.shared.holds(self.mol, self._fitting_shells, omega)

    def is_computed(self) -> bool:
        """See `DF.is_computed`."""
        return self._is_spread or super().is_computed()

    def compute(self) -> None:
        """Have all ranks compute the integrals if they can, else this one."""
        auxmol = df.addons.make_auxmol(self.mol, self.auxbasis)
        needed = bytes_of_a_rank(self.mol, auxmol, self.shared.ranks.size)
        self._alone = self.mol.cart != auxmol.cart or needed > memory_left(self.max_memory)
        try:
            if not self._alone:
                factor = prepared(self.mol, auxmol)  # An error here is raised before the other ranks take part.
        except (CompilerError, UnsupportedClass):
            self._alone = True
        if self._alone:
            super().compute()
        else:
            self.ran_on = self.shared.ask_of(self.mol, "fit", self._omega, self.auxbasis, factor)

    def get_jk(
        self,
        dm: Any,
        hermi: int = 1,
        with_j: bool = True,
        with_k: bool = True,
        direct_scf_tol: float = 1e-13,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        """Compute J and K as `DF.get_jk` does."""
        if omega is not None or np.iscomplexobj(dm):
            return super().get_jk(dm, hermi, with_j, with_k, direct_scf_tol, omega)
        if not self.is_computed():
            self.compute()
        if not self._is_spread:
            return super().get_jk(dm, hermi, with_j, with_k, direct_scf_tol, omega)
        if self.rounded and with_k and has_orbitals(dm):
            return self.rounded(dm, np.empty(0), with_j, 0.0)
        arguments = self._omega, np.asarray(dm), tags_of(dm), with_j, with_k
        return self.shared.ask_of(self.mol, "fitted", *arguments)

    @contextmanager
    def reduced_precision(self, products: Callable[[Any], ReducedProducts] = HostProducts) -> Iterator[Any]:
        """See `DF.reduced_precision`."""
        if not self._is_spread:
            with super().reduced_precision(products) as rounded:
                yield rounded
            return
        self.rounded = _SharedRounded(self.shared, self.mol, self._omega)
        try:
            yield self.rounded
        finally:
            self.rounded = None

    def shares_gradients(self, omega: float | None) -> bool:
        """Return whether all ranks compute gradients from the fitted integrals of an operator."""
        signed = signed_omega(self.mol, omega)
        return self._has_spread(signed) and self.shared.fitting(signed).factor.is_lower

    def gradient(self, dms: np.ndarray, omega: float | None, **factors: float) -> np.ndarray:
        """Compute the gradient of the fitted energy of a density; see `SharedWork.fitted_gradient`."""
        signed = signed_omega(self.mol, omega)
        return self.shared.ask_of(self.mol, "fitted_gradient", signed, np.asarray(dms), factors)


class _SharedRounded(RoundedJK):
    """J and K in single precision by all ranks, on rank 0."""

    def __init__(self, shared: SharedWork, mol: gto.Mole, omega: float) -> None:
        self._shared, self._mol, self._omega = shared, mol, omega
        self.products = shared.ask_of(mol, "begin_rounding", omega).products
        self.exchange = np.zeros((0, 0))

    def __call__(self, dm: Any, norms: np.ndarray, with_j: bool, room: float) -> tuple[np.ndarray | None, np.ndarray]:
        """See `RoundedJK`. Each rank has norms and room of its own."""
        arguments = self._omega, np.asarray(dm), tags_of(dm), with_j
        vj, self.exchange = self._shared.ask_of(self._mol, "rounded", *arguments)
        return vj, self.exchange
