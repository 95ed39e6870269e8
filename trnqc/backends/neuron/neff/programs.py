"""What makes two compiled programs the same, in our terms."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Any

from nki_kernels.descriptors.descriptor import Values
from trnqc.jit.cache import key_of
from trnqc.tuning.choice import choose
from trnqc.tuning.conditions import device_identity
from trnqc.tuning.requests import check
from trnqc.tuning.sources import kernel_hash


@dataclass(frozen=True)
class Program:
    """A kernel with everything that its compilation depends on; constants are compile-time, so tiles are part of it."""

    kernel: str
    source: str
    target: str
    precision: str
    shape: dict[str, int]
    constants: dict[str, int]
    depends: dict[str, str]

    def key(self) -> str:
        """32 hex digits; equal for equal programs, in any process."""
        return key_of(json.dumps(asdict(self), sort_keys=True))

    def words(self) -> str:
        """gemm M 128, N 512, K 64, fp32, trn2: rows 128, ..."""
        shape = ", ".join(f"{dim} {extent}" for dim, extent in self.shape.items())
        tiles = ", ".join(f"{name} {value}" for name, value in self.constants.items())
        return f"{self.kernel} {shape}, {self.precision}, {self.target}: {tiles}"

    def to_dict(self) -> dict[str, Any]:
        """JSON-able; ``Program(**values)`` is the inverse."""
        return asdict(self)


def program(kernel: str, shape: Values, precision: str, target: str, constants: Values | None = None) -> Program:
    """The program that a launch compiles: with the tiles that it would choose, or with these.

    Raises InputError for an unknown kernel, shape, precision or target.
    """
    known = check(kernel, shape, precision, target)
    depends = device_identity()
    chosen = choose(kernel, shape, precision, target, depends).constants if constants is None else dict(constants)
    return Program(kernel, kernel_hash(known), target, precision, dict(shape), chosen, depends)
