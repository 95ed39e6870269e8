"""The operands of a network in the formats that nests ask for. Each is packed once and kept for later calls.

operand, format -> levels in that order and of those kinds
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from trnqc.errors import OperandError
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.tensors.storage import SparseTensor


class Operands:
    """Tensors of one network, in its order, and their packed copies.

    Copies are kept as long as their tensor is alive. An array that is changed in place afterwards needs new Operands.

    Attributes
    ----------
    repacked, seconds, bytes
        How many copies were made, the time that took, and the memory that they hold.
    """

    def __init__(self, network: Network, tensors: Sequence[SparseTensor]) -> None:
        for number, (labels, tensor) in enumerate(zip(network.inputs, tensors, strict=True)):
            if tensor.shape != network.shape(labels):
                raise OperandError(
                    f"operand {number} ({''.join(labels)}) must have the shape {network.shape(labels)}; "
                    f"found {tensor.shape}"
                )
        self.network = network
        self.tensors = tuple(tensors)
        self.repacked = 0
        self.seconds = 0.0
        self.bytes = 0
        self._kept: WeakKeyDictionary[SparseTensor, dict[Any, SparseTensor]] = WeakKeyDictionary()

    def exchanged(self, tensors: Sequence[SparseTensor]) -> Operands:
        """Operands of the same network with other tensors. Both share the copies that they keep."""
        other = Operands(self.network, tensors)
        other._kept = self._kept
        return other

    def packed(self, number: int, layout: Format) -> SparseTensor:
        """Operand `number` in a format; the same object for the same tensor, order and kinds."""
        labels, first = self.network.inputs[number], self.network.same[number]
        order = tuple(labels.index(index) for index in layout.order)
        key, tensor = (order, replace(layout, order=())), self.tensors[first]
        kept = self._kept.setdefault(tensor, {})
        if key not in kept:
            start = time.perf_counter()
            copy = packed(tensor, labels, layout)
            if copy is tensor:
                return tensor
            if (copy.order, copy.kinds) != (tensor.order, tensor.kinds):
                self.repacked += 1
                self.bytes += copy.bytes
            self.seconds += time.perf_counter() - start
            kept[key] = copy
        return kept[key]

    def for_nest(self, formats: Sequence[Format]) -> tuple[SparseTensor, ...]:
        """All operands in the formats of a nest; the last format, that of the result, is not used."""
        return tuple(self.packed(number, formats[number]) for number in range(len(self.tensors)))

    def __str__(self) -> str:
        return f"{self.repacked} operands repacked in {self.seconds:.3g} s, {self.bytes} B more"


def packed(tensor: SparseTensor, labels: Indices, layout: Format) -> SparseTensor:
    """A tensor with modes `labels` in a format, which has values unless the format is that of a 0/1 map.

    Raises
    ------
    OperandError
        If a 0/1 map is asked for and an element is not 1, or a dense level adds zeros.
    """
    copy = tensor.repack([labels.index(index) for index in layout.order], layout.kinds)
    if not layout.ones:
        return copy if copy.values is not None else replace(copy, values=np.ones(copy.size))
    if copy.values is None:
        return copy
    if not (copy.values == 1).all():
        raise OperandError(
            f"{''.join(labels)} in the format {layout} must have 1 everywhere; found other values, or zeros of a last "
            "level that is dense: compress it, or ask for values"
        )
    return replace(copy, values=None)
