"""Which of the vendor's packages and devices are installed here.

PyPI carries stubs under the vendor's names. A stub counts as absent, whether its version gives it away or it raises
ImportError("WRONG PACKAGE ...").
"""

from __future__ import annotations

import glob
import importlib
import importlib.metadata
import os
import re
from dataclasses import dataclass

from trnqc.tuning.conditions import instance_type

INDEX = "https://pip.repos.neuron.amazonaws.com"
INSTALL = f'pip install --extra-index-url {INDEX} "neuronx-cc==2.*" "torch-neuronx==2.9.*" nki (see docs/trainium.md)'


@dataclass(frozen=True)
class Package:
    """An installed distribution; `problem` is empty when it can be used."""

    name: str
    version: str
    problem: str


@dataclass(frozen=True)
class _Wanted:
    """The module that a distribution provides, its oldest usable version, and the versions of its stubs."""

    module: str
    oldest: tuple[int, ...]
    stubs: tuple[str, ...]


WANTED = {
    "nki": _Wanted("nki", (0, 3), ("0.0.1",)),
    "torch-neuronx": _Wanted("torch_neuronx", (2, 0), ("1.0",)),
}


def release(version: str) -> tuple[int, ...]:
    """The leading numbers of a version.

    >>> release("2.9.0.2.11+abc")
    (2, 9, 0, 2, 11)
    """
    return tuple(int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number)  # type: ignore[index]


def find(name: str) -> Package:
    """Look up one of `WANTED`: is it installed, no stub, new enough, and importable? Never raises."""
    wanted = WANTED[name]
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Package(name, "", f"{name} is not installed")
    if version in wanted.stubs:
        return Package(name, version, f"{name} {version} is the public index's stub, not the vendor's package")
    if release(version) < wanted.oldest:
        oldest = ".".join(map(str, wanted.oldest))
        return Package(name, version, f"{name} {version} is too old: {oldest} or newer is needed")
    try:
        importlib.import_module(wanted.module)
    except Exception as error:  # the vendor's packages raise anything on a half-installed machine
        stub = "WRONG PACKAGE" in str(error)
        why = "is the public index's stub, not the vendor's package" if stub else f"cannot be imported: {error}"
        return Package(name, version, f"{name} {version} {why}")
    return Package(name, version, "")


def versions() -> dict[str, str]:
    """Versions of those of `WANTED` that are installed."""
    return {package.name: package.version for package in map(find, WANTED) if package.version}


def native_path() -> bool:
    """Whether the installed torch-neuronx has the native device and its operator registration."""
    return hasattr(importlib.import_module("torch_neuronx"), "wrap_nki")


def device_files() -> tuple[str, ...]:
    """Trainium and Inferentia chips that the driver shows."""
    return tuple(sorted(glob.glob("/dev/neuron[0-9]*")))


def logical_cores() -> int:
    """Physical cores of one logical NeuronCore, over which a kernel is launched.

    NEURON_LOGICAL_NC_CONFIG if it is set, else the default of the machine: 1 on trn1 and inf2, 2 on later ones.
    """
    text = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    if text in ("1", "2"):
        return int(text)
    platform = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "") or instance_type()
    return 1 if platform.startswith(("trn1", "inf2", "gen2")) or not platform else 2
