"""A private copy of the vendor's caches, into which one program is compiled.

The vendor's caches are shared, and their keys are hashes that only its own tools can compute. What another process
writes to them meanwhile therefore looks like our own programs. Only the compiler that we start writes to the private
copy; its entries are then placed in the shared caches, unless these have them already.
"""

from __future__ import annotations

import os
import shutil
import uuid
from contextlib import suppress
from pathlib import Path

from trnqc.backends.neuron.neff.caches import Entry, VendorCache, entries, vendor_caches


def publish(place: Path) -> list[Entry]:
    """Place the compiled entries of a private copy in the shared caches.

    Parameters
    ----------
    place
        The folder of the private copy, with the folders xla and native.

    Returns
    -------
    list of Entry
        The entries that were placed, with their paths in the shared caches. An entry that was there before, and one
        that another process is compiling, is not replaced and not in the list.
    """
    published = []
    for cache in vendor_caches():
        if cache.note.startswith("remote"):
            continue
        own = VendorCache(cache.kind, str(place / cache.kind), "trnqc")
        for entry in entries(own):
            target = Path(cache.root).absolute() / entry.path.relative_to(place / cache.kind)
            if entry.state == "compiled" and _placed(entry.path, target):
                published.append(target)
    return [entry for cache in vendor_caches() for entry in entries(cache) if entry.path.absolute() in published]


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
