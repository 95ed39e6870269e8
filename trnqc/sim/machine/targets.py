"""Limits of the simulated NeuronCore generations, and the choice of a generation.

The generation is read from ``NEURON_PLATFORM_TARGET_OVERRIDE`` (trn1 | inf2 | gen2, trn2 | gen3, trn3 | gen4). The
default is trn2, which has the tighter limits of the two generations that the vendor's NKI supports officially. (The
default of the vendor's own simulator is trn3.)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import Enum
from functools import total_ordering

from trnqc.sim.machine.faults import NkiValidationError

# Bytes per KiB.
KIB = 1024
# Partitions of SBUF and PSUM, in every generation (vendor's architecture guide).
PARTITIONS = 128
# PSUM banks per partition, and bytes per bank (vendor's architecture guide).
PSUM_BANKS = 8
PSUM_BANK_BYTES = 2 * KIB


@total_ordering
class nc_version(Enum):
    """NeuronCore generation. Later generations compare as greater."""

    gen2 = 2
    gen3 = 3
    gen4 = 4

    def __lt__(self, other: nc_version) -> bool:
        return self.value < other.value if isinstance(other, nc_version) else NotImplemented


@dataclass(frozen=True)
class Target:
    """Limits of one generation: "trn1", "trn2" or "trn3", with its NeuronCore version.

    `sbuf_physical` and `sbuf_usable` are SBUF bytes per partition, and the part that kernels may use. `moving_fmax` is
    the largest free size of the moving operand of one matmul, in elements per partition, and `moving_fmax_bf16_dst`
    that for bfloat16 results (0: not available). `pe_tiles` are the allowed tile sizes of the systolic array.
    """

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


# The usable SBUF bytes are published for trn2 and trn3. For trn1 they are assumed to be 16 KiB below the physical size,
# as in the other generations.
TARGETS = {
    "trn1": Target("trn1", nc_version.gen2, 192 * KIB, 176 * KIB, 512, 0, (64, 128)),
    "trn2": Target("trn2", nc_version.gen3, 224 * KIB, 208 * KIB, 512, 0, (32, 64, 128)),
    "trn3": Target("trn3", nc_version.gen4, 256 * KIB, 240 * KIB, 4096, 8192, (32, 64, 128)),
}
DEFAULT_TARGET = "trn2"
_ALIASES = {"gen2": "trn1", "inf2": "trn1", "gen3": "trn2", "gen4": "trn3"}


def target_from_environment() -> Target:
    """Return the target named by ``NEURON_PLATFORM_TARGET_OVERRIDE``, or trn2 if it is unset or empty."""
    name = os.environ.get("NEURON_PLATFORM_TARGET_OVERRIDE", "") or DEFAULT_TARGET
    target = TARGETS.get(_ALIASES.get(name, name))
    if target is None:
        allowed = ", ".join(sorted([*TARGETS, *_ALIASES]))
        raise NkiValidationError(f"NEURON_PLATFORM_TARGET_OVERRIDE must be one of {allowed}, got {name!r}")
    return target
