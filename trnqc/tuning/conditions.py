"""The conditions of a measurement besides kernel and shape: the version of the model, or those of a machine."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
from pathlib import Path

from trnqc import sim
from trnqc.sim.machine.targets import TARGETS, target_from_environment

PACKAGES = ("nki", "neuronx-cc", "torch-neuronx")
"""The vendor's packages that compile and run a kernel."""
FLAGS = ("NEURON_CC_FLAGS", "NEURON_LOGICAL_NC_CONFIG")
"""Environment variables that change the compiled program."""
PRODUCT = Path("/sys/devices/virtual/dmi/id/product_name")
"""The file that contains the instance type, such as trn1.2xlarge."""
# The beginnings of the instance types of each generation of chips.
_FAMILIES = {"trn1": ("trn1", "inf2"), "trn2": ("trn2",), "trn3": ("trn3",)}


def model_identity() -> dict[str, str]:
    """The identity of the simulator's timeline: a digest of its source, which includes its table of costs."""
    digest = hashlib.sha256()
    for path in sorted((Path(sim.__file__).parent / "timeline").glob("*.py")):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return {"model": f"trnqc.sim.timeline {digest.hexdigest()[:12]}"}


def device_identity() -> dict[str, str]:
    """The versions of the vendor's packages, with "absent" for a missing one, and the values of the flags."""
    return {name: _version(name) for name in PACKAGES} | {flag: os.environ.get(flag, "") for flag in FLAGS}


def instance_type(product: Path | None = None) -> str:
    """The instance type of this machine, such as "trn1.2xlarge". Empty if it has none."""
    product = product or PRODUCT
    return product.read_text(encoding="utf-8", errors="replace").strip() if product.is_file() else ""


def chip_target(product: Path | None = None) -> str | None:
    """The generation of this machine's chips according to its instance type, or None if it has no chips."""
    name = instance_type(product)
    return next((target for target in TARGETS if name.startswith(_FAMILIES[target])), None)


def machine_target() -> str:
    """The generation to compile for: NEURON_PLATFORM_TARGET_OVERRIDE, else that of this machine or the simulator."""
    if os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE"):
        return target_from_environment().name
    return chip_target() or target_from_environment().name


def logical_cores() -> int:
    """The number of physical cores of one logical NeuronCore, on which a kernel is launched.

    It is NEURON_LOGICAL_NC_CONFIG if that is set, else the default of the machine: 1 on trn1 and inf2, 2 on later ones.
    """
    text = os.environ.get("NEURON_LOGICAL_NC_CONFIG", "")
    if text in ("1", "2"):
        return int(text)
    platform = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "") or instance_type()
    return 1 if platform.startswith(("trn1", "inf2", "gen2")) or not platform else 2


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "absent"
