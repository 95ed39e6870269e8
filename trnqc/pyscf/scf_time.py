"""How long PySCF takes for an SCF, estimated from samples of its work.

converged SCF object -> PySCF's own code on some auxiliary functions, some points of the grid -> times all of them
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import df
from pyscf.scf import _vhf

from trnqc.eri.integrals import PySCFThreeCentre
from trnqc.pyscf.jk_time import seconds_of_jk

# The share of auxiliary functions and of points in a sample, and the least number of each.
SHARE, FUNCTIONS, POINTS = 0.1, 64, 20_000
# Right-hand sides of the sample of the metric's solve.
COLUMNS = 512
# Atomic orbitals of the sample of J and K from integrals in memory.
ORBITALS = 48
# Potentials that PySCF computes beside one in each cycle: that of the initial guess, and that of the last density.
MORE = 2


def seconds_of_scf(mf: Any, cycles: int) -> dict[str, float]:
    """Estimate the wall-clock seconds of PySCF's integrals, J, K, and exchange and correlation in an SCF.

    Parameters
    ----------
    mf : pyscf.scf.hf.SCF
        A converged object, which may be accelerated. It stays as it is.
    cycles : int
        The cycles that the SCF takes.

    Returns
    -------
    dict
        Seconds by part. What PySCF does beside these parts (solvents, dispersion, linear algebra) is left out, and
        integrals that PySCF screens in later cycles count like those of the first one.
    """
    plain = mf.undo() if hasattr(mf, "undo") else mf
    hybrid, omegas = True, 1
    if hasattr(plain, "xc"):
        omega, full_range, short_range = plain._numint.rsh_and_hybrid_coeff(plain.xc, plain.mol.spin)
        hybrid = plain._numint.libxc.is_hybrid_xc(plain.xc)
        omegas += bool(omega and full_range and short_range)
    calls = cycles + MORE
    if getattr(plain, "with_df", None):
        parts = _fitted(plain, calls, hybrid, omegas)
    else:
        parts = _exact(plain, calls, omegas)
    if hasattr(plain, "xc"):
        parts["exchange and correlation"] = calls * _quadrature(plain)
    return parts


def _seconds(work: Callable[[], Any]) -> float:
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def _sample(count: int, least: int) -> np.ndarray:
    """Numbers of a sample of `count` things, at equal distances."""
    size = min(count, max(least, round(SHARE * count)))
    return np.linspace(0, count - 1, size).astype(int)


def _fitted(plain: Any, calls: int, hybrid: bool, omegas: int) -> dict[str, float]:
    """Seconds of the fitted integrals, and of J and K from them."""
    mol, auxmol = plain.mol, df.addons.make_auxmol(plain.mol, plain.with_df.auxbasis)
    naux, npair = auxmol.nao_nr(), mol.nao_nr() * (mol.nao_nr() + 1) // 2
    three_centre = PySCFThreeCentre(mol, auxmol)
    shells = np.unique(_sample(auxmol.nbas, FUNCTIONS // 2))
    begins = auxmol.ao_loc_nr()

    def integrals() -> None:
        for shell in shells.tolist():
            three_centre.as_pyscf((shell, shell + 1), aosym="s2ij")

    share = float((begins[shells + 1] - begins[shells]).sum()) / naux
    low = np.eye(naux)
    columns = np.ones((naux, min(npair, COLUMNS)), order="F")
    solve = _seconds(lambda: scipy.linalg.solve_triangular(low, columns, lower=True, check_finite=False))
    rows = len(_sample(naux, FUNCTIONS))
    fitting = plain.with_df.copy()
    fitting._cderi = np.zeros((rows, npair))
    density = plain.make_rdm1()
    jk = _seconds(lambda: df.df_jk.get_jk(fitting, density, 1, True, hybrid)) * naux / rows
    if omegas > 1:
        jk += _seconds(lambda: df.df_jk.get_jk(fitting, density, 1, False, True)) * naux / rows
    each = _seconds(integrals) / share + solve * npair / columns.shape[1]
    return {"fitted integrals": omegas * each, "J and K": calls * jk}


def _exact(plain: Any, calls: int, omegas: int) -> dict[str, float]:
    """Seconds of J and K from integrals in memory, or from integrals that every cycle computes again."""
    seconds = omegas * seconds_of_jk(plain.mol)
    if omegas > 1 or not plain._is_mem_enough():
        return {"J and K": calls * seconds}
    nao = min(ORBITALS, plain.mol.nao_nr())
    packed = nao * (nao + 1) // 2
    integrals, density = np.zeros(packed * (packed + 1) // 2), np.eye(nao)
    each = _seconds(lambda: _vhf.incore(integrals, density, 1)) * (plain.mol.nao_nr() / nao) ** 4
    densities = 1 if np.ndim(plain.mo_energy) == 1 else 2
    return {"integrals": seconds, "J and K": calls * each * densities}


def _quadrature(plain: Any) -> float:
    """Seconds of the functional and its potential on the whole grid."""
    from pyscf.dft.gen_grid import BLKSIZE

    grids, density = plain.grids.copy(), plain.make_rdm1()
    runs = -(-plain.grids.coords.shape[0] // BLKSIZE)
    kept = _sample(runs, -(-POINTS // BLKSIZE))
    points = (kept[:, None] * BLKSIZE + np.arange(BLKSIZE)).ravel()
    points = points[points < len(plain.grids.coords)]
    grids.coords, grids.weights = plain.grids.coords[points], plain.grids.weights[points]
    grids.non0tab = grids.screen_index = grids.make_mask(plain.mol, grids.coords)
    integrate = plain._numint.nr_rks if density.ndim == 2 else plain._numint.nr_uks
    seconds = _seconds(lambda: integrate(plain.mol, grids, plain.xc, density))
    return seconds * len(plain.grids.coords) / len(points)
