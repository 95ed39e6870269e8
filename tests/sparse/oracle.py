"""What a nest means, on dense arrays: the shared loops are run as they stand, the rest of an assignment by einsum.

A workspace has the axes that its nest gives it and no more, and is made anew for every turn of the loops that its maker
and its reader share, so a nest that shares too much, or clears too seldom, gives a wrong result here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.network import Indices, Network


def reference(network: Network, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The network by NumPy alone, indices as numbers lest letters run out."""
    return product(network.inputs, network.output, arrays)


def product(inputs: Sequence[Indices], output: Indices, arrays: Sequence[np.ndarray]) -> np.ndarray:
    numbers = {index: n for n, index in enumerate(dict.fromkeys(index for labels in inputs for index in labels))}
    spelt = [part for a, labels in zip(arrays, inputs, strict=True) for part in (a, [numbers[x] for x in labels])]
    return np.einsum(*spelt, [numbers[x] for x in output], optimize=len(arrays) > 2)


def interpret(nest: Nest, arrays: Sequence[np.ndarray]) -> np.ndarray:
    """The result, axes in the order of the network's output, of dense operands in the order of their subscripts."""
    turns = _Turns(nest.check(), list(arrays))
    turns.run(0, len(nest.assignments) - 1, 0, {})
    return turns.result


@dataclass
class _Turns:
    nest: Nest
    arrays: list[np.ndarray]
    spaces: dict[int, np.ndarray] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.result = np.zeros(self.nest.network.shape(self.nest.network.output))

    def run(self, first: int, last: int, depth: int, fixed: dict[str, int]) -> None:
        """Assignments first .. last, which share `depth` loops, for one turn of those: the values in `fixed`."""
        nest, n = self.nest, len(self.nest.network.inputs)
        for k in range(first, last):
            if nest.reader(n + k) <= last and nest.fused(n + k) == depth:
                self.spaces[n + k] = np.zeros(nest.network.shape(nest.workspaces[k].order))
        while first <= last:
            end = first
            while end < last and nest.shared[end] > depth:
                end += 1
            if end == first:
                self.assign(first, fixed)
            else:
                index = nest.assignments[first].loops[depth]
                for value in range(nest.network.extents[index]):
                    self.run(first, end, depth + 1, fixed | {index: value})
            first = end + 1

    def assign(self, k: int, fixed: dict[str, int]) -> None:
        assignment = self.nest.assignments[k]
        parts = [self.place(t, fixed) for t in assignment.operands]
        target, labels = self.place(assignment.target, fixed)
        target += product([x for _, x in parts], labels, [a for a, _ in parts])

    def place(self, t: int, fixed: dict[str, int]) -> tuple[np.ndarray, Indices]:
        """A view of what is left of a tensor where the indices in `fixed` have their values, and its indices."""
        n = len(self.arrays)
        if t < n:
            array, labels = self.arrays[t], self.nest.network.inputs[t]
        elif t == n + len(self.nest.assignments) - 1:
            array, labels = self.result, self.nest.network.output
        else:
            array, labels = self.spaces[t], self.nest.workspaces[t - n].order
        view = array[(*(fixed.get(index, slice(None)) for index in labels), ...)]
        return view, tuple(index for index in labels if index not in fixed)
