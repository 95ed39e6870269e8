"""The ledger of cache entries that our programs have produced.

Each program has one JSON file, named by its key. An entry is claimed when it appears while the program is being
compiled and its graph, where one is kept, calls an NKI kernel. It is cleared only if its compiled program is still the
one that was claimed.
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
    """An entry that a program has produced, and the digest of what was compiled."""

    program: Program
    kind: str
    path: Path
    digest: str


@dataclass
class Watch:
    """The entries that the watched block has produced; filled when it ends."""

    claimed: list[Entry] = field(default_factory=list)


def directory() -> Path:
    """neff in the cache directory ($TRNQC_CACHE_DIR, else the user's)."""
    return cache_directory() / "neff"


@contextmanager
def watch(program: Program) -> Iterator[Watch]:
    """Claim for the program what appears in the vendor's caches within the block; one process at a time watches."""
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
    """Of the compiled program of an entry; empty where there is none to read."""
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
    """Remove our entries and return, for each, what was done in words.

    Entries whose compiled program is not the one claimed, that are locked, or that lie outside the caches are left
    alone.

    Parameters
    ----------
    kernel
        Only entries of this kernel.
    stale_only
        Only entries of kernel sources that have changed since.
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
    _save(path, kept[0].program, kept)


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
