"""The vendor's caches of compiled programs, which are located and read as its documentation describes.

This module does not write to them.

PyTorch/XLA   <root>/neuronxcc-<version>/MODULE_<graph hash>+<flag hash>/model.neff, the graph beside it; root is
              --cache_dir in NEURON_CC_FLAGS, else NEURON_COMPILE_CACHE_URL, else /var/tmp/neuron-compile-cache
native torch  <root>/ab/cd/abcd....neff, by the first digits of the key; root is TORCH_NEURONX_NEFF_CACHE_DIR, else
              /tmp/neff_cache. Programs of everybody share the folders, so that each file is an entry
"""

from __future__ import annotations

import argparse
import os
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, replace
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

    @property
    def remote(self) -> bool:
        """Whether the root is a URL."""
        return "://" in self.root


@dataclass(frozen=True)
class CachedGraph:
    """One compiled graph.

    Attributes
    ----------
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
    flags, variable = environment.get("NEURON_CC_FLAGS", ""), "NEURON_COMPILE_CACHE_URL"
    root, decided = environment.get(variable) or XLA_ROOT, "the vendor's default"
    if (named := option(flags, "cache_dir")[0]) is not None:
        root, decided = named, "--cache_dir in NEURON_CC_FLAGS"
    elif environment.get(variable):
        decided = variable
    cache = VendorCache("xla", root.removeprefix("file://"), decided)
    if cache.remote:
        return replace(cache, note="remote: its entries are not listed")
    off = option(flags, "no_cache")[0] is not None
    return replace(cache, note="off: --no_cache in NEURON_CC_FLAGS") if off else cache


def option(flags: str, name: str) -> tuple[str | None, list[str]]:
    """Return the value of an option, "" for one without a value and None if it is not there, and all other words."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument(f"--{name}", f"--{name.replace('_', '-')}", dest="value", nargs="?", const="")
    found, others = parser.parse_known_args(shlex.split(flags))
    return found.value, others


def _native(environment: Mapping[str, str]) -> VendorCache:
    variable = "TORCH_NEURONX_NEFF_CACHE_DIR"
    if environment.get(variable):
        return VendorCache("native", environment[variable], variable)
    return VendorCache("native", NATIVE_ROOT, "the vendor's default")


def entries(cache: VendorCache) -> list[CachedGraph]:
    """All entries of a cache in the order of their paths. Empty if it does not exist, is remote or cannot be read."""
    root = Path(cache.root).absolute()
    if cache.remote or not root.is_dir():
        return []
    if cache.kind == "xla":
        paths = [p for p in root.glob("neuronxcc-*/MODULE_*+*") if p.is_dir() and not p.is_symlink()]
    else:
        paths = [p for p in root.rglob("*.neff") if p.is_file() and not p.is_symlink()]
    return [entry for path in sorted(paths) if (entry := _entry(path)) is not None]


def other_caches() -> tuple[str, ...]:
    """Caches of the vendor that trnqc neither reads nor clears, in words: what they contain, and where they are."""
    local = os.environ.get("TORCH_NEURONX_NEFF_LOCAL_CACHE_DIR") or "/tmp/local_cache"
    traces = os.environ.get("NKI_TRACE_CACHE_URL") or "the place that nki chooses (NKI_TRACE_CACHE_URL is not set)"
    return f"local copies and locks of the native path in {local}", f"traces of NKI kernels in {traces}"


def redirected(environment: Mapping[str, str], place: Path) -> dict[str, str]:
    """The variables that move both caches into the folders xla and native of a place; a remote cache is not moved."""
    native = {"TORCH_NEURONX_NEFF_CACHE_DIR": str(place / "native")}
    if _xla(environment).remote:
        return native
    _, flags = option(environment.get("NEURON_CC_FLAGS", ""), "cache_dir")
    return native | {"NEURON_COMPILE_CACHE_URL": str(place / "xla"), "NEURON_CC_FLAGS": shlex.join(flags)}


def _entry(path: Path) -> CachedGraph | None:
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
    compiler = path.parent.name.removeprefix("neuronxcc-") if path.is_dir() else ""
    return CachedGraph(path, compiler, "locked" if locked else state, sum(sizes), modified, has_kernel)
