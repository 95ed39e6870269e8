"""The vendor's caches of compiled programs, which are located and read as its documentation describes.

This module does not write to them.

PyTorch/XLA   <root>/neuronxcc-<version>/MODULE_<graph hash>+<flag hash>/model.neff, the graph beside it; root is
              --cache_dir in NEURON_CC_FLAGS, else NEURON_COMPILE_CACHE_URL, else /var/tmp/neuron-compile-cache
native torch  <root>/ab/cd/abcd....neff, by the first digits of the key; root is TORCH_NEURONX_NEFF_CACHE_DIR, else
              /tmp/neff_cache. Programs of everybody share the folders, so that each file is an entry
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

XLA_ROOT = "/var/tmp/neuron-compile-cache"
NATIVE_ROOT = "/tmp/neff_cache"
CUSTOM_CALL = b"AwsNeuronCustomNativeKernel"
"""The name of an NKI kernel in a graph of PyTorch/XLA."""


@dataclass(frozen=True)
class VendorCache:
    """One of the vendor's caches.

    Attributes
    ----------
    kind : str
        "xla" or "native".
    root : str
        Its directory or URL.
    decided_by : str
        The setting that determines the root, in words.
    note : str
        The reason why it cannot be listed, or is not used. Empty otherwise.
    """

    kind: str
    root: str
    decided_by: str
    note: str = ""


@dataclass(frozen=True)
class Entry:
    """One compiled graph.

    Attributes
    ----------
    kind : str
        The kind of its cache.
    path : Path
        Its folder, or its NEFF file in a native cache.
    compiler : str
        The version of the compiler. Empty in a native cache.
    state : str
        "compiled", "unfinished" or "locked".
    size : int
        The size of its files in bytes.
    modified : float
        The time of its last change in seconds since 1970.
    has_kernel : bool, optional
        Whether its graph calls an NKI kernel. None if the cache does not contain the graph.
    """

    kind: str
    path: Path
    compiler: str
    state: str
    size: int
    modified: float
    has_kernel: bool | None


def vendor_caches(environment: Mapping[str, str] | None = None) -> tuple[VendorCache, ...]:
    """Both caches as the environment variables define them, whether they exist or not."""
    environment = os.environ if environment is None else environment
    return _xla(environment), _native(environment)


def _xla(environment: Mapping[str, str]) -> VendorCache:
    flags = environment.get("NEURON_CC_FLAGS", "")
    named = option(flags, "cache_dir")
    if named is not None:
        root, decided = named, "--cache_dir in NEURON_CC_FLAGS"
    elif environment.get("NEURON_COMPILE_CACHE_URL"):
        root, decided = environment["NEURON_COMPILE_CACHE_URL"], "NEURON_COMPILE_CACHE_URL"
    else:
        root, decided = XLA_ROOT, "the vendor's default"
    note = "off: --no_cache in NEURON_CC_FLAGS" if option(flags, "no_cache") is not None else ""
    if "://" in root and not root.startswith("file://"):
        note = "remote: its entries are not listed"
    return VendorCache("xla", root.removeprefix("file://"), decided, note)


def option(flags: str, name: str) -> str | None:
    """Return the value of the last option of this name, "" for one without a value, and None if there is none."""
    options = shlex.split(flags)
    places = [n for n, word in enumerate(options) if _is_flag(word, name)]
    if not places:
        return None
    _, equals, value = options[places[-1]].partition("=")
    return value if equals else "".join(options[places[-1] + 1 :][:1])


def _is_flag(word: str, name: str) -> bool:
    return word.partition("=")[0] in (f"--{name}", f"--{name.replace('_', '-')}")


def _native(environment: Mapping[str, str]) -> VendorCache:
    variable = "TORCH_NEURONX_NEFF_CACHE_DIR"
    if environment.get(variable):
        return VendorCache("native", environment[variable], variable)
    return VendorCache("native", NATIVE_ROOT, "the vendor's default")


def entries(cache: VendorCache) -> list[Entry]:
    """All entries of a cache in the order of their paths. Empty if it does not exist, is remote or cannot be read."""
    root = Path(cache.root)
    if cache.note.startswith("remote") or not root.is_dir():
        return []
    if cache.kind == "xla":
        paths = [p for p in root.glob("neuronxcc-*/MODULE_*+*") if p.is_dir() and not p.is_symlink()]
    else:
        paths = [p for p in root.rglob("*.neff") if p.is_file() and not p.is_symlink()]
    return [entry for path in sorted(paths) if (entry := _entry(cache.kind, path)) is not None]


def other_caches(environment: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Caches of the vendor that trnqc neither reads nor clears, in words: what they contain, and where they are."""
    environment = os.environ if environment is None else environment
    local = environment.get("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR") or "/tmp/local_cache"
    traces = environment.get("NKI_TRACE_CACHE_URL") or "the place that nki chooses (NKI_TRACE_CACHE_URL is not set)"
    return f"local copies and locks of the native path in {local}", f"traces of NKI kernels in {traces}"


def redirected(environment: Mapping[str, str], place: Path) -> dict[str, str]:
    """The variables that move both caches into the folders xla and native of a place; a remote cache is not moved."""
    xla, _ = vendor_caches(environment)
    changed = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(place / "native")}
    if xla.note.startswith("remote"):
        return changed
    options, kept = shlex.split(environment.get("NEURON_CC_FLAGS", "")), []
    for n, option in enumerate(options):
        value_of_flag = n and _is_flag(options[n - 1], "cache_dir") and "=" not in options[n - 1]
        if not _is_flag(option, "cache_dir") and not value_of_flag:
            kept.append(option)
    return changed | {"NEURON_COMPILE_CACHE_URL": str(place / "xla"), "NEURON_CC_FLAGS": shlex.join(kept)}


def _entry(kind: str, path: Path) -> Entry | None:
    """The entry at a path, or None if another process has just removed it."""
    try:
        files = [path] if path.is_file() else [p for p in path.iterdir() if p.is_file()]
        sizes = [p.stat().st_size for p in files]
        neff = path if path.is_file() else min(path.glob("*.neff"), default=None)
        state = "compiled" if neff is not None and neff.stat().st_size else "unfinished"
        locked = any(p.name.endswith(".lock") for p in files)
        modified = max((p.stat().st_mtime for p in files), default=path.stat().st_mtime)
        graphs = [p for p in files if ".hlo" in p.name and p.suffix == ".pb"]
        has_kernel = any(CUSTOM_CALL in p.read_bytes() for p in graphs) if graphs else None
    except OSError:
        return None
    compiler = path.parent.name.removeprefix("neuronxcc-") if kind == "xla" else ""
    return Entry(kind, path, compiler, "locked" if locked else state, sum(sizes), modified, has_kernel)
