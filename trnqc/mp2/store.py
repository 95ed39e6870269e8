"""Files and records of a job, which the factor step and the pair step write and read.

    JobStore.decide -> values that later work depends on    JobStore.array -> numbers    JobStore.add -> finished work

Every record contains a key of all decisions on which it depends, such as orbitals and block sizes. If one of these
decisions is lost and made differently, records with the old key are ignored. Old and new work is therefore never mixed.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trnqc.host.disk_arrays import DiskArray
from trnqc.host.files import Records, temporary_place

Array = TypeVar("Array", bound=DiskArray)


class JobStore(ABC):
    """Files and records of one job."""

    directory: Path

    def __init__(self, records: Records) -> None:
        self.records, self.key = records, 0

    def decide(self, kind: str, make: Callable[[], Any]) -> Any:
        """Return the recorded value on which all later work depends, or make() and record it."""
        recorded = self.recorded(kind)
        value = recorded[-1] if recorded else make()
        if not recorded:
            self.add(kind, value)
        self.key = zlib.crc32(json.dumps({kind: value}, sort_keys=True).encode(), self.key)
        return value

    def recorded(self, kind: str) -> list[Any]:
        """The values that have been recorded under the current decisions, oldest first."""
        return [r[kind] for r in self.records.entries if r.get("of") == self.key and kind in r]

    def add(self, kind: str, value: Any) -> None:
        """Record a finished piece of work. Raises StorageError."""
        self.records.add(**{kind: value, "of": self.key})

    @abstractmethod
    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        """Open the array `name` of a file, or create it if the file is not usable. Raises StorageError."""

    @abstractmethod
    def remove(self, file: str) -> None:
        """Free the disk space of an array that is no longer needed."""


class SpinStore(JobStore):
    """The part of a store that belongs to one spin of an open shell: records and arrays have its name as a suffix."""

    def __init__(self, store: JobStore, spin: str) -> None:
        self.store, self.spin, self.directory = store, spin, store.directory

    def decide(self, kind: str, make: Callable[[], Any]) -> Any:
        return self.store.decide(f"{kind} ({self.spin})", make)

    def recorded(self, kind: str) -> list[Any]:
        return self.store.recorded(f"{kind} ({self.spin})")

    def add(self, kind: str, value: Any) -> None:
        self.store.add(f"{kind} ({self.spin})", value)

    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        return self.store.array(kind, f"{file}-{self.spin}", name, shape)

    def remove(self, file: str) -> None:
        self.store.remove(f"{file}-{self.spin}")


class ScratchStore(JobStore):
    """A store in files without names, which the system deletes when the arrays are closed or the process is killed."""

    def __init__(self) -> None:
        super().__init__(Records(None))
        self.directory = Path(temporary_place())

    def array(self, kind: type[Array], file: str, name: str, shape: tuple[int, ...]) -> Array:
        with tempfile.TemporaryDirectory(prefix="trnqc-", dir=self.directory) as directory:
            return kind.create(Path(directory) / f"{file}.h5", name, shape)

    def remove(self, file: str) -> None:
        """Do nothing, because closing the array frees its space."""
