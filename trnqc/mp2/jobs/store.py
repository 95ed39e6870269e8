"""Files and records of a job: what the factor step and the pair step put on disk and take from it again.

    Store.decide -> values that later work depends on        Store.array -> numbers        Store.add -> finished work

Every record carries a number that stands for all decisions it rests on (orbitals, block sizes). If one of these
decisions is lost and comes out otherwise, records that rest on it no longer count, so that old and new work is never
mixed.
"""

from __future__ import annotations

import json
import tempfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from trnqc.host.files import Records
from trnqc.mp2.factors.disk_arrays import DiskArray

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
