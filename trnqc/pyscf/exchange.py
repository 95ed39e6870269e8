"""How an accelerated object computes exchange: what may be asked for, and what "auto" chooses."""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import df, gto
from pyscf.df.df_jk import _DFHF

from trnqc.eri.compiled import background
from trnqc.eri.prepare import needs
from trnqc.eri.seminumerical.exchange import LEVEL, SeminumericalExchange
from trnqc.eri.seminumerical.field import programs_for
from trnqc.eri.seminumerical.work import is_cheaper
from trnqc.errors import InputError, UnsupportedError
from trnqc.host.overrides import users_method

# Fitted integrals, exact integrals, or one integration on a grid; "auto" takes the third where it is cheaper.
METHODS = ("auto", "fitted", "direct", "seminumerical")
# The level of the grid in the first cycles of an SCF. It has half as many points as the usual one.
EARLY_LEVEL = 1
# The change of the density from one cycle to the next, relative to its norm, from which on the grid is the usual one.
SETTLED = 1e-3
# The largest threshold of the energy, in Hartree, and the smallest limit of cycles with which an SCF starts on the
# coarse grid. It could end there otherwise.
LOOSEST, FEWEST_CYCLES = 1e-6, 10


def check(mf: Any, exchange: str | None, backend: str) -> None:
    """Raise InputError for an unknown word, and InputError or UnsupportedError if an object cannot compute exchange in
    this way.
    """
    if exchange is not None and exchange not in METHODS:
        raise InputError(f"exchange is None or one of {', '.join(METHODS)}, found {exchange!r}")
    if exchange == "fitted" and not isinstance(mf, _DFHF):
        raise InputError("exchange='fitted' needs density fitting: call .density_fit() on the object first")
    if exchange in ("auto", "seminumerical") and backend not in ("auto", "cpu"):
        raise InputError(f"exchange={exchange!r} runs on the CPU, found backend={backend!r}")
    if exchange in ("direct", "seminumerical") and (users := users_jk(mf)):
        raise UnsupportedError(
            f"exchange={exchange!r} would pass over {users}, which computes J and K in its own way: leave exchange out "
            "to have it called, or accelerate an object without it"
        )


def users_jk(mf: Any) -> str:
    """Return in words which method of the user computes J and K of an object that has no layer of ours, or ""."""
    users = users_method(mf, "get_jk", "get_j", "get_k")
    if users or not isinstance(mf, _DFHF):
        return users
    return users_method(mf, "get_jk", below=_DFHF) or users_method(mf.with_df, "get_jk", "loop")


def is_seminumerical(mf: Any, mol: Any, exchange: str | None) -> bool:
    """Return whether K of a molecule is computed on a grid."""
    if exchange != "auto":
        return exchange == "seminumerical"
    if users_jk(mf):
        return False
    return is_cheaper(mol, _fitting_functions(mf, mol).nao_nr() if isinstance(mf, _DFHF) else 0)


def _fitting_functions(mf: Any, mol: Any) -> gto.Mole:
    return df.addons.make_auxmol(mol, mf.with_df.auxbasis)


def refuse_hessians() -> None:
    """Raise the error for second derivatives of seminumerical exchange."""
    raise UnsupportedError(
        "there are no Hessians with seminumerical exchange: compute them with exchange='fitted' (after .density_fit()) "
        "or exchange='direct', starting from this object's density"
    )


def refuse_correlated_gradients(mf: Any) -> None:
    """Raise UnsupportedError for gradients of a correlated method whose SCF object computes K on a grid.

    The response of its orbitals would be that of another K.
    """
    if getattr(mf, "exchange", None) in ("auto", "seminumerical") and is_seminumerical(mf, mf.mol, mf.exchange):
        raise UnsupportedError(
            "gradients of MP2 and double hybrids take orbitals with exact or fitted exchange, found seminumerical "
            "exchange: accelerate the SCF object with exchange='fitted' (after .density_fit()) or exchange='direct'"
        )


class EarlyGrid:
    """The grid of K in the cycles of one SCF: a coarse one until the density has nearly settled. `level` is that of the
    next K.

    An SCF whose threshold is at most LOOSEST ends with cycles on the usual grid, since its density then changes by less
    than SETTLED. At the limit of cycles, `max_cycle`, the last orbitals and the energy are those of the usual grid.
    """

    def __init__(self, max_cycle: int) -> None:
        self.level, self._left = EARLY_LEVEL, max_cycle - 1
        self._last: np.ndarray | None = None

    @staticmethod
    def suits(mf: Any, dm0: Any) -> bool:
        """Return whether the SCF of an object may begin on a coarse grid."""
        return dm0 is None and mf.conv_tol <= LOOSEST and mf.max_cycle >= FEWEST_CYCLES

    def observe(self, dm: Any) -> None:
        """Choose the level for the density of the next cycle."""
        dm = np.array(dm)
        if self._last is not None and np.linalg.norm(dm - self._last) < SETTLED * np.linalg.norm(dm):
            self.level = LEVEL
        if self._left <= 0:
            self.level = LEVEL
        self._last, self._left = dm, self._left - 1


def check_programs(exchange: SeminumericalExchange, kernels: str, derivative: bool) -> None:
    """Raise UnsupportedError where kernels="cached" and a program of K on a grid, or of its gradient, is not compiled.

    Otherwise programs are compiled when they are first used: PySCF's exact K would differ from K on a grid by the error
    of the grid, which the SCF would see as a change of the density.
    """

    def programs() -> needs.Programs:
        return programs_for(exchange.mol, exchange.operator.name, int(derivative))

    if kernels == "cached" and not background.Needed(programs, "cached").ready():
        raise UnsupportedError(
            "kernels='cached' compiles nothing, and kernels of seminumerical exchange are missing: use kernels='wait'"
        )
