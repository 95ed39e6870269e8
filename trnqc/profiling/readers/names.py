"""Translation of engine and queue names in profiles to those of `trnqc.profiling.profile`."""

from __future__ import annotations

import re

# Engine -> its names in the vendor's tables, in the track names of its viewer and in the labels of older JSON files.
_ENGINES = {
    "tensor": ("tensor", "tensormatrix", "pe", "tensore", "tensormatrixe", "pea"),
    "vector": ("vector", "vectore", "dve"),
    "scalar": ("scalar", "scalare", "act", "activation"),
    "gpsimd": ("gpsimd", "gpsimde", "pool", "pooling"),
    "sync": ("sync", "synce", "sp", "syncengine"),
}
_BY_NAME = {name: engine for engine, names in _ENGINES.items() for name in names}
_SUFFIX = re.compile(r"[\s_-]*(engine|eng)?$")
# Hardware queues are called q<Owner><Purpose><number>, e.g. qSyncIO0 or qScalarSpillReload0-Q1-E64.
_QUEUE = re.compile(r"^(?:dma[\s_-]+)?(q[A-Z]\w*\d.*)$", re.IGNORECASE)
_NUMBERED = re.compile(r"^dma[\s_-]?(?:engine|eng)?[\s_-]?(\d+)$", re.IGNORECASE)


def engine_of(label: str) -> str | None:
    """Return one of the five engine names, ``dma...`` for a DMA engine or queue, or None for another name."""
    text = label.strip()
    numbered = _NUMBERED.match(text)
    if numbered:
        return f"dma{int(numbered[1])}"
    known = _BY_NAME.get(_SUFFIX.sub("", text.lower()).replace(" ", ""))
    if known:
        return known
    queue = _QUEUE.match(text)
    if queue:
        return f"dma {queue[1]}"
    return text.lower() if text.lower().split(" ")[0] == "dma" else None


def lane_name(label: str) -> str:
    """Return the engine name if there is one, otherwise the label of the source."""
    return engine_of(label) or label.strip() or "unnamed"
