"""Two-electron gradients of Hartree-Fock: ours against PySCF's, for one converged density."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
from pyscf import lib, scf

import trnqc
from trnqc.eri.compiled.programs import words
from trnqc.eri.gradient.fitted.half_transform import rows_of
from trnqc.eri.gradient.jk_gradient import exact_jk_gradient, fitted_jk_gradient
from trnqc.mp2.reference.molecule import build_mole, load_geometry


def scf_gradient(molecule: str, basis: str, way: str, threads: int) -> dict[str, Any]:
    """Wall and CPU seconds of one run by contestant, after one of ours that compiles kernels, and their difference.

    way: "fitted" or "direct". Both have the density of a density-fitted SCF, and ours its fitted integrals.
    """
    mol = build_mole(load_geometry(molecule), basis)
    before = lib.num_threads()
    lib.num_threads(threads)
    try:
        mf = trnqc.accelerate(scf.RHF(mol).density_fit(), kernels="wait").run()
        mf.with_df.build()
        _ours(mf, way, threads)
        ours, our_gradient = _timed(_ours, mf, way, threads)
        theirs, their_gradient = _timed(_pyscf, mf, way, threads)
    finally:
        lib.num_threads(before)
    by_name = {"trnqc": ours, "PySCF": theirs}
    return {
        "case": f"{molecule}/{basis}/{way}",
        "nao": mol.nao_nr(),
        "naux": mf.with_df.auxmol.nao_nr(),
        "threads": threads,
        "ran_on": words(),
        "wall_s": {who: one[0] for who, one in by_name.items()},
        "cpu_s": {who: one[1] for who, one in by_name.items()},
        "ratio": {clock: by_name["PySCF"][n] / by_name["trnqc"][n] for n, clock in enumerate(("wall", "cpu"))},
        "max_error": float(np.abs(our_gradient - their_gradient).max()),
    }


def _timed(contestant: Any, *arguments: Any) -> tuple[tuple[float, float], np.ndarray]:
    start = time.perf_counter(), time.process_time()
    gradient = contestant(*arguments)
    return (time.perf_counter() - start[0], time.process_time() - start[1]), gradient


def _ours(mf: Any, way: str, threads: int) -> np.ndarray:
    d = mf.make_rdm1()
    if way == "direct":
        return exact_jk_gradient(mf.mol, d / 2, d, threads=threads)
    fitting = mf.with_df
    return fitted_jk_gradient(mf.mol, fitting.auxmol, d / 2, d, threads=threads, rows=rows_of(fitting))


def _pyscf(mf: Any, way: str, threads: int) -> np.ndarray:
    plain = mf.undo() if way == "fitted" else scf.RHF(mf.mol)
    d = mf.make_rdm1()
    veff = plain.nuc_grad_method().get_veff(mf.mol, d)
    by_function = 2 * np.einsum("xij,ij->ix", veff, d)
    gradient = np.array([by_function[begin:end].sum(axis=0) for begin, end in mf.mol.aoslice_by_atom()[:, 2:]])
    return gradient + getattr(veff, "aux", 0.0)
