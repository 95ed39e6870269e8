"""Which cache entries our programs brought about: written when they appear, checked before they are removed.

One JSON file a program, named by its key. An entry is claimed when it appears while the program is being compiled and
its graph, where one is kept, calls an NKI kernel. It is cleared only if its compiled program is still the one claimed.
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
from typing import Any

from nki_kernels.descriptors import kernels
from trnqc.host.files import cache_directory, locked, write_aside
from trnqc.neff_cache.places import Entry, entries, neff_of, places
from trnqc.neff_cache.programs import Program
from trnqc.tuning.sources import kernel_hash

SCHEMA = "trnqc.neff/1"


@dataclass(frozen=True)
class Claim:
    """An entry that a program brought about, and the digest of what was compiled."""

    program: Program
    kind: str
    path: Path
    digest: str


@dataclass
class Watch:
    """Filled when the watched block ends: the entries that it brought about."""

    claimed: list[Entry] = field(default_factory=list)


def directory() -> Path:
    """neff in the cache directory ($TRNQC_CACHE_DIR, else the user's)."""
    return cache_directory() / "neff"


@contextmanager
def watch(program: Program) -> Iterator[Watch]:
    """Claims for the program what appears in the vendor's caches within the block; one process at a time watches."""
    where = directory()
    where.mkdir(parents=True, exist_ok=True)
    with locked(where / ".lock"):
        before = {entry.path: _digest(entry.path) for entry in _all_entries()}
        found = Watch()
        yield found
        found.claimed = [entry for entry in _all_entries() if _is_new(entry, before)]
        if found.claimed:
            _write(where, program, found.claimed)


def _all_entries() -> list[Entry]:
    return [entry for place in places() for entry in entries(place)]


def _is_new(entry: Entry, before: dict[Path, str]) -> bool:
    known = entry.path in before and before[entry.path] == _digest(entry.path)
    return entry.state == "compiled" and entry.has_kernel is not False and not known


def _digest(path: Path) -> str:
    """Of the compiled program of an entry; empty where there is none to read."""
    try:
        neff = neff_of(path)
        return hashlib.sha256(neff.read_bytes()).hexdigest() if neff is not None else ""
    except OSError:
        return ""


def _write(where: Path, program: Program, found: list[Entry]) -> None:
    path = where / f"{program.kernel}-{program.key()}.json"
    old = [claim for claim in _read(path) if claim.path not in {entry.path for entry in found}]
    claims = [{"kind": c.kind, "path": str(c.path), "digest": c.digest} for c in old]
    claims += [{"kind": e.kind, "path": str(e.path.absolute()), "digest": _digest(e.path)} for e in found]
    _save(path, program, claims)


def _save(path: Path, program: Program, claims: list[dict[str, Any]]) -> None:
    body = {"schema": SCHEMA, "program": program.to_dict(), "entries": claims}
    write_aside(path, json.dumps(body, indent=1) + "\n", sync=True)


def _read(path: Path) -> list[Claim]:
    """Claims of one ledger file; a damaged one claims nothing, so that nothing of it is ever removed."""
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema"] != SCHEMA:
            return []
        owner = Program(**body["program"])
        return [Claim(owner, e["kind"], Path(e["path"]), e["digest"]) for e in body["entries"]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        warnings.warn(f"ledger {path} cannot be read ({error}); it claims nothing", RuntimeWarning, stacklevel=3)
        return []


def claims() -> list[Claim]:
    """All claims, by file name."""
    where = directory()
    return [claim for path in sorted(where.glob("*.json")) for claim in _read(path)] if where.is_dir() else []


def owners() -> dict[Path, Program]:
    """Entries that are ours and unchanged, with their programs."""
    return {claim.path: claim.program for claim in claims() if claim.digest and _digest(claim.path) == claim.digest}


def clear(kernel: str = "", stale_only: bool = False) -> list[tuple[Claim, str]]:
    """Remove our entries (of one kernel; only of kernel sources that are no more); what became of each, in words.

    Left alone: entries whose compiled program is not the one claimed, that are locked, or that lie outside the caches.
    """
    where = directory()
    if not where.is_dir():
        return []
    done = []
    with locked(where / ".lock"):
        for path in sorted(where.glob("*.json")):
            mine = _read(path)
            if not mine or mine[0].program.kernel != (kernel or mine[0].program.kernel):
                continue
            if stale_only and not _stale(mine[0].program):
                continue
            results = [(claim, _remove(claim)) for claim in mine]
            done += results
            _keep(path, [claim for claim, what in results if what.startswith("left: locked")])
    return done


def _keep(path: Path, kept: list[Claim]) -> None:
    if not kept:
        path.unlink()
        return
    rest = [{"kind": c.kind, "path": str(c.path), "digest": c.digest} for c in kept]
    _save(path, kept[0].program, rest)


def _stale(program: Program) -> bool:
    kernel = kernels().get(program.kernel)
    return kernel is None or kernel_hash(kernel) != program.source


def _remove(claim: Claim) -> str:
    current = {entry.path.absolute(): entry for entry in _all_entries()}
    if not claim.path.exists():
        return "gone already"
    if claim.path not in current:
        return "left: it is no entry of the caches that this environment names"
    if _digest(claim.path) != claim.digest:
        return "left: its program is not the one that was claimed"
    if current[claim.path].state == "locked":
        return "left: locked; if nothing compiles now, `neuron_parallel_compile --command clear-locks` frees it"
    if claim.path.is_file():
        claim.path.unlink()
    else:
        shutil.rmtree(claim.path)
    return "removed"
