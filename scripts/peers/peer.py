"""Description of another package: the source of its tests, which are run, and how our objects replace its own."""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import metadata

# Modules of this package that define a PEER; `scripts/peers` runs all of them by default.
NAMES = ("pyscf", "pyscf_mp2", "e3nn", "mace", "opt_einsum", "cotengra")
# The way in which a peer's tests run as they are; what passes there has to pass in all other ways.
THEIRS = "theirs"


@dataclass(frozen=True)
class Exclusion:
    """Tests that may fail with our objects, and why.

    Parameters
    ----------
    tests : str
        Regular expression, searched in the test's identifier, such as ``test_rhf.py::KnownValues::test_dump``.
    reason : str
        One sentence for the reader of the report.
    ways : tuple of str
        The ways in which these tests may fail; empty for all.
    """

    tests: str
    reason: str
    ways: tuple[str, ...] = ()

    def covers(self, test: str, way: str) -> bool:
        return (not self.ways or way in self.ways) and re.search(self.tests, test) is not None


@dataclass(frozen=True)
class Peer:
    """One peer.

    Parameters
    ----------
    name : str
        As given on the command line; the installed distribution has this name too, unless `distribution` is set.
    repository : str
        URL for ``git clone``.
    tag : str
        Tag of a release, with ``{version}`` for the version that is installed.
    files : tuple of str
        Test files, as paths or glob patterns in the repository. The folder of each is copied with all it holds.
    swap : str
        Module name of the pytest plugin that puts our objects in the place of the peer's. It counts what it swaps, by
        kind, as JSON in ``os.environ["PEERS_SWAPPED"]``: a file in which nothing was swapped fails the gate.
    ways : mapping of str to mapping
        For each way of running ours, the environment variables that tell the plugin what to swap.
    controls : mapping of str to mapping
        For ways that change more than whose objects are used, the environment that changes the rest alone. Tests that
        are lost are run once more like that: those that fail there too are none of ours.
    exclusions : tuple of Exclusion
        Tests that may fail with ours.
    arguments : tuple of str
        Further arguments of pytest, such as those of the peer's own configuration.
    module : str
        Name under which the peer is imported, if not `name`.
    distribution : str
        Name of the installed distribution, if not `name`.
    """

    name: str
    repository: str
    tag: str
    files: tuple[str, ...]
    swap: str
    ways: Mapping[str, Mapping[str, str]]
    controls: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    exclusions: tuple[Exclusion, ...] = ()
    arguments: tuple[str, ...] = ()
    module: str = ""
    distribution: str = ""

    @property
    def version(self) -> str:
        """Version of the installed distribution; raises `importlib.metadata.PackageNotFoundError` without one."""
        return metadata.version(self.distribution or self.name)

    @property
    def imported(self) -> str:
        return self.module or self.name

    def excused(self, test: str, way: str) -> str:
        """Why a test may fail in a way; empty if it may not."""
        return next((each.reason for each in self.exclusions if each.covers(test, way)), "")


def peers(names: tuple[str, ...] = NAMES) -> list[Peer]:
    return [importlib.import_module(f"scripts.peers.{name}").PEER for name in names]
