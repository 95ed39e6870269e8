"""How long PySCF takes for J and K of a molecule, estimated before it computes them."""

from __future__ import annotations

import time

import numpy as np
from pyscf import gto, lib
from pyscf.gto.moleintor import getints, make_cintopt

# Blocks of quartets whose integrals are timed, and the shells of each side of a block. Together they take about 20 ms.
BLOCKS, SHELLS = 64, 4


def seconds_of_jk(mol: gto.Mole) -> float:
    """Estimate the wall-clock seconds of J and K of one density from the time of a sample of the integrals.

    The result was 1.0 to 1.25 times the seconds on idle cores for water to caffeine in STO-3G to cc-pVTZ. It is larger
    for large molecules, because quartets that PySCF leaves out count like all others.
    """
    name = mol._add_suffix("int2e")
    arrays = mol._atm, mol._bas, mol._env
    optimizer = make_cintopt(*arrays, name)
    shells = min(SHELLS, mol.nbas)
    blocks = np.random.default_rng(0).integers(mol.nbas - shells + 1, size=(BLOCKS, 4)).tolist()
    # Threads would wait for each other longer than these blocks take.
    with lib.with_omp_threads(1):
        begin = time.thread_time()
        for starts in blocks:
            edges = tuple(edge for start in starts for edge in (start, start + shells))
            getints(name, *arrays, shls_slice=edges, cintopt=optimizer)
        each = (time.thread_time() - begin) / (BLOCKS * shells**4)
    return float(each * mol.nbas**4 / 8 / lib.num_threads())
