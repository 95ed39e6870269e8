"""Seconds of each task that ranks share, on one thread; projections to more ranks start from them."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.memory import plan_factors
from trnqc.mp2.factors.metric import metric_of
from trnqc.mp2.factors.shell_blocks import HalfFitted
from trnqc.mp2.pairs.block_energies import block_energies
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.blocks import pair_blocks
from trnqc.mp2.partition.distribution import set_width
from trnqc.mp2.reference.molecule import build_mole, load_geometry
from trnqc.mp2.reference.orbitals import active_orbitals, chemical_core


def measured(title: str) -> dict[str, Any]:
    """title: molecule/basis. Orbitals are those of the kinetic energy: their values change no time."""
    name, _, basis = title.partition("/")
    mol = build_mole(load_geometry(name), basis)
    core, occupied = chemical_core(mol), mol.nelectron // 2
    energies, c = np.linalg.eigh(mol.intor("int1e_kin"))
    energies = np.concatenate((-1 - energies[:occupied][::-1], 1 + energies[occupied:]))
    orbitals = active_orbitals(c, energies, np.where(np.arange(len(c)) < occupied, 2.0, 0.0), core)
    execution = Execution(choose("cpu", "fp64"), fused=False)
    auxmol = auxiliary_basis(mol, None).auxmol
    width = plan_factors(auxmol, (orbitals,), execution).width
    half = HalfFitted(mol, auxmol, (orbitals,), width)
    B, columns = np.empty(half.shape), []
    with single_threaded_pool(1) as pool:
        for number, (p0, p1) in enumerate(half.columns):
            seconds = pool.submit(half.fill, number, B[:, :, p0:p1]).result()
            columns.append({"functions": p1 - p0, "integrals_s": seconds[0], "transformation_s": seconds[1]})
        start = time.perf_counter()
        metric = metric_of(half.auxmol)
        metric_s = time.perf_counter() - start
        start = time.perf_counter()
        list(pool.map(metric.fit_rows, list(B)))
        fit_s = time.perf_counter() - start
    factors, blocks = Factors(B, orbitals.eps_occ, orbitals.eps_vir), []
    for block in pair_blocks(orbitals.nocc, set_width(*B.shape)):
        start = time.perf_counter()
        block_energies(block, B[block.rows], B[block.columns], PairSector(factors), execution)
        blocks.append({"cost": block.cost(*B.shape[1:]), "seconds": time.perf_counter() - start})
    return {
        "case": title,
        "nao": len(c),
        "nocc": orbitals.nocc,
        "nvir": orbitals.nvir,
        "naux": half.shape[2],
        "ran_on": half.ran_on,
        "columns": columns,
        "metric_s": metric_s,
        "fit_s": fit_s,
        "blocks": blocks,
    }
