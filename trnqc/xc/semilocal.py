"""Electrons, energies and potentials of density functionals on the blocks of a grid.

blocks -> densities on points (quadrature.py) -> functional (libxc) -> sums over points, potentials -> sums over ranks
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.ranks import ALONE, Ranks
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.densities import DensityMatrix
from trnqc.xc.quadrature import Quadrature
from trnqc.xc.response import functional_of


def semilocal(
    ni: Any,
    blocks: Blocks,
    xc_code: str,
    kind: str,
    densities: Sequence[DensityMatrix],
    spins: int,
    seconds: dict[str, float] | None = None,
    ranks: Ranks = ALONE,
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return electrons [spins, sets], energies [sets] and potentials [spins sets, nao, nao], in Hartree.

    `ni` evaluates the functional of a `kind` in `trnqc.xc.densities.VARIABLES`. Densities of one spin follow those of
    the other. `seconds` are as in `Quadrature`. Each of several `ranks` passes its share of the blocks, and all have
    the sums.
    """
    sets = len(densities) // spins
    alone = functional_of(ni)
    electrons, energies = np.zeros((spins, sets, len(blocks.blocks))), np.zeros((sets, len(blocks.blocks)))

    def derivatives(block: PointBlock, rho: np.ndarray) -> np.ndarray:
        weights = blocks.weights[block.span]
        weighted = np.empty_like(rho)
        by_spin, out = (a.reshape(spins, sets, *a.shape[1:]) for a in (rho, weighted))
        for n in range(sets):
            of_set = by_spin[:, n, 0] if kind == "LDA" else by_spin[:, n]
            by_point = of_set if spins == 2 else of_set[0]
            with alone:
                exc, vxc = ni.eval_xc_eff(xc_code, by_point, deriv=1, xctype=kind, spin=spins - 1)[:2]
            number = by_spin[:, n, 0] * weights
            electrons[:, n, block.number] = number.sum(axis=1)
            energies[n, block.number] = number.sum(axis=0) @ exc
            out[:, n] = (weights * vxc).reshape(out[:, n].shape)
        return weighted

    quadrature = Quadrature(blocks, kind, lib.num_threads(), {} if seconds is None else seconds)
    potentials = quadrature.potentials(densities, derivatives)
    parts = electrons.sum(axis=2), energies.sum(axis=1), potentials
    sums = ranks.sum(np.concatenate([part.ravel() for part in parts]))
    ends = np.cumsum([part.size for part in parts])[:-1]
    n, energy, v = (total.reshape(part.shape) for total, part in zip(np.split(sums, ends), parts))
    return n, energy, v
