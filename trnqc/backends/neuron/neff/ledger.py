"""The ledger: a list of the cache entries that our programs have produced.

The ledger has one JSON file for each program, named by its key. A program claims an entry that appears while the
program is compiled, unless its graph is in the cache and calls no NKI kernel. An entry is removed only if its compiled
program is still the one that was claimed.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from nki_kernels.descriptors import kernels
from trnqc.backends.neuron.neff.caches import Entry, entries, neff_of, vendor_caches
from trnqc.backends.neuron.neff.programs import Program
from trnqc.host.files import cache_directory, locked, write_aside
from trnqc.tuning.sources import kernel_hash

SCHEMA = "trnqc.neff/1"


@dataclass(frozen=True)
class Claim:
    """An entry that a program has produced, and the digest of its NEFF file."""

    program: Program
    kind: str
    path: Path
    digest: str


@dataclass
class Watch:
    """The entries that the block of `watch` has produced. They are set when the block ends."""

    claimed: list[Entry] = field(default_factory=list)


def directory() -> Path:
    """The folder neff in the cache directory ($TRNQC_CACHE_DIR, else that of the user)."""
    return cache_directory() / "neff"


@contextmanager
def watch(program: Program) -> Iterator[Watch]:
    """A context in which new entries of the vendor's caches are claimed for a program, by one process at a time."""
    where = directory()
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / ".lock"):
        before = {entry.path: _digest(entry.path) for entry in _all_entries()}
        watched = Watch()
        yield watched
        watched.claimed = [entry for entry in _all_entries() if _is_new(entry, before)]
        if watched.claimed:
            _write(where, program, watched.claimed)


def _all_entries() -> list[Entry]:
    return [entry for cache in vendor_caches() for entry in entries(cache)]


def _is_new(entry: Entry, before: dict[Path, str]) -> bool:
    known = entry.path in before and before[entry.path] == _digest(entry.path)
    return entry.state == "compiled" and entry.has_kernel is not False and not known


def _digest(path: Path) -> str:
    """The digest of the compiled program of an entry. Empty if there is none that can be read."""
    try:
        neff = neff_of(path)
        return hashlib.sha256(neff.read_bytes()).hexdigest() if neff is not None else ""
    except OSError:
        return ""


def _write(where: Path, program: Program, new: list[Entry]) -> None:
    path = where / f"{program.kernel}-{program.key()}.json"
    old = [claim for claim in _read(path) if claim.path not in {entry.path for entry in new}]
    _save(path, program, old + [Claim(program, e.kind, e.path.absolute(), _digest(e.path)) for e in new])


def _save(path: Path, program: Program, claims: list[Claim]) -> None:
    entries = [{"kind": c.kind, "path": str(c.path), "digest": c.digest} for c in claims]
    body = {"schema": SCHEMA, "program": program.to_dict(), "entries": entries}
    write_aside(path, json.dumps(body, indent=1) + "\n", sync=True)


def _read(path: Path) -> list[Claim]:
    """The claims in a file of the ledger. A damaged file has none, so that none of its entries is removed."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            return []
        owner = Program(**body["program"])
        return [Claim(owner, e["kind"], Path(e["path"]), e["digest"]) for e in body["entries"]]
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
    return {claim.path: claim.program for claim in claims() if claim.digest and _digest(claim.path) == claim.digest}


def clear(kernel: str = "", stale_only: bool = False) -> list[tuple[Claim, str]]:
    """Remove our entries.

    An entry is not removed if its compiled program is not the one that was claimed, if it is locked, or if it is not in
    one of the caches.

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
    if _digest(claim.path) != claim.digest:
        return "left: its program is not the one that was claimed"
    if current[claim.path].state == "locked":
        return "left: locked; if no compilation is running, `neuron_parallel_compile --command clear-locks` releases it"
    if claim.path.is_file():
        claim.path.unlink()
    else:
        shutil.rmtree(claim.path)
    return "removed"
