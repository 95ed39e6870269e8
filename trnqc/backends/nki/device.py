"""The interface of a device that runs NKI kernels."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from nki_kernels.precision import splits

PRECISIONS = tuple(splits.PRECISIONS)
"""The precisions of the tensor engine, which has no fp64."""


class NkiDevice(Protocol):
    """A device that runs NKI kernels.

    Attributes
    ----------
    cores : int
        The number of physical cores on which a kernel is launched.
    target : str
        The generation: "trn1", "trn2" or "trn3".
    pairs_a_launch : int
        The number of pairs of orbitals in one launch of the MP2 kernel. It is large enough that the time of the launch
        does not matter, and small enough to show progress.
    label : str
        What runs the kernels, in words.
    """

    cores: int
    target: str
    pairs_a_launch: int

    @property
    def label(self) -> str: ...

    def identity(self) -> dict[str, str]:
        """Everything on which the rounding of its results depends: hardware, versions, flags."""
        ...

    def put(self, array: np.ndarray) -> Any:
        """Copy an array to the memory of the device."""
        ...

    def call(self, kernel: str, *args: Any, **constants: Any) -> Any:
        """Run a kernel by its name with what `put` has returned, and constants; return a NumPy array or a tuple."""
        ...
