"""Coupled cluster that continues from a checkpoint: its orbitals, and the vectors of its extrapolation.

Amplitudes belong to orbitals to the last sign, which a second SCF does not reproduce. A checkpoint
(`trnqc.contraction.ranks.checkpoint`) therefore keeps the orbitals too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.contraction.ranks.checkpoint import IterationCheckpoint
from trnqc.mp2.checkpoint import ORBITALS, digest_of_shells
from trnqc.mp2.reference.molecule import basis_name, describe


def molecule_words(mol: gto.Mole) -> dict[str, Any]:
    """The molecule and its basis, as the problem of a checkpoint."""
    geometry = describe(mol)
    return {
        "molecule": geometry.formula,
        "charge": geometry.charge,
        "coordinates in bohr": mol.atom_coords().tolist(),
        "basis": basis_name(mol.basis),
        "digest of all shells": digest_of_shells(mol),
    }


def with_orbitals(mf: Any, checkpoint: IterationCheckpoint | None) -> Any:
    """Return a mean-field object of PySCF with the converged orbitals of a checkpoint, else run it and keep them.

    Rank 0 makes this call.
    """
    if checkpoint is None:
        return mf.run(conv_tol=1e-12)
    if all(name in checkpoint.arrays for name in ORBITALS):
        kept = {name: checkpoint.arrays[name] for name in ORBITALS}
        mf.__dict__.update(kept | {"e_tot": float(kept["e_tot"]), "converged": True})
        return mf
    mf.run(conv_tol=1e-12)
    checkpoint.keep(**{name: getattr(mf, name) for name in ORBITALS})
    return mf


class Extrapolation:
    """Direct inversion in the iterative subspace.

    Parameters
    ----------
    kept : mapping, optional
        The `arrays` of an earlier object, from which this one continues. Other names are passed over.
    space : int
        Largest number of vectors.
    """

    def __init__(self, kept: Mapping[str, Any] | None = None, space: int = 6) -> None:
        self._diis, self._updates = lib.diis.DIIS(), 0
        self._diis.space = space
        kept = {} if kept is None else kept
        number = 0
        while f"diis_x{number}" in kept:
            self.update(kept[f"diis_x{number}"], kept[f"diis_e{number}"])
            number += 1

    def update(self, vector: np.ndarray, error: np.ndarray) -> np.ndarray:
        """Return the extrapolated vector [n] from a new vector [n], its error [n] and those before."""
        self._updates += 1
        return self._diis.update(vector, error)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        """The vectors ``diis_x0`` ... and their errors ``diis_e0`` ..., the oldest first."""
        count = self._diis.get_num_vec()
        # Update number k has its vectors in place k % space.
        places = [k % self._diis.space for k in range(self._updates - count, self._updates)]
        vectors = {f"diis_x{n}": np.asarray(self._diis.get_vec(place)) for n, place in enumerate(places)}
        return vectors | {f"diis_e{n}": np.asarray(self._diis.get_err_vec(place)) for n, place in enumerate(places)}
