"""The operands of a network in the formats that nests read. Each copy is packed once and kept for later calls.

operand, format -> levels in this order and of these kinds
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from trnqc.errors import OperandError
from trnqc.sparse.blocks.find import to_blocks
from trnqc.sparse.blocks.pattern import BlockPattern
from trnqc.sparse.blocks.tensor import BlockTensor
from trnqc.sparse.network.nest import Format, Kind
from trnqc.sparse.network.network import Indices, Network
from trnqc.sparse.tensors.checks import is_complex
from trnqc.sparse.tensors.storage import SparseTensor


class NetworkOperands:
    """The tensors of one network, in the order of its operands, and their packed copies.

    Raises OperandError for other shapes. Copies are kept as long as their tensor is alive. After an array was changed
    in place, new NetworkOperands are needed. The copies were packed in `seconds` and take `bytes`.
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
        self._kept: WeakKeyDictionary[SparseTensor, dict[Any, Any]] = WeakKeyDictionary()

    def exchanged(self, tensors: Sequence[SparseTensor]) -> NetworkOperands:
        """Return operands of the same network with other tensors. Both share the copies that they keep."""
        other = NetworkOperands(self.network, tensors)
        other._kept = self._kept
        return other

    @property
    def formats(self) -> tuple[Format, ...]:
        """The formats in which the operands are at hand."""
        tensors = ((labels, self.tensors[first]) for labels, first in zip(self.network.inputs, self.network.same))
        return tuple(Format(tuple(labels[mode] for mode in x.order), x.kinds) for labels, x in tensors)

    def packed(self, number: int, layout: Format) -> SparseTensor:
        """Return operand `number` in a format; the same object for the same tensor, order and kinds."""
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
        found: SparseTensor = kept[key]
        return found

    def as_blocks(self, number: int, pattern: BlockPattern) -> BlockTensor | np.ndarray | None:
        """Return operand `number` as a block tensor of this pattern, or as an array if all of its blocks are stored.

        It is the same object for the same tensor, and None if elements are stored outside of the blocks.
        """
        labels, first = self.network.inputs[number], self.network.same[number]
        if pattern.whole:
            kinds: list[Kind] = ["dense"] * len(labels)
            values = self.packed(number, Format(labels, tuple(kinds))).values
            assert values is not None
            return values.reshape(self.network.shape(labels))
        kept = self._kept.setdefault(self.tensors[first], {})
        if pattern not in kept:
            kept[pattern] = to_blocks(self.tensors[first], pattern)
        blocks: BlockTensor | None = kept[pattern]
        return blocks

    def for_nest(self, formats: Sequence[Format]) -> tuple[SparseTensor, ...]:
        """Return all operands in the formats of a nest, whose last format belongs to the result."""
        return tuple(self.packed(number, formats[number]) for number in range(len(self.tensors)))

    def __str__(self) -> str:
        return f"{self.repacked} operands repacked in {self.seconds:.3g} s, {self.bytes} B more"


def packed(tensor: SparseTensor, labels: Indices, layout: Format) -> SparseTensor:
    """Return a tensor with modes `labels` in a format, itself if it has this format already.

    Copies have values unless the format is a 0/1 map. Raises OperandError if it is one and a stored element is not 1,
    as the zeros of a dense last level.
    """
    copy = tensor.repack([labels.index(index) for index in layout.order], layout.kinds)
    if not layout.ones:
        return copy if copy.values is not None else replace(copy, values=np.ones(copy.size))
    if copy.values is None:
        return copy
    if not (copy.values == 1).all():
        raise OperandError(
            f"{''.join(labels)} in the format {layout} must be 1 everywhere; found other values, or zeros in a dense "
            "last level: compress the level, or choose a format with values"
        )
    return replace(copy, values=None)


def same(operands: Sequence[Any]) -> tuple[int, ...]:
    """Return for each operand the number of the first operand that is the same object.

    A complex operand is told from all others, because a network is computed for different parts of it.
    """
    first = (next(m for m, other in enumerate(operands) if other is x) for x in operands)
    return tuple(n if is_complex(x) else m for n, (x, m) in enumerate(zip(operands, first)))
