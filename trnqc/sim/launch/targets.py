"""Limits of the simulated NeuronCore generations, one frozen row each, and the choice between them.

The generation is read from ``NEURON_PLATFORM_TARGET_OVERRIDE`` (trn1 | inf2 | gen2, trn2 | gen3, trn3 | gen4). Unset
means trn2: of the two generations that the vendor's NKI supports officially, the one with the tighter limits. (The
vendor's own simulator takes trn3 when unset.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering

from trnqc.sim.faults import NkiValidationError

KIB = 1024
PARTITIONS = 128
PSUM_BANKS = 8
PSUM_BANK_BYTES = 2 * KIB


@total_ordering
class nc_version(Enum):
    """NeuronCore generation; later ones are greater."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: nc_version) -> bool:
        return self.value < other.value if isinstance(other, nc_version) else NotImplemented


@dataclass(frozen=True)
class Target:
    """One generation. Byte figures are per partition; moving limits are elements per partition of one matmul."""

    name: str
    version: nc_version
    sbuf_physical: int
    sbuf_usable: int
    moving_fmax: int
    moving_fmax_bf16_dst: int
    pe_tiles: tuple[int, ...]

    @property
    def generation(self) -> int:
        return self.version.value


# Usable bytes: published for trn2 and trn3; for trn1 the same 16 KiB are taken off the physical size.
TARGETS = {
    "trn1": Target("trn1", nc_version.gen2, 192 * KIB, 176 * KIB, 512, 0, (64, 128)),
    "trn2": Target("trn2", nc_version.gen3, 224 * KIB, 208 * KIB, 512, 0, (32, 64, 128)),
    "trn3": Target("trn3", nc_version.gen4, 256 * KIB, 240 * KIB, 4096, 8192, (32, 64, 128)),
}
DEFAULT_TARGET = "trn2"
_ALIASES = {"gen2": "trn1", "inf2": "trn1", "gen3": "trn2", "gen4": "trn3"}


def target_from_environment() -> Target:
    """The target named by ``NEURON_PLATFORM_TARGET_OVERRIDE``, or trn2 when it is unset or empty."""
    name = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "") or DEFAULT_TARGET
    target = TARGETS.get(_ALIASES.get(name, name))
    if target is None:
        allowed = ", ".join(sorted([*TARGETS, *_ALIASES]))
        raise NkiValidationError(f"NEURON_PLATFORM_TARGET_OVERRIDE must be one of {allowed}, got {name!r}")
    return target
