"""The compiled programs of the atoms of a model, bound to NumPy arrays."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from trnqc.host.arrays import empty
from trnqc.host.threads import in_parallel
from trnqc.jit import NUMPY, CompiledFunction
from trnqc.mace.nodes.kernels import ATOMS, NodeKernels


def blocks(elements: np.ndarray) -> np.ndarray:
    """Element, first atom and number of atoms of each block, int64 [blocks, 3], for elements in ascending order."""
    rows = []
    for element in np.unique(elements):
        first, end = np.searchsorted(elements, [element, element + 1])
        parts = -(-(end - first) // ATOMS)
        bounds = [first + (end - first) * n // parts for n in range(parts + 1)]
        rows += [(element, a, b - a) for a, b in pairwise(bounds)]
    return np.array(rows, np.int64).reshape(-1, 3)


class NodeRun:
    """The programs bound to the arrays of one set of atoms.

    Parameters
    ----------
    kernels : NodeKernels
    elements : numpy.ndarray
        The number of the element of each atom in ascending order, int64 [atoms].
    threads : int
        Number of threads.
    """

    def __init__(self, kernels: NodeKernels, elements: np.ndarray, threads: int) -> None:
        self.kernels, self.threads = kernels, threads
        plan = kernels.plan
        self.blocks = blocks(elements)
        self.arrays = _arrays(kernels, len(elements))
        if len(elements):
            self.arrays["x0"][...] = plan.sent[elements]
        self._elements = elements
        self._calls: dict[str, CompiledFunction] = {}
        for name, program in kernels.programs.items():
            named = {key: self.arrays[key] for key in program.widths}
            self._calls[name] = kernels.functions[name].bind(blocks=self.blocks, parameters=plan.parameters, **named)
        starts = np.append(self.blocks[:, 1], len(elements)).astype(np.int64)
        of_blocks, nodes = np.ascontiguousarray(self.blocks[:, 0]), np.arange(len(elements), dtype=np.int64)
        for t, layer in enumerate(plan.layers):
            common = (layer.messages.vectors[0], starts, of_blocks, nodes, plan.coefficients[t], self.arrays[f"m{t}"])
            self._calls[f"contraction_value{t}"] = kernels.functions[f"contraction_value{t}"].bind(
                *common, self.arrays[f"b{t}"]
            )
            self._calls[f"contraction_gradient{t}"] = kernels.functions[f"contraction_gradient{t}"].bind(
                *common, self.arrays[f"gb{t}"], self.arrays[f"gm{t}"]
            )

    def forward(self, t: int) -> None:
        """Compute the features of layer t and what atoms send next, from the sums over edges in ``a``."""
        for name in ("messages", "contraction_value", "features"):
            self._run(f"{name}{t}")

    def reverse(self, t: int) -> None:
        """Compute the gradient of the sums over edges of layer t, in ``ga``."""
        for name in ("features_reverse", "contraction_gradient", "messages_reverse"):
            self._run(f"{name}{t}")

    def begin(self) -> None:
        """Set the energies to their constants."""
        self.arrays["energies"][...] = self.kernels.plan.constants[self._elements]

    def _run(self, name: str) -> None:
        call, count = self._calls[name], len(self.blocks)
        parts = min(count, 4 * self.threads if self.threads > 1 else 1)
        in_parallel(lambda i: call(count * i // parts, count * (i + 1) // parts), parts, self.threads)


def _arrays(kernels: NodeKernels, atoms: int) -> dict[str, np.ndarray]:
    """New arrays for a number of atoms, by name."""
    lanes, dtype, widths = kernels.plan.tile.lanes, NUMPY[kernels.plan.dtype], kernels.widths
    arrays = {name: empty((atoms, width, lanes), dtype) for name, width in widths.items() if width}
    numbers = {name: np.zeros(atoms, dtype) for name, width in widths.items() if not width}
    return arrays | numbers | {"energies": np.zeros(atoms)}
