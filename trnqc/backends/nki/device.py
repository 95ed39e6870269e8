"""The device of an NKI kernel, as the host uses it."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from nki_kernels.descriptors import NkiKernel

PRECISIONS = ("fp32", "bf16x3", "bf16")
"""Of the tensor engine, which has no fp64."""


class NkiDevice(Protocol):
    """Where kernels run.

    Attributes
    ----------
    cores : int
        Physical cores over which a kernel is launched.
    target : str
        Generation: "trn1", "trn2" or "trn3".
    pairs_a_launch : int
        Pairs of orbitals in one launch of the MP2 kernel: enough to hide the launch behind its work, few enough to show
        progress.
    label : str
        What runs the kernels, in words.
    """

    cores: int
    target: str
    pairs_a_launch: int

    @property
    def label(self) -> str: ...

    def put(self, array: np.ndarray) -> Any:
        """The array in the device's memory."""
        ...

    def call(self, kernel: NkiKernel, *args: Any, **constants: int) -> np.ndarray:
        """Run a kernel over arrays made by `put` and integers, and return its result as an array of the host."""
        ...
