"""The two-particle density of MP2 in memory, for small molecules and for programs that need it whole.

t, unrelaxed one-particle density -> products of one-particle densities, and the amplitudes
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.density.one_particle import CorrelationDensity
from trnqc.mp2.reference.spins import SpinOrbitals


def two_particle_density(
    density: CorrelationDensity, amplitudes: np.ndarray | Sequence[np.ndarray], memory: float
) -> np.ndarray | tuple[np.ndarray, ...]:
    """Compute the two-particle density in PySCF's form from the unrelaxed density and the amplitudes of
    `amplitudes`.

    Γ[p, q, r, s] = sum over spins of <p+ r+ s q> is [nmo, nmo, nmo, nmo] for a closed shell, and the blocks aa, ab and
    bb for an open shell, in the order of the integrals (pq|rs). The energy is Σ h_pq D_qp + ½ Σ (pq|rs) Γ_pqrs. Γ is
    the antisymmetrised product of one-particle densities, to first order in the part of MP2, and the amplitudes: Γ_iajb
    = Γ_aibj contains t_ij^ab. Raises MemoryLimit if the density exceeds `memory` bytes.
    """
    blocks = 1 if len(density.spins) == 1 else 3
    needed = 8 * 2 * blocks * density.spins[0].nmo ** 4
    if needed > memory:
        raise MemoryLimit(
            f"the two-particle density needs {gigabytes(needed)} of memory, the limit is {gigabytes(memory)}: raise "
            "max_memory"
        )
    reference = [np.diag(1.0 * spin.occupied) for spin in density.spins]
    if blocks == 1:
        (spin,), (d,), (p,) = density.spins, reference, density.per_spin
        total = 4 * _product(d, d, p, p) - 2 * _exchange(d, p)
        return _add(total, 4 * amplitudes - 2 * amplitudes.swapaxes(2, 3), spin, spin)  # type: ignore[operator,union-attr]
    (alpha, beta), (da, db), (pa, pb) = density.spins, reference, density.per_spin
    aa = _add(_product(da, da, pa, pa) - _exchange(da, pa), amplitudes[0], alpha, alpha)
    bb = _add(_product(db, db, pb, pb) - _exchange(db, pb), amplitudes[2], beta, beta)
    return aa, _add(_product(da, db, pa, pb), amplitudes[1], alpha, beta), bb


def in_atomic_orbitals(density: np.ndarray, left: np.ndarray, right: np.ndarray) -> np.ndarray:
    """Transform Γ[p, q, r, s] to atomic orbitals, with orbitals [nao, nmo] for pq and for rs."""
    return np.einsum("pqrs,ip,jq,kr,ls->ijkl", density, left, left, right, right, optimize=True)


def _product(d: np.ndarray, e: np.ndarray, p: np.ndarray, q: np.ndarray) -> np.ndarray:
    """D_pq E_rs + D_pq Q_rs + P_pq E_rs."""
    return np.multiply.outer(d, e + q) + np.multiply.outer(p, e)


def _exchange(d: np.ndarray, p: np.ndarray) -> np.ndarray:
    """D_ps D_rq + D_ps P_rq + P_ps D_rq."""
    return _product(d, d, p, p).transpose(0, 3, 2, 1)


def _add(total: np.ndarray, t: np.ndarray, left: SpinOrbitals, right: SpinOrbitals) -> np.ndarray:
    """Add amplitudes t[i, j, a, b] to the elements iajb and aibj."""
    i, a, j, b = left.active_occ, left.active_vir, right.active_occ, right.active_vir
    total[np.ix_(i, a, j, b)] += t.transpose(0, 2, 1, 3)
    total[np.ix_(a, i, b, j)] += t.transpose(2, 0, 3, 1)
    return total
