"""The operands of a network in the layouts that nests ask for: each is packed once, counted, and kept for later calls.

operand + format -> levels in that order and of those kinds
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

    Copies are kept as long as their tensor is: an array that is changed afterwards in place needs new Operands.
    repacked: how many were made; seconds: what making them took; bytes: what they hold beside the tensors given.
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
        """Of the same network with these tensors; what is kept of them, here or there, serves both."""
        other = Operands(self.network, tensors)
        other._kept = self._kept
        return other

    def packed(self, number: int, layout: Format) -> SparseTensor:
        """Operand `number` as a format says; the same object for the same tensor, order and kinds. Errors: `packed`."""
        labels, first = self.network.inputs[number], self.network.same[number]
        order = tuple(labels.index(index) for index in layout.order)
        key, tensor = (order, replace(layout, order=())), self.tensors[first]
        kept = self._kept.setdefault(tensor, {})
        if key not in kept:
            start = time.perf_counter()
            found = packed(tensor, labels, layout)
            if found is tensor:
                return tensor
            if (found.order, found.kinds) != (tensor.order, tensor.kinds):
                self.repacked += 1
                self.bytes += found.bytes
            self.seconds += time.perf_counter() - start
            kept[key] = found
        return kept[key]

    def for_nest(self, formats: Sequence[Format]) -> tuple[SparseTensor, ...]:
        """All operands, by the formats of a nest (what follows them is the result's and is not looked at)."""
        return tuple(self.packed(number, formats[number]) for number in range(len(self.tensors)))

    def __str__(self) -> str:
        return f"{self.repacked} operands repacked in {self.seconds:.3g} s, {self.bytes} B more"


def packed(tensor: SparseTensor, labels: Indices, layout: Format) -> SparseTensor:
    """A tensor whose modes are called `labels`, as a format says: with values, unless it asks for a map without.

    Errors: OperandError where a map is asked for and an element is not 1, or a dense level adds zeros.
    """
    found = tensor.repack([labels.index(index) for index in layout.order], layout.kinds)
    if not layout.ones:
        return found if found.values is not None else replace(found, values=np.ones(found.size))
    if found.values is None:
        return found
    if not (found.values == 1).all():
        raise OperandError(
            f"{''.join(labels)} in the format {layout} must have 1 everywhere; found other values, or zeros of a last "
            "level that is dense: compress it, or ask for values"
        )
    return replace(found, values=None)
