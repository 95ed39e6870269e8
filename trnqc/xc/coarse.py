"""Exchange and correlation of one SCF on coarse grids, corrected by what a full grid gave for an earlier density.

density -> integrals on the coarse grid -> + (full - coarse) of an earlier density, to first order in the change since

The correction changes slowly: its error is about c |D - D0| / |D|, where c is the size of the correction itself and D0
the earlier density. With both as orbital gradients, the factor was 0.3 to 4 for caffeine, benzene, water, LiF with NaCl
and triplet O2 with def2-SVP to aug-cc-pVDZ, and up to 7 for water with r2SCAN/6-31G (tests/xc/test_coarse.py compares).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf.data.elements import _std_symbol_without_ghost, charge
from pyscf.dft import gen_grid

from trnqc.xc.grids import accelerate_grids

# Points of a coarse grid beyond this share of the full grid's do not pay.
SHARE = 0.4
# Radial shells that a coarse grid has beside those of PySCF's level 0, with that level's angular grids.
MORE_SHELLS = 10

# `Blocks.CUTOFF` on coarse grids. It changes the energy of caffeine by 1e-9 Hartree, and its potential by 1e-7.
SCREENING = 1e-6

# Electrons, energy and potential, as PySCF's nr_rks, nr_uks and nr_nlc_vxc return them.
Integrals = tuple[Any, Any, Any]


@dataclass(frozen=True, eq=False)
class Correction:
    """The energy and the potential on the full grid less those on the coarse one, for a density."""

    density: np.ndarray
    energy: float
    potential: np.ndarray

    def energy_at(self, density: np.ndarray) -> float:
        """The correction of the energy of another density, to first order."""
        return self.energy + float(np.sum(self.potential * (density - self.density)))

    def relative_change(self, density: np.ndarray) -> float:
        """|D - D0| / |D|."""
        return float(np.linalg.norm(density - self.density) / np.linalg.norm(density))


@dataclass(frozen=True, eq=False)
class _Last:
    """What was asked for last on a grid: the density, how to integrate it on a grid, and the integrals returned."""

    density: np.ndarray
    compute: Callable[[Any], Integrals]
    coarse: Integrals
    returned: Integrals


class CoarseIntegrals:
    """Replaces the integrals on full grids by those on coarse ones while `active`.

    A grid for nonlocal correlation has a coarse grid and a correction of its own.
    """

    def __init__(self) -> None:
        self.active = False
        self._coarse: dict[int, Any] = {}
        self._last: dict[int, _Last] = {}
        self._corrections: dict[int, Correction] = {}

    @property
    def corrected(self) -> bool:
        """Whether the integrals have a correction."""
        return bool(self._corrections)

    def integrals(self, grids: Any, dm: Any, compute: Callable[[Any], Integrals]) -> Integrals:
        """Return compute(grids), or its approximation from the coarse grid.

        `dm` is the density matrix [nao, nao], or those of both spins [2, nao, nao].
        """
        if not self.active:
            return compute(grids)
        key, density = id(grids), np.asarray(dm)
        if key in self._last and np.array_equal(self._last[key].density, density):
            electrons, energy, potential = self._last[key].returned
            return electrons, energy, potential.copy()  # The caller adds J and K to it.
        if key not in self._coarse:
            self._coarse[key] = coarse_grid(grids)
        coarse = compute(self._coarse[key])
        electrons, energy, potential = coarse
        if correction := self._corrections.get(key):
            energy = energy + correction.energy_at(density)
            potential = potential + correction.potential
        returned = electrons, energy, potential
        self._last[key] = _Last(density, compute, coarse, returned)
        return electrons, energy, potential.copy()

    def refine(self, grids: tuple[Any, ...]) -> tuple[float, np.ndarray]:
        """Integrate the last density on those of the full grids that were replaced, and correct from here on.

        Returns what this adds to the energy and to the potential that were returned for this density.
        """
        energy, potential = 0.0, np.zeros(())
        for full in grids:
            last = self._last.pop(id(full), None)
            if last is None:
                continue
            exact = last.compute(full)
            self._corrections[id(full)] = Correction(
                last.density, float(exact[1] - last.coarse[1]), exact[2] - last.coarse[2]
            )
            energy += float(exact[1] - last.returned[1])
            potential = potential + (exact[2] - last.returned[2])
        return energy, potential

    def correction(self) -> np.ndarray:
        """The correction of the potential."""
        total = np.zeros(())
        for one in self._corrections.values():
            total = total + one.potential
        return total

    def relative_change(self) -> float:
        """|D - D0| / |D| of the last density, the largest one of all grids."""
        pairs = ((self._corrections[key], last) for key, last in self._last.items() if key in self._corrections)
        return max((one.relative_change(last.density) for one, last in pairs), default=0.0)


def coarse_grid(grids: Any) -> Any:
    """Return a grid for the same molecule with fewer points, as little as the first cycles of an SCF need.

    It has PySCF's angular grids of level 0 and a few more radial shells than these; its other settings are those of
    `grids`.
    """
    mol = grids.mol
    coarse = accelerate_grids(gen_grid.Grids(mol), getattr(grids, "kernels", None))
    for name in ("radi_method", "prune", "becke_scheme", "radii_adjust", "atomic_radii"):
        setattr(coarse, name, getattr(grids, name))
    symbols = {mol.atom_symbol(atom) for atom in range(mol.natm)}
    coarse.atom_grid = {symbol: _points_of(charge(_std_symbol_without_ghost(symbol))) for symbol in symbols}
    coarse.screening = SCREENING
    return coarse.build(with_non0tab=True)


def _points_of(number: int) -> tuple[int, int]:
    """The radial shells and the points of each for an element."""
    return int(gen_grid._default_rad(number, 0)) + MORE_SHELLS, int(gen_grid._default_ang(number, 0))


def is_worth(grids: Any) -> bool:
    """Whether the coarse grid of a grid has much fewer points, by the sizes of both before pruning."""
    mol = grids.mol
    numbers = [charge(_std_symbol_without_ghost(mol.atom_symbol(atom))) for atom in range(mol.natm)]
    return sum(int(np.prod(_points_of(number))) for number in numbers) < SHARE * grids.size
