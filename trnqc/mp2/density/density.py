"""The one-particle density of MP2, unrelaxed or relaxed.

factors -> pair_sums -> unrelaxed density
        -> relaxation -> relaxed density
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyscf import gto

from trnqc.mp2.density.one_particle import CorrelationDensity, check_factors, unrelaxed
from trnqc.mp2.density.pair_sums import pair_sums
from trnqc.mp2.density.relaxation import relax
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.ranks import on_every_rank
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.mp2.response.zvector import DEFAULTS, ZVectorOptions
from trnqc.mp2.store import JobStore


def correlation_density(
    mf: Any,
    spins: Sequence[SpinOrbitals],
    factors: Sequence[Factors],
    auxmol: gto.Mole,
    execution: Execution,
    *,
    scaling: tuple[float, float] = (1.0, 1.0),
    relaxed: bool = False,
    options: ZVectorOptions = DEFAULTS,
    store: JobStore | None = None,
) -> CorrelationDensity:
    """Compute the MP2 correction to the one-particle density; docs/properties.md has the equations.

    The unrelaxed density is that of the amplitudes alone. The relaxed one contains the response of the orbitals of
    PySCF's object `mf`, so that expectation values are derivatives of the energy. `spins` are all orbitals
    (`spin_orbitals`), `factors` are B[i, a, Q] of the correlated orbitals, fitted with `auxmol`, and `scaling` are the
    factors (c_os, c_ss) of the energy, (1, 1) for MP2. The backend of `execution` computes Γ (`pair_sums`, as for
    `store`); all other products run on the host in fp64. Several ranks share the pairs; each of them computes the rest
    and returns the whole density.

    Raises InputError if factors and orbitals do not belong together; NotConverged if the Z-vector equations do not
    converge; TrnqcError if the SCF solution is not a minimum, or a frozen orbital is degenerate with a correlated one;
    MemoryLimit, StorageError.
    """
    spins = tuple(spins)
    if relaxed:
        relaxation = relax(
            mf, spins, factors, auxmol, execution, scaling=scaling, options=options, store=store, for_gradient=False
        )
        return relaxation.density
    check_factors(spins, factors)
    sums = pair_sums(on_every_rank(factors, execution), scaling, execution, store)
    return CorrelationDensity(spins, unrelaxed(spins, sums), sums.energies, relaxed=False)
