"""A directory from which an interrupted DF-MP2 job continues.

    DIR/job.json       description of the job, which must be the same when it continues
    DIR/orbitals.chk   the converged SCF, in PySCF's format
    DIR/integrals.h5   (ia|P) until it is fitted
    DIR/factors.h5     B[nocc, nvir, naux]
    DIR/gamma-0.h5     Γ[nocc, nvir, naux] of densities and gradients, and gamma-1.h5 of β spin
    DIR/records.jsonl  finished work with checksums, and the energies of finished blocks of pairs
    DIR/lock           held by the job while it runs

`store` defines how records of finished work depend on one another.
"""

from __future__ import annotations

import hashlib
import json
import logging
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from pyscf import gto
from pyscf.lib import chkfile

from trnqc.errors import CheckpointError, StorageError
from trnqc.host.files import Records, hold, write_aside
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.factors import Factors, SpinFactors, by_spin
from trnqc.mp2.reference.molecule import basis_name, describe
from trnqc.mp2.reference.orbitals import SpinFrozen, frozen_by_spin
from trnqc.mp2.store import Array, JobStore
from trnqc.version import __version__

_log = logging.getLogger(__name__)
# Version of the format of checkpoints.
FORMAT = 1
# The attributes of the SCF object that `orbitals.chk` contains.
ORBITALS = ("e_tot", "mo_energy", "mo_coeff", "mo_occ")


