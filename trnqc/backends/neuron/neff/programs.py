"""The identity of a compiled program: everything on which its compilation depends."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass

from nki_kernels.descriptors.descriptor import Values
from trnqc.jit.cache import key_of
from trnqc.tuning.choice import choose
from trnqc.tuning.conditions import device_identity
from trnqc.tuning.requests import check
from trnqc.tuning.sources import kernel_hash


@dataclass(frozen=True)
class NeffProgram:
    """A kernel with everything on which its compilation depends.

    Attributes
    ----------
    kernel, source : str
        The name of the kernel and the digest of its source.
    target, precision : str
        The generation of the chip, and the precision.
    shape : dict
        The extents of the problem by name.
    constants : dict
        The compile-time constants by name, such as tile sizes.
    depends : dict
        Versions and flags of the vendor's software.
    """

    kernel: str
    source: str
    target: str
    precision: str
    shape: dict[str, int]
    constants: dict[str, int]
    depends: dict[str, str]

    def key(self) -> str:
        """A digest of 32 hexadecimal digits, which is the same in every process."""
        return key_of(json.dumps(asdict(self), sort_keys=True))

    def words(self) -> str:
        """The program in words, such as "gemm M 128, N 512, K 64, fp32, trn2: rows 128, ..."."""
        shape = ", ".join(f"{dim} {extent}" for dim, extent in self.shape.items())
        tiles = ", ".join(f"{name} {value}" for name, value in self.constants.items())
        return f"{self.kernel} {shape}, {self.precision}, {self.target}: {tiles}"


def neff_program(kernel: str, shape: Values, precision: str, target: str) -> NeffProgram:
    """The program that a launch compiles for a kernel, its extents by name, a precision and a generation of the chip.

    Raises
    ------
    InputError
        If the kernel, shape, precision or target is unknown.
    """
    descriptor, depends = check(kernel, shape, precision, target), device_identity()
    constants = dict(choose(kernel, shape, precision, target, depends).constants)
    return NeffProgram(kernel, kernel_hash(descriptor), target, precision, dict(shape), constants, depends)
