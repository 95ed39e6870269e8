"""Results of long computations, kept in the cache of compiled kernels under a digest of all that they depend on."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from scripts import ROOT
from trnqc.jit.cache import key_of, library_cache


def remembered(name: str, compute: Callable[[], Any], *parts: Any, sources: Sequence[str] = ()) -> Any:
    """What `compute` returns, something that JSON holds; computed again when a part or a source file has changed.

    sources: paths below the repository's root.
    """
    key = key_of(*(repr(part) for part in parts), *((ROOT / source).read_text() for source in sources))
    entry = library_cache().get(f"{name}-{key}", lambda out: _write(out, compute()), ".json")
    return json.loads(entry.read_text())


def _write(out: Path, result: Any) -> None:
    out.write_text(json.dumps(result))