class Checkpoint(JobStore):
    """A store in a directory, created if missing, that this process locks until the end of its context or until
    `close`.

    `job` describes the job by name, in values that can be written to JSON. Raises CheckpointError if the directory
    belongs to another job or version, is locked by another process, or contains other files; StorageError if it cannot
    be written to.
    """

    def __init__(self, directory: str | Path, job: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        self._check_directory()
        self._lock = hold(self.directory)
        try:
            self._begin(job)
            if entries := self.records.entries:
                _log.info("%s: the job continues after %d records of finished work", self.directory, len(entries))
        except BaseException:
            self._lock.close()
            raise

    def _begin(self, job: Mapping[str, Any]) -> None:
        self._compare({"format": FORMAT, "trnqc": __version__, **job})
        super().__init__(Records(self.directory / "records.jsonl"))

    def again(self, job: Mapping[str, Any]) -> Checkpoint:
        """Begin again with the first decision, as after closing and opening, but without giving up the lock. Raises
        CheckpointError for another job.
        """
        self.records.close()
        self._begin(job)
        return self

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Unlock the directory. Open arrays can still be read."""
        self.records.close()
        self._lock.close()

    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        path = self.directory / f"{file}.h5"
        try:
            return kind(path, name, shape)
        except StorageError:
            return kind.create(path, name, shape)

    def remove(self, file: str) -> None:
        (self.directory / f"{file}.h5").unlink(missing_ok=True)

    def orbitals(self) -> dict[str, Any] | None:
        """The recorded SCF, as ORBITALS and ran_on by name, or None. Raises CheckpointError if the file has changed."""
        recorded = self.recorded("orbitals")
        path = self.directory / "orbitals.chk"
        if not recorded:
            return None
        if not path.exists() or zlib.crc32(path.read_bytes()) != recorded[-1]:
            raise CheckpointError(
                f"{path}: the file has changed, and all of the checkpoint depends on it: remove {self.directory} and "
                "start the job again"
            )
        kept = chkfile.load(str(path), "scf")
        fock = {"spin_fock": kept["spin_fock"]} if "spin_fock" in kept else {}
        # Earlier versions had J and K of PySCF only and did not record that.
        return {name: kept[name] for name in ORBITALS} | fock | {"ran_on": kept.get("ran_on", b"PySCF").decode()}

    def keep_orbitals(
        self,
        e_tot: float,
        mo_energy: np.ndarray,
        mo_coeff: np.ndarray,
        mo_occ: np.ndarray,
        ran_on: str = "PySCF",
        spin_fock: np.ndarray | None = None,
    ) -> None:
        """Record a converged SCF; raise CheckpointError if another SCF is recorded already.

        `e_tot` is in Hartree, and `ran_on` describes the code that computed J and K. Semicanonical orbitals of an ROHF
        reference also depend on `spin_fock`, the Fock matrices of both spins.
        """
        mine: dict[str, Any] = dict(zip(ORBITALS, (e_tot, mo_energy, mo_coeff, mo_occ)))
        kept = self.orbitals()
        if kept is not None and not all(np.array_equal(kept[name], mine[name]) for name in ORBITALS):
            path = self.directory / "orbitals.chk"
            raise CheckpointError(
                f"the orbitals are not to the last digit those of the checkpoint (E(HF) {e_tot!r} instead of "
                f"{float(kept['e_tot'])!r}): load those of the checkpoint with "
                f"mf.__dict__.update(scf.chkfile.load({str(path)!r}, 'scf')), or name another directory"
            )
        fock = {} if spin_fock is None else {"spin_fock": spin_fock}
        self.decide("orbitals", lambda: self._write_orbitals(mine | fock | {"ran_on": ran_on}))

    def _write_orbitals(self, orbitals: dict[str, Any]) -> int:
        # HDF5 may crash when it closes a file that could not be written, so that it makes the file in memory.
        with h5py.File("orbitals.chk", "w", driver="core", backing_store=False) as file:
            for name, value in orbitals.items():
                file[f"scf/{name}"] = value
            file.flush()
            contents = file.id.get_file_image()
        write_aside(self.directory / "orbitals.chk", contents)
        return zlib.crc32(contents)

    def _check_directory(self) -> None:
        path = self.directory
        if path.exists() and not path.is_dir():
            raise CheckpointError(f"{path} is a file; a checkpoint is a directory")
        names = {p.name for p in path.iterdir()} if path.exists() else set()
        if "job.json" not in names and {n for n in names if n != "lock" and not n.startswith(".job.json.")}:
            raise CheckpointError(
                f"{path} holds other files ({', '.join(sorted(names)[:3])}) and no checkpoint: name another directory"
            )

    def _compare(self, job: dict[str, Any]) -> None:
        path = self.directory / "job.json"
        if not path.exists():
            write_aside(path, (json.dumps(job, indent=1) + "\n").encode())
            return
        try:
            recorded = json.loads(path.read_text())
            if not isinstance(recorded, dict):
                raise ValueError(f"expected an object of JSON, found {type(recorded).__name__}")
        except ValueError as error:
            raise CheckpointError(
                f"{path}: damaged ({error}): remove {self.directory} and start the job again"
            ) from None
        current = json.loads(json.dumps(job))
        if changed := [name for name in (*recorded, *current) if recorded.get(name) != current.get(name)]:
            name = changed[0]
            raise CheckpointError(
                f"{self.directory} is the checkpoint of another job: {name} is {_words(recorded.get(name))} there and "
                f"{_words(current.get(name))} here: name another directory, or remove this one"
            )


def job_of(
    mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: SpinFrozen, execution: Execution, kind: str = "RHF"
) -> dict[str, Any]:
    """Describe a job for its checkpoint: everything that the digits depend on, except the orbitals. `kind` is "RHF",
    "UHF" or "ROHF".
    """
    geometry = describe(mol)
    open_shell = {"unpaired electrons": geometry.spin, "reference": kind} if kind != "RHF" else {}
    return {
        "molecule": geometry.formula,
        "coordinates in bohr": mol.atom_coords().tolist(),
        "charge": geometry.charge,
        "basis": basis_name(mol.basis),
        "auxiliary basis": auxiliary.names,
        "frozen orbitals": _frozen(frozen),
        **open_shell,
        **_pair_step(execution),
        "digest of all shells": digest_of_shells(mol, auxiliary.auxmol),
    }


def _frozen(frozen: SpinFrozen) -> Any:
    if frozen is None or isinstance(frozen, int | np.integer):
        return int(frozen or 0)
    alpha, beta = frozen_by_spin(frozen)
    lists = [np.unique(np.asarray(spin, dtype=int)).tolist() for spin in (alpha, beta)]
    return lists[0] if alpha is beta else lists


def job_of_factors(factors: Factors | SpinFactors, execution: Execution) -> dict[str, Any]:
    """The description of a job with the caller's own factors, with a digest for which B is read once."""
    parts = by_spin(factors)
    digest = hashlib.sha256(b"".join(part.eps_occ.tobytes() + part.eps_vir.tobytes() for part in parts))
    for part in parts:
        for i in range(len(part.eps_occ)):
            digest.update(np.ascontiguousarray(part.B[i]).data)
    return {
        "sizes of B": [int(n) for part in parts for n in part.shape],
        **_pair_step(execution),
        "digest of B and orbital energies": digest.hexdigest(),
    }


def _pair_step(execution: Execution) -> dict[str, Any]:
    choice = execution.choice
    return {"backend": choice.backend.name, "precision": choice.precision, "fused": execution.fused}


def digest_of_shells(*mols: gto.Mole) -> str:
    """A digest of charges, core potentials and shells by atom, since PySCF's tables differ in order between runs."""
    digest = hashlib.sha256()
    for mol in mols:
        digest.update(repr((mol.cart, mol.atom_charges().tolist(), sorted(mol._ecp.items()))).encode())
        for n in range(mol.nbas):
            digest.update(f"{mol.bas_atom(n)} {mol.bas_angular(n)} {mol.bas_kappa(n)}".encode())
            digest.update(mol.bas_exp(n).tobytes() + mol._libcint_ctr_coeff(n).tobytes())
    return digest.hexdigest()


def _words(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
