"""What a DF-MP2 job keeps on disk: in a checkpoint from which it goes on after a kill, or in unnamed files.

    DIR/job.json       what is computed, in words; a checkpoint of another job is refused with what differs
    DIR/orbitals.chk   the converged SCF, in PySCF's format
    DIR/integrals.h5   (ia|P) until it is fitted
    DIR/factors.h5     B[nocc, nvir, naux]
    DIR/records.jsonl  what is finished, with checksums; energies of finished blocks of pairs
    DIR/lock           held by the job while it runs

Every record carries a number that stands for all decisions it rests on (orbitals, block sizes). If one of these
decisions is lost and comes out otherwise, records that rest on it no longer count, so that old and new work is never
mixed.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from pyscf import gto
from pyscf.lib import chkfile

from trnqc import __version__
from trnqc.errors import CheckpointError, StorageError
from trnqc.host.files import Records, hold, replacing, write_aside
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.disk_arrays import DiskArray
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.reference.molecule import basis_name, describe
from trnqc.mp2.reference.orbitals import Frozen

# Version of the files of a checkpoint.
FORMAT = 1
# What `orbitals.chk` holds of the SCF.
ORBITALS = ("e_tot", "mo_energy", "mo_coeff", "mo_occ")

Array = TypeVar("Array", bound=DiskArray)


class Store(ABC):
    """Files and records of one job."""

    directory: Path

    def __init__(self, records: Records) -> None:
        self.records, self.key = records, 0

    def decide(self, kind: str, make: Callable[[], Any]) -> Any:
        """Return a value that all later work rests on: the one that is recorded, else make() and record it."""
        recorded = self.recorded(kind)
        value = recorded[-1] if recorded else make()
        if not recorded:
            self.add(kind, value)
        self.key = zlib.crc32(json.dumps({kind: value}, sort_keys=True).encode(), self.key)
        return value

    def recorded(self, kind: str) -> list[Any]:
        """Values that are recorded under the decisions made so far, oldest first."""
        return [r[kind] for r in self.records.entries if r.get("of") == self.key and kind in r]

    def add(self, kind: str, value: Any) -> None:
        """Record a finished piece of work. Raises StorageError."""
        self.records.add(**{kind: value, "of": self.key})

    @abstractmethod
    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        """Open the array `name` of a file, or make it if the file is not usable. Raises StorageError."""

    @abstractmethod
    def remove(self, file: str) -> None:
        """Free the disk space of an array that is not needed any more."""


class Scratch(Store):
    """A store that ends with its arrays. Their files have no name once they are open: not even a kill leaves them."""

    def __init__(self) -> None:
        super().__init__(Records(None))
        self.directory = Path(tempfile.gettempdir())

    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        with tempfile.TemporaryDirectory(prefix="trnqc-", dir=self.directory) as directory:
            return kind.create(Path(directory) / f"{file}.h5", name, shape)

    def remove(self, file: str) -> None:
        """Nothing to do: the space is free when the array is closed."""


class Checkpoint(Store):
    """A store in a directory that this process holds until the end of its context, or until `close`.

    Parameters
    ----------
    directory
        The directory, which is made if it does not exist.
    job
        What is computed, by name, in values that JSON can hold.

    Raises
    ------
    CheckpointError
        If the directory belongs to another job or version, is held by another process, or holds other files.
    StorageError
        If it cannot be written to.
    """

    def __init__(self, directory: str | Path, job: Mapping[str, Any]) -> None:
        self.directory = Path(directory)
        self._refuse_strangers()
        self._lock = hold(self.directory)
        try:
            self._compare({"format": FORMAT, "trnqc": __version__, **job})
            super().__init__(Records(self.directory / "records.jsonl"))
        except BaseException:
            self._lock.close()
            raise

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """Release the directory; arrays that are open stay readable."""
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
        """The SCF that was kept, ORBITALS and ran_on by name. Raises CheckpointError if the file has changed."""
        recorded = self.recorded("orbitals")
        path = self.directory / "orbitals.chk"
        if not recorded:
            return None
        if not path.exists() or zlib.crc32(path.read_bytes()) != recorded[-1]:
            raise CheckpointError(
                f"{path}: is not what was written there, and all of the checkpoint rests on it: remove {self.directory}"
                " and start the job again"
            )
        kept = chkfile.load(str(path), "scf")
        # Earlier versions had J and K of PySCF only, and did not write what made them.
        return {name: kept[name] for name in ORBITALS} | {"ran_on": kept.get("ran_on", b"PySCF").decode()}

    def keep_orbitals(
        self, e_tot: float, mo_energy: np.ndarray, mo_coeff: np.ndarray, mo_occ: np.ndarray, ran_on: str = "PySCF"
    ) -> None:
        """Keep a converged SCF, or check that it is the one that was kept.

        Parameters
        ----------
        ran_on
            In words, what made J and K.

        Raises
        ------
        CheckpointError
            If another SCF was kept.
        """
        mine: dict[str, Any] = dict(zip(ORBITALS, (e_tot, mo_energy, mo_coeff, mo_occ)))
        kept = self.orbitals()
        if kept is not None and not all(np.array_equal(kept[name], mine[name]) for name in ORBITALS):
            path = self.directory / "orbitals.chk"
            raise CheckpointError(
                f"the orbitals are not to the last digit those of the checkpoint (E(HF) {e_tot!r}, there "
                f"{float(kept['e_tot'])!r}): take these, mf.__dict__.update(scf.chkfile.load({str(path)!r}, 'scf')), "
                "or name another directory"
            )
        self.decide("orbitals", lambda: self._write_orbitals(mine | {"ran_on": ran_on}))

    def _write_orbitals(self, orbitals: dict[str, Any]) -> int:
        with replacing(self.directory / "orbitals.chk") as aside:
            chkfile.dump(str(aside), "scf", orbitals)
            return zlib.crc32(aside.read_bytes())

    def _refuse_strangers(self) -> None:
        path = self.directory
        if path.exists() and not path.is_dir():
            raise CheckpointError(f"{path} is a file; a checkpoint is a directory")
        names = {p.name for p in path.iterdir()} if path.exists() else set()
        if "job.json" not in names and {n for n in names if n != "lock" and not n.startswith(".job.json.")}:
            raise CheckpointError(
                f"{path} holds other things ({', '.join(sorted(names)[:3])}) and no checkpoint: name another directory"
            )

    def _compare(self, job: dict[str, Any]) -> None:
        path = self.directory / "job.json"
        if not path.exists():
            write_aside(path, (json.dumps(job, indent=1) + "\n").encode())
            return
        try:
            there = json.loads(path.read_text())
        except ValueError as error:
            raise CheckpointError(
                f"{path}: damaged ({error}): remove {self.directory} and start the job again"
            ) from None
        here = json.loads(json.dumps(job))
        if changed := [name for name in (*there, *here) if there.get(name) != here.get(name)]:
            name = changed[0]
            raise CheckpointError(
                f"{self.directory} is the checkpoint of another job: {name} is {_words(there.get(name))} there and "
                f"{_words(here.get(name))} here: name another directory, or remove this one"
            )


def job_of(mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: Frozen, execution: Execution) -> dict[str, Any]:
    """What a checkpoint says about its job: all that the digits depend on but the orbitals."""
    geometry = describe(mol)
    return {
        "molecule": geometry.formula,
        "coordinates in bohr": mol.atom_coords().tolist(),
        "charge": geometry.charge,
        "basis": basis_name(mol.basis),
        "auxiliary basis": auxiliary.names,
        "frozen orbitals": np.unique(frozen).tolist() if isinstance(frozen, Sequence) else frozen or 0,
        **_pair_step(execution),
        "digest of all shells": _digest(mol, auxiliary.auxmol),
    }


def job_of_factors(factors: Factors, execution: Execution) -> dict[str, Any]:
    """What the checkpoint of a caller's own factors says about its job; reads B once."""
    digest = hashlib.sha256(factors.eps_occ.tobytes() + factors.eps_vir.tobytes())
    for i in range(len(factors.eps_occ)):
        digest.update(np.ascontiguousarray(factors.B[i]).data)
    return {
        "sizes of B": [int(n) for n in factors.shape],
        **_pair_step(execution),
        "digest of B and orbital energies": digest.hexdigest(),
    }


def _pair_step(execution: Execution) -> dict[str, Any]:
    choice = execution.choice
    return {"backend": choice.backend.name, "precision": choice.precision, "fused": execution.fused}


def _digest(*mols: gto.Mole) -> str:
    """Of charges, core potentials and all shells by atom: the order of PySCF's tables differs from run to run."""
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
