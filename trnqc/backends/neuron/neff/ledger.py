"""The ledger: a list of the files in the vendor's caches that trnqc has written.

The ledger has one JSON file for each program, named by its key. A program is compiled into a private copy of the
caches, from which its entries are placed in the shared ones; it claims exactly those, file by file with their digests.
What another process compiles meanwhile is never claimed. A file is removed only if its contents are still those that
were claimed.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from nki_kernels.descriptors import kernels
from trnqc.backends.neuron.neff.caches import Entry, entries, redirected, vendor_caches
from trnqc.backends.neuron.neff.programs import Program
from trnqc.backends.neuron.neff.staging import publish
from trnqc.host.files import cache_directory, locked, temporary_place, write_aside
from trnqc.tuning.sources import kernel_hash

SCHEMA = "trnqc.neff/2"
"""Files of format 1 have no lists of files and may claim what others wrote. They claim nothing any more."""


@dataclass(frozen=True)
class Claim:
    """An entry that a program has produced, and the digests of its files by name."""

    program: Program
    kind: str
    path: Path
    files: dict[str, str]


@dataclass
class Watch:
    """The environment in which the block of `watch` starts the compiler, and, when it has ended, the new entries."""

    environment: Mapping[str, str]
    claimed: list[Entry] = field(default_factory=list)


def directory() -> Path:
    """The folder neff in the cache directory ($TRNQC_CACHE_DIR, else that of the user)."""
    return cache_directory() / "neff"


@contextmanager
def watch(program: Program, environment: Mapping[str, str] | None = None) -> Iterator[Watch]:
    """A context for a compilation, whose entries are placed in the vendor's caches and claimed for a program.

    Parameters
    ----------
    program
        The program.
    environment
        The variables of the compiler's process; by default, those of this process.

    Yields
    ------
    Watch
        Its environment moves the caches to a folder to which nobody else writes. A compiler that is started with other
        variables claims nothing.
    """
    environment = os.environ if environment is None else environment
    where = directory()
    where.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="trnqc-neff-", dir=temporary_place()) as place:
        watched = Watch({**environment, **redirected(environment, Path(place))})
        yield watched
        with locked(where / ".lock"):
            watched.claimed = [entry for entry in publish(Path(place)) if entry.has_kernel is not False]
            if watched.claimed:
                _write(where, program, watched.claimed)


def _all_entries() -> list[Entry]:
    return [entry for cache in vendor_caches() for entry in entries(cache)]


def _files(path: Path) -> dict[str, str]:
    """The digests of the files of an entry by name. Empty if they cannot be read."""
    try:
        files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    except OSError:
        return {}


def _write(where: Path, program: Program, new: list[Entry]) -> None:
    path = where / f"{program.kernel}-{program.key()}.json"
    old = [claim for claim in _read(path) if claim.path not in {entry.path.absolute() for entry in new}]
    _save(path, program, old + [Claim(program, e.kind, e.path.absolute(), _files(e.path)) for e in new])


def _save(path: Path, program: Program, claims: list[Claim]) -> None:
    entries = [{"kind": c.kind, "path": str(c.path), "files": c.files} for c in claims]
    body = {"schema": SCHEMA, "program": program.to_dict(), "entries": entries}
    write_aside(path, json.dumps(body, indent=1) + "\n", sync=True)


def _read(path: Path) -> list[Claim]:
    """The claims in a file of the ledger. A damaged file has none, so that none of its entries is removed."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            return []
        owner = Program(**body["program"])
        return [Claim(owner, e["kind"], Path(e["path"]), dict(e["files"])) for e in body["entries"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"the ledger {path} cannot be read ({error}); it claims nothing", RuntimeWarning, stacklevel=3)
        return []


def claims() -> list[Claim]:
    """All claims, in the order of the file names."""
    where = directory()
    return [claim for path in sorted(where.glob("*.json")) for claim in _read(path)] if where.is_dir() else []


def owners() -> dict[Path, Program]:
    """The program of each entry that is ours and has not changed."""
    return {claim.path: claim.program for claim in claims() if _unchanged(claim)}


def _unchanged(claim: Claim) -> bool:
    """Whether the claimed files are there with the contents that were claimed. Other files do not matter."""
    return bool(claim.files) and claim.files.items() <= _files(claim.path).items()


def clear(kernel: str = "", stale_only: bool = False) -> list[tuple[Claim, str]]:
    """Remove our entries.

    Exactly the files that were claimed are removed, and the folder of an entry if nothing else is in it. An entry is
    left if one of them has changed, if it is locked, or if it is not in one of the caches.

    Parameters
    ----------
    kernel
        Remove only entries of this kernel.
    stale_only
        Remove only entries of kernels whose sources have changed since.

    Returns
    -------
    list of (Claim, str)
        The claims, and in words what was done with each entry.
    """
    where = directory()
    if not where.is_dir():
        return []
    outcomes = []
    with locked(where / ".lock"):
        for path in sorted(where.glob("*.json")):
            claims = _read(path)
            if not claims or claims[0].program.kernel != (kernel or claims[0].program.kernel):
                continue
            if stale_only and not _stale(claims[0].program):
                continue
            results = [(claim, _remove(claim)) for claim in claims]
            outcomes += results
            _replace(path, [claim for claim, outcome in results if outcome.startswith("left: locked")])
    return outcomes


def _replace(path: Path, claims: list[Claim]) -> None:
    if not claims:
        path.unlink()
        return
    _save(path, claims[0].program, claims)


def _stale(program: Program) -> bool:
    kernel = kernels().get(program.kernel)
    return kernel is None or kernel_hash(kernel) != program.source


def _remove(claim: Claim) -> str:
    current = {entry.path.absolute(): entry for entry in _all_entries()}
    if not claim.path.exists():
        return "gone already"
    if claim.path not in current:
        return "left: it is no entry of the caches that are in use"
    if not _unchanged(claim):
        return "left: its program is not the one that was claimed"
    if current[claim.path].state == "locked":
        return "left: locked; if no compilation is running, `neuron_parallel_compile --command clear-locks` releases it"
    for name in claim.files:
        (claim.path if claim.path.is_file() else claim.path / name).unlink(missing_ok=True)
    with suppress(OSError):  # The folder of an entry also has files of others.
        claim.path.rmdir()
    return "removed"
