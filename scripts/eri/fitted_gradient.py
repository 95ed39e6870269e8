"""Gradients of sum G_ijP (ij|P): ours against PySCF's derivative integrals and their sums with the same weights G."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import numpy as np
from pyscf import df, gto, lib

from trnqc.eri.compiled.programs import words
from trnqc.eri.gradient.three_centre import three_centre_gradient
from trnqc.eri.gradient.three_centre_pass import CUTOFF
from trnqc.mp2.reference.molecule import build_mole, load_geometry

# Fitting functions of a block of PySCF's integrals.
FUNCTIONS = 64
# Different weights: those of fitting function P are number P modulo this.
WEIGHTS = 8

Clocks = np.ndarray


def fitted_gradient(molecule: str, basis: str, aux: str, threads: int) -> dict[str, Any]:
    """Wall and CPU seconds of one run by contestant without the time that weights take, and the largest difference."""
    mol = build_mole(load_geometry(molecule), basis)
    auxmol = df.make_auxmol(mol, aux)
    weights = np.random.default_rng(0).standard_normal((mol.nao, mol.nao, WEIGHTS))
    weights += weights.transpose(1, 0, 2)
    before = lib.num_threads()
    lib.num_threads(threads)
    try:
        _ours(mol, auxmol, weights, threads)  # compiles the kernels
        seconds, gradients = zip(*(contestant(mol, auxmol, weights, threads) for contestant in (_ours, _pyscf)))
    finally:
        lib.num_threads(before)
    by_name = dict(zip(("trnqc", "PySCF"), seconds))
    return {
        "case": f"{molecule}/{basis}/{aux}",
        "nao": mol.nao_nr(),
        "naux": auxmol.nao_nr(),
        "threads": threads,
        "cutoff": CUTOFF,
        "ran_on": words(),
        "wall_s": {who: float(one[0]) for who, one in by_name.items()},
        "cpu_s": {who: float(one[1]) for who, one in by_name.items()},
        "ratio": {clock: float(by_name["PySCF"][n] / by_name["trnqc"][n]) for n, clock in enumerate(("wall", "cpu"))},
        "max_error": float(np.abs(gradients[0] - gradients[1]).max()),
    }


def _now() -> Clocks:
    return np.array([time.perf_counter(), time.process_time()])


def _ours(mol: gto.Mole, auxmol: gto.Mole, weights: np.ndarray, threads: int) -> tuple[Clocks, np.ndarray]:
    in_weights = np.zeros(2)

    def density(functions: np.ndarray) -> np.ndarray:
        nonlocal in_weights
        start = _now()
        block = np.ascontiguousarray(weights[:, :, functions % WEIGHTS])
        in_weights += _now() - start
        return block

    start = _now()
    gradient = three_centre_gradient(mol, auxmol, density, threads=threads)
    return _now() - start - in_weights, gradient


def _pyscf(mol: gto.Mole, auxmol: gto.Mole, weights: np.ndarray, threads: int) -> tuple[Clocks, np.ndarray]:
    both, elapsed = gto.conc_mol(mol, auxmol), np.zeros(2)
    orbitals, fitting = np.zeros((mol.nao_nr(), 3)), np.zeros((auxmol.nao_nr(), 3))
    loc = auxmol.ao_loc_nr()
    for first, last in _blocks(auxmol):
        functions = np.arange(loc[first], loc[last])
        block = np.asfortranarray(weights[:, :, functions % WEIGHTS])
        packed = lib.pack_tril(np.ascontiguousarray(block.transpose(2, 0, 1)))
        # A pair i > j stands for two elements.
        packed *= np.where(np.equal(*np.tril_indices(mol.nao_nr())), 1.0, 2.0)
        shells = (0, mol.nbas, 0, mol.nbas, mol.nbas + first, mol.nbas + last)
        start = _now()
        derivatives = both.intor("int3c2e_ip1", comp=3, aosym="s1", shls_slice=shells)
        orbitals -= 2 * np.einsum("xijp,ijp->ix", derivatives, block)
        derivatives = both.intor("int3c2e_ip2", comp=3, aosym="s2ij", shls_slice=shells)
        fitting[functions] -= np.einsum("xtp,pt->px", derivatives, packed)
        elapsed += _now() - start
    parts = ((mol, orbitals), (auxmol, fitting))
    gradient = sum(np.array([rows[i:j].sum(axis=0) for i, j in one.aoslice_by_atom()[:, 2:]]) for one, rows in parts)
    return elapsed, np.asarray(gradient)


def _blocks(auxmol: gto.Mole) -> Iterator[tuple[int, int]]:
    loc, first = auxmol.ao_loc_nr(), 0
    for last in range(1, auxmol.nbas + 1):
        if last == auxmol.nbas or loc[last + 1] - loc[first] > FUNCTIONS:
            yield first, last
            first = last
