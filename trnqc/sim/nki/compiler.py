"""The names of ``nki.compiler`` in NKI 0.7: options of `nki.jit`, which the simulator takes and ignores.

Source: the page ``nki.compiler`` of the documentation of Neuron 2.33.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class CompileConfig:
    """Options for the compiler below the front end; None leaves the vendor's default."""

    address_rotation: Any = None
    non_ssa_legalization: bool | None = None
    dead_code_elim: bool | None = None
    barrier_check: bool | None = None


@dataclass(frozen=True, kw_only=True)
class SpecializationConfig:
    """Options for the front end; None leaves the vendor's default."""

    allow_nested_config_override: bool | None = None
