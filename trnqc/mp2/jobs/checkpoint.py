"""What a DF-MP2 job keeps on disk: in a checkpoint, from which it goes on after a kill, or in unnamed files.

    DIR/job.json       what is computed, in words; another job is refused with what differs
    DIR/orbitals.chk   the converged SCF, in PySCF's format
    DIR/integrals.h5   (ia|P) until it is fitted
    DIR/factors.h5     B[nocc, nvir, naux]
    DIR/records.jsonl  what of it is done, with checksums; energies of finished blocks of pairs
    DIR/lock           held by the job while it runs

Records of work name by a number all decisions they rest on (orbitals, block sizes): if one of these is lost, what was
made with it is made again rather than mixed with new.
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
from trnqc.host.files import Records, hold, storage_error, write_aside
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.disk_arrays import DiskArray
from trnqc.mp2.jobs.choice import Choice
from trnqc.mp2.reference.molecule import basis_name, describe
from trnqc.mp2.reference.orbitals import Frozen

FORMAT = 1
ORBITALS = ("e_tot", "mo_energy", "mo_coeff", "mo_occ")

Array = TypeVar("Array", bound=DiskArray)


class Store(ABC):
    """Files and records of one job."""

    directory: Path

    def __init__(self, records: Records) -> None:
        self.records, self.key = records, 0

    def decide(self, kind: str, make: Callable[[], Any]) -> Any:
        """A value that all work after it rests on: the one found, else made and recorded."""
        found = self.found(kind)
        value = found[-1] if found else make()
        if not found:
            self.add(kind, value)
        self.key = zlib.crc32(json.dumps({kind: value}, sort_keys=True).encode(), self.key)
        return value

    def found(self, kind: str) -> list[Any]:
        """Values recorded under the decisions made so far, oldest first."""
        return [r[kind] for r in self.records.found if r.get("of") == self.key and kind in r]

    def add(self, kind: str, value: Any) -> None:
        """Record a piece of work that is done; StorageError."""
        self.records.add(**{kind: value, "of": self.key})

    @abstractmethod
    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        """The array `name` of a file: what was left of it, or new. StorageError."""

    @abstractmethod
    def remove(self, file: str) -> None:
        """Give back the space of an array that is not needed any more."""


class Scratch(Store):
    """A store that goes with its arrays: their files have no name as soon as they are open, so that a kill leaves
    nothing behind."""

    def __init__(self) -> None:
        super().__init__(Records(None))
        self.directory = Path(tempfile.gettempdir())

    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        with tempfile.TemporaryDirectory(prefix="trnqc-", dir=self.directory) as directory:
            return kind.create(Path(directory) / f"{file}.h5", name, shape)

    def remove(self, file: str) -> None:
        pass  # its space comes back when the array is closed


class Checkpoint(Store):
    """A store in a directory that this process holds; a context, or closed by `close`.

    job: what is computed, by name, as JSON takes it. Errors: CheckpointError for a directory of another job or version,
    held by another process, or with something else in it; StorageError.
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
        """Give up the directory; arrays that are open stay readable."""
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
        """The SCF that was kept (ORBITALS and ran_on by name), if any; CheckpointError if its file is another."""
        found = self.found("orbitals")
        path = self.directory / "orbitals.chk"
        if not found:
            return None
        if not path.exists() or zlib.crc32(path.read_bytes()) != found[-1]:
            raise CheckpointError(
                f"{path}: is not what was written there, and all of the checkpoint rests on it: remove {self.directory}"
                " and start the job again"
            )
        kept = chkfile.load(str(path), "scf")
        # Before J and K were trnqc's they were PySCF's, and nothing was written about them.
        return {name: kept[name] for name in ORBITALS} | {"ran_on": kept.get("ran_on", b"PySCF").decode()}

    def keep_orbitals(
        self, e_tot: float, mo_energy: np.ndarray, mo_coeff: np.ndarray, mo_occ: np.ndarray, ran_on: str = "PySCF"
    ) -> None:
        """Keep a converged SCF, or find that it is the one kept; CheckpointError if it is another.

        ran_on: what made J and K, in words.
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
        path = self.directory / "orbitals.chk"
        aside = path.with_name("orbitals.new")
        try:
            aside.unlink(missing_ok=True)
            chkfile.dump(str(aside), "scf", orbitals)
        except OSError as error:
            raise storage_error(path, error) from error
        written = aside.read_bytes()
        aside.unlink()
        write_aside(path, written)
        return zlib.crc32(written)

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


def job_of(mol: gto.Mole, auxiliary: AuxiliaryBasis, frozen: Frozen, choice: Choice, fused: bool) -> dict[str, Any]:
    """What a checkpoint of DF-MP2 says about its job; everything that its digits depend on but the orbitals."""
    geometry = describe(mol)
    return {
        "molecule": geometry.formula,
        "coordinates in bohr": mol.atom_coords().tolist(),
        "charge": geometry.charge,
        "basis": basis_name(mol.basis),
        "auxiliary basis": auxiliary.names,
        "frozen orbitals": np.unique(frozen).tolist() if isinstance(frozen, Sequence) else frozen or 0,
        "backend": choice.backend.name,
        "precision": choice.precision,
        "fused": fused,
        "digest of all shells": _digest(mol, auxiliary.auxmol),
    }


def job_of_factors(B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, choice: Choice, fused: bool) -> dict[str, Any]:
    """The same for factors B[nocc, nvir, naux] that were given, read once."""
    found = hashlib.sha256(eps_occ.tobytes() + eps_vir.tobytes())
    for i in range(len(eps_occ)):
        found.update(np.ascontiguousarray(B[i]).data)
    return {
        "sizes of B": [int(n) for n in B.shape],
        "backend": choice.backend.name,
        "precision": choice.precision,
        "fused": fused,
        "digest of B and orbital energies": found.hexdigest(),
    }


def _digest(*mols: gto.Mole) -> str:
    """Of charges, core potentials and all shells by atom; where PySCF keeps their numbers differs from run to run."""
    found = hashlib.sha256()
    for mol in mols:
        found.update(repr((mol.cart, mol.atom_charges().tolist(), sorted(mol._ecp.items()))).encode())
        for n in range(mol.nbas):
            found.update(f"{mol.bas_atom(n)} {mol.bas_angular(n)} {mol.bas_kappa(n)}".encode())
            found.update(mol.bas_exp(n).tobytes() + mol._libcint_ctr_coeff(n).tobytes())
    return found.hexdigest()


def _words(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 80 else f"{text[:76]} ..."
