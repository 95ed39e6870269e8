"""The vendor's packages and devices that this machine has.

PyPI has stubs under the names of the vendor's packages. They count as absent. A stub is recognised by its version, or
by the ImportError("WRONG PACKAGE ...") that it raises.
"""

from __future__ import annotations

import glob
import importlib
import importlib.metadata
import re
from dataclasses import dataclass

from trnqc.sim.launch.install import KERNELS_NEED

INDEX = "https://pip.repos.neuron.amazonaws.com"
INSTALL = f'pip install --extra-index-url {INDEX} "neuronx-cc==2.*" "torch-neuronx==2.9.*" nki (see docs/trainium.md)'


@dataclass(frozen=True)
class Package:
    """A distribution, and the reason why it cannot be used. `problem` is empty if it can be used."""

    name: str
    version: str
    problem: str


@dataclass(frozen=True)
class _Requirement:
    """The module that a distribution provides, the oldest version that can be used, and the versions of its stubs."""

    module: str
    oldest: tuple[int, ...]
    stubs: tuple[str, ...]


REQUIREMENTS = {
    "nki": _Requirement("nki", KERNELS_NEED, ("0.0.1",)),
    "torch-neuronx": _Requirement("torch_neuronx", (2, 0), ("1.0",)),
}


def release(version: str) -> tuple[int, ...]:
    """The numbers at the beginning of a version.

    >>> release("2.9.0.2.11+abc")
    (2, 9, 0, 2, 11)
    """
    return tuple(int(number) for number in re.match(r"[\d.]*", version)[0].split(".") if number)  # type: ignore[index]


def find(name: str) -> Package:
    """Check whether a package in `REQUIREMENTS` is installed, is not a stub, is new enough, and can be imported.

    It never raises an error.
    """
    required = REQUIREMENTS[name]
    try:
        version = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return Package(name, "", f"{name} is not installed")
    if version in required.stubs:
        return Package(name, version, f"{name} {version} is the public index's stub, not the vendor's package")
    if release(version) < required.oldest:
        oldest = ".".join(map(str, required.oldest))
        return Package(name, version, f"{name} {version} is too old: {oldest} or newer is needed")
    try:
        importlib.import_module(required.module)
    except Exception as error:  # If the installation is incomplete, the vendor's packages raise various errors.
        stub = "WRONG PACKAGE" in str(error)
        why = "is the public index's stub, not the vendor's package" if stub else f"cannot be imported: {error}"
        return Package(name, version, f"{name} {version} {why}")
    return Package(name, version, "")


def versions() -> dict[str, str]:
    """The versions of the packages in `REQUIREMENTS` that are installed."""
    return {package.name: package.version for package in map(find, REQUIREMENTS) if package.version}


def native_path() -> bool:
    """Whether the installed torch-neuronx has a native device."""
    return hasattr(importlib.import_module("torch_neuronx"), "wrap_nki")


def device_files() -> tuple[str, ...]:
    """The device files of Trainium and Inferentia chips."""
    return tuple(sorted(glob.glob("/dev/neuron[0-9]*")))
