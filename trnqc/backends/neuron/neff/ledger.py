"""The ledger: a list of the files in the vendor's caches that trnqc has written.

The vendor's caches are shared, and their keys are hashes that only its own tools can compute. What another process
writes to them therefore looks like our own programs. So a program is compiled into private caches, to which nobody else
writes; its entries are then placed in the shared ones, unless these have them already, and claimed in the ledger, file
by file with their digests. A file is removed only if its contents are still those that were claimed. The ledger has one
JSON file for each program, named by its key.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import uuid
import warnings
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from nki_kernels.descriptors import kernels
from trnqc.backends.neuron.neff.caches import CachedGraph, VendorCache, entries, vendor_caches
from trnqc.backends.neuron.neff.programs import NeffProgram
from trnqc.host.files import cache_directory, locked, write_aside
from trnqc.tuning.sources import kernel_hash

SCHEMA = "trnqc.neff/2"
"""Files of format 1 have no lists of files and may claim what others wrote. They claim nothing any more."""


@dataclass(frozen=True)
class Claim:
    """An entry that a program has produced, and the digests of its files by name."""

    program: NeffProgram
    path: Path
    files: dict[str, str]


def directory() -> Path:
    """The folder neff in the cache directory ($TRNQC_CACHE_DIR, else that of the user)."""
    return cache_directory() / "neff"


def claim(program: NeffProgram, place: Path) -> list[Path]:
    """Place what was compiled into private caches in the vendor's caches, and claim it for a program.

    Parameters
    ----------
    program
        The program.
    place
        The folder of the private caches, see `caches.redirected`.

    Returns
    -------
    list of Path
        The claimed entries. An entry that was there before, and one that another process is compiling, is not replaced
        and not in the list; a graph without an NKI kernel is placed, but not claimed.
    """
    where = directory()
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / ".lock"):
        new = [target for entry, target in _published(place) if entry.has_kernel is not False]
        if new:
            path = where / f"{program.kernel}-{program.key()}.json"
            old = [claim for claim in _read(path) if claim.path not in new]
            _save(path, old + [Claim(program, target, _files(target)) for target in new])
    return new


def _published(place: Path) -> Iterator[tuple[CachedGraph, Path]]:
    """Place compiled entries of private caches in the shared ones, and yield those that were not there, with paths."""
    for cache in vendor_caches():
        own = place.absolute() / cache.kind
        for entry in entries(VendorCache(cache.kind, str(own), "trnqc")):
            target = Path(cache.root).absolute() / entry.path.relative_to(own)
            if entry.state == "compiled" and _placed(entry.path, target):
                yield entry, target


def _placed(source: Path, target: Path) -> bool:
    """Whether an entry was placed at the target, where readers never see it incomplete, and where there was none."""
    if target.exists():
        return False
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".trnqc-{uuid.uuid4().hex}")
    try:
        if source.is_dir():
            shutil.copytree(source, aside)
            os.rename(aside, target)  # It fails if another process has just put files there.
        else:
            shutil.copyfile(source, aside)
            os.link(aside, target)  # Unlike a renamed file, a link never replaces one.
    except OSError:
        if not target.exists():
            raise
        return False
    finally:
        shutil.rmtree(aside, ignore_errors=True)
        with suppress(OSError):
            aside.unlink()
    return True


def _files(path: Path) -> dict[str, str]:
    """The digests of the files of an entry by name. Empty if they cannot be read."""
    try:
        files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
        return {p.name: hashlib.sha256(p.read_bytes()).hexdigest() for p in files}
    except OSError:
        return {}


def _save(path: Path, claims: list[Claim]) -> None:
    """Write the claims of one program, or remove the file if there are none."""
    if not claims:
        path.unlink()
        return
    listed = [{"path": str(claim.path), "files": claim.files} for claim in claims]
    body = {"schema": SCHEMA, "program": asdict(claims[0].program), "entries": listed}
    write_aside(path, json.dumps(body, indent=1) + "\n", sync=True)


def _read(path: Path) -> list[Claim]:
    """The claims in a file of the ledger. A damaged file has none, so that none of its entries is removed."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            return []
        owner = NeffProgram(**body["program"])
        return [Claim(owner, Path(e["path"]), dict(e["files"])) for e in body["entries"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"the ledger {path} cannot be read ({error}); it claims nothing", RuntimeWarning, stacklevel=3)
        return []


def owners() -> dict[Path, NeffProgram]:
    """The program of each entry that is ours and has not changed."""
    claims = (claim for path in sorted(directory().glob("*.json")) for claim in _read(path))
    return {claim.path: claim.program for claim in claims if _unchanged(claim)}


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
    where, outcomes = directory(), []
    if not where.is_dir():
        return []
    with locked(where / ".lock"):
        states = {entry.path: entry.state for cache in vendor_caches() for entry in entries(cache)}
        for path in sorted(where.glob("*.json")):
            claims = _read(path)
            if not claims or (kernel and claims[0].program.kernel != kernel):
                continue
            if stale_only and not _stale(claims[0].program):
                continue
            results = [(claim, _remove(claim, states.get(claim.path))) for claim in claims]
            outcomes += results
            _save(path, [claim for claim, outcome in results if outcome.startswith("left: locked")])
    return outcomes


def _stale(program: NeffProgram) -> bool:
    kernel = kernels().get(program.kernel)
    return kernel is None or kernel_hash(kernel) != program.source


def _remove(claim: Claim, state: str | None) -> str:
    """Remove an entry in this state, None if it is in none of the caches, and return what was done in words."""
    if not claim.path.exists():
        return "gone already"
    if state is None:
        return "left: it is no entry of the caches that are in use"
    if not _unchanged(claim):
        return "left: its program is not the one that was claimed"
    if state == "locked":
        return "left: locked; if no compilation is running, `neuron_parallel_compile --command clear-locks` releases it"
    for name in claim.files:
        (claim.path if claim.path.is_file() else claim.path / name).unlink(missing_ok=True)
    with suppress(OSError):  # The folder of an entry also has files of others.
        claim.path.rmdir()
    return "removed"
