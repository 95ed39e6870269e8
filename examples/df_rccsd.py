#!/usr/bin/env python
"""Coupled cluster of closed shells with fitted integrals, from its equations as text: examples/df_rccsd.txt.

    python -m examples.df_rccsd benzene --basis cc-pvdz --memory-limit 250e6

prints the iterations and the energy of PySCF's ``cc.dfccsd``. No integral with three or four virtual orbitals is kept:
each iteration forms them from the fitted factors, those of four a tile at a time.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import scf
from pyscf.ao2mo import _ao2mo
from pyscf.cc import ccsd, dfccsd

import trnqc
from trnqc.contraction import einsum_plan, parse
from trnqc.contraction.ranks.checkpoint import IterationCheckpoint
from trnqc.errors import NotConverged, TrnqcError
from trnqc.interfaces.continuing import Extrapolation, molecule_words, with_orbitals
from trnqc.mp2.reference.molecule import build_mole, load_geometry

HERE = Path(__file__).parent
EQUATIONS = (HERE / "df_rccsd.txt").read_text(encoding="utf-8")
OUTPUTS = ("n1", "n2", "energy")

Arrays = dict[str, np.ndarray]


def factors(with_df: Any, coefficients: np.ndarray, nocc: int) -> Arrays:
    """Fitted factors B[Q, p, q] of the occupied and virtual orbitals ``coefficients`` [nao, nmo].

    Parameters
    ----------
    with_df : pyscf.df.DF
        Its fitted integrals.
    coefficients : numpy.ndarray
        Occupied orbitals, then virtual ones.
    nocc : int
        Number of occupied orbitals.
    """
    orbitals, nmo = np.asarray(coefficients, order="F"), coefficients.shape[1]
    o, v = slice(0, nocc), slice(nocc, None)
    blocks: dict[str, list[np.ndarray]] = {"Boo": [], "Bov": [], "Bvv": []}
    for rows in with_df.loop():
        b = _ao2mo.nr_e2(rows, orbitals, (0, nmo, 0, nmo), aosym="s2", mosym="s1").reshape(-1, nmo, nmo)
        for name, part in (("Boo", b[:, o, o]), ("Bov", b[:, o, v]), ("Bvv", b[:, v, v])):
            blocks[name].append(part.copy())
    return {name: np.concatenate(parts) for name, parts in blocks.items()}


def operands(cc: dfccsd.RCCSD) -> Arrays:
    """The operands of the plan but the amplitudes, for the orbitals and the fitted integrals of an object of PySCF."""
    coefficients, nocc = ccsd._mo_without_core(cc, cc.mo_coeff), cc.nocc
    fock = coefficients.T @ cc._scf.get_fock() @ coefficients
    fock = (fock + fock.T) / 2
    o, v = slice(0, nocc), slice(nocc, None)
    energies = fock.diagonal()
    d1 = energies[o, None] - energies[v]
    d2 = d1[:, None, :, None] + d1[None, :, None, :]
    blocks = {"foo": fock[o, o], "fov": fock[o, v], "fvv": fock[v, v], "d1": d1, "d2": d2}
    return factors(cc.with_df, coefficients, nocc) | {name: np.ascontiguousarray(x) for name, x in blocks.items()}


def solve(
    cc: dfccsd.RCCSD,
    threshold: float = 1e-9,
    change_threshold: float = 1e-6,
    most: int = 60,
    memory_limit: int | None = None,
    progress: Callable[[str], None] = print,
    checkpoint: IterationCheckpoint | None = None,
) -> tuple[float, np.ndarray, np.ndarray]:
    """Solve for the amplitudes.

    Parameters
    ----------
    cc : pyscf.cc.dfccsd.RCCSD
        Reference, frozen orbitals and fitted integrals.
    threshold, change_threshold : float
        Change of the energy in Hartree, and norm of the change of the amplitudes, at which the iterations end.
    most : int
        Largest number of iterations.
    memory_limit : int, optional
        Bytes for the temporaries of an iteration.
    progress : callable
        Takes a line for each iteration.
    checkpoint : IterationCheckpoint, optional
        Where each iteration is kept, and from where it continues.

    Returns
    -------
    tuple
        Correlation energy in Hartree, t1[i, a] and t2[i, j, a, b].

    Raises
    ------
    NotConverged
        If the energy changes still after the last iteration.
    trnqc.errors.MemoryLimit
        If the limit is too small; the message states one that would do.
    """
    arrays = operands(cc)
    t1 = arrays["fov"] / arrays["d1"]
    t2 = np.einsum("Qia,Qjb->ijab", arrays["Bov"], arrays["Bov"], optimize=True) / arrays["d2"]
    program = parse(EQUATIONS).shaped({name: arrays[name].shape for name in ("Bov", "d1")})
    plan = einsum_plan(program, outputs=OUTPUTS, memory_limit=memory_limit)
    kept: dict[str, Any] = {}
    if checkpoint:
        checkpoint.begin(plan, arrays)
        kept = checkpoint.arrays
    t1, t2, before, change = (
        kept.get("t1", t1),
        kept.get("t2", t2),
        kept.get("energy", np.inf),
        kept.get("change", np.inf),
    )
    extrapolation = Extrapolation(kept)
    for number in range(int(kept.get("iteration", 0)) + 1, most + 1):
        new = plan.run(arrays | {"t1": t1, "t2": t2})
        # The energy is that of the amplitudes before this iteration.
        energy, last = float(new["energy"]), change
        vector, old = (np.concatenate([x.ravel(), y.ravel()]) for x, y in ((new["n1"], new["n2"]), (t1, t2)))
        error = np.subtract(vector, old, out=old)
        change = float(np.linalg.norm(error))
        progress(f"{number:3d}  {energy:.10f}  {change:.1e}")
        if abs(energy - before) < threshold and last < change_threshold:
            return energy, t1, t2
        before, both = energy, extrapolation.update(vector, error)
        t1, t2 = both[: t1.size].reshape(t1.shape), both[t1.size :].reshape(t2.shape)
        if checkpoint:
            state = {"t1": t1, "t2": t2, "energy": before, "change": change, "iteration": number}
            checkpoint.keep(**state, **extrapolation.arrays)
    raise NotConverged(f"the energy of coupled cluster did not stand after {most} iterations; last change {change:.1e}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("molecule", nargs="?", default="water", help="name of a molecule, or an xyz file")
    parser.add_argument("--basis", default="cc-pvdz")
    parser.add_argument("--frozen", type=int, default=0, help="number of occupied orbitals that are not correlated")
    parser.add_argument("--memory-limit", type=float, help="bytes for the temporaries of an iteration")
    parser.add_argument("--checkpoint", metavar="FILE.npz", help="amplitudes, from which a killed job continues")
    parser.add_argument("--checkpoint-every", type=float, default=0, metavar="SECONDS", help="between two writes")
    options = parser.parse_args(arguments)
    mol = build_mole(load_geometry(options.molecule), options.basis)
    checkpoint = None
    if options.checkpoint:
        words = molecule_words(mol) | {"frozen orbitals": options.frozen}
        checkpoint = IterationCheckpoint(options.checkpoint, words, every=options.checkpoint_every)
    mf = with_orbitals(trnqc.accelerate(scf.RHF(mol)), checkpoint)
    cc = dfccsd.RCCSD(mf, frozen=options.frozen or None)
    limit = int(options.memory_limit) if options.memory_limit else None
    energy, _, _ = solve(cc, memory_limit=limit, checkpoint=checkpoint)
    reference = cc.run(conv_tol=1e-9, conv_tol_normt=1e-7).e_corr
    print(f"E(DF-CCSD) correlation  {energy:.9f} Hartree, PySCF {reference:.9f}, difference {energy - reference:.1e}")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except TrnqcError as error:
        sys.exit(f"error: {error}")
